from __future__ import annotations

import math
import os
import stat

import pytest

from planner import canonical
from planner.canonical import canonical_json, write_whole
from planner.errors import OutputUnwritable


def test_equal_values_give_equal_text():
    assert canonical_json({"b": 1, "a": [1.5, None, True]}) == '{"a":[1.5,null,true],"b":1}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    assert canonical_json("é\x1b\ud800") == '"\\u00e9\\u001b\\ud800"'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json([value])


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "plan.json"
    write_whole(path, "one")
    write_whole(path, "två")
    assert path.read_text("utf-8") == "två"
    assert os.listdir(tmp_path) == ["plan.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_relative_name_and_a_very_long_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plan", "p" * 255):
        write_whole(canonical.Path(name), "text")
        assert (tmp_path / name).read_text() == "text"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_where_writing_fails_the_old_file_stands_and_nothing_is_left_behind(tmp_path, monkeypatch, error):
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OutputUnwritable, KeyboardInterrupt)):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_where_it_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("folder", "it is a directory; name a file"),
        ("missing/plan.json", f"its folder {tmp_path}/missing does not exist; make it first"),
        ("file/plan.json", "its folder"),
        ("pipe", "it is not a plain file; name another"),
        ("x" * 300, "File name too long"),
        ("nul\0", "null"),
    ):
        with pytest.raises(OutputUnwritable) as raised:
            write_whole(tmp_path / name, "new")
        assert str(raised.value).startswith(f"cannot write {tmp_path / name}: ")
        assert message in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "pipe"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_device_is_never_replaced():
    with pytest.raises(OutputUnwritable, match="not a plain file"):
        write_whole(canonical.Path(os.devnull), "new")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
