from __future__ import annotations

import math
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from planner import canonical
from planner.canonical import canonical_json, write_whole
from planner.errors import OutputUnwritable
from planner.text import escape


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
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    for name, behind in (
        ("to-pipe", "pipe"),
        ("to-folder", "folder"),
        ("to-null", os.devnull),
        ("to-nowhere", "missing/plan.json"),
        ("circle", "circle"),
    ):
        (tmp_path / name).symlink_to(behind)
    there = sorted(os.listdir(tmp_path))
    for name, message in (
        ("folder", "it is a directory; name another file"),
        ("missing/plan.json", f"there is no folder {tmp_path}/missing; make it first"),
        ("file/plan.json", "there is no folder"),
        ("pipe", "it is not a plain file; name another"),
        ("socket", "it is not a plain file; name another"),
        ("to-pipe", "it is not a plain file; name another"),
        ("to-folder", "it is a directory; name another"),
        ("to-null", "it is not a plain file; name another"),
        ("to-nowhere", f"there is no folder {tmp_path}/missing; make it first"),
        ("circle", "symbolic links"),
        ("x" * 300, "File name too long"),
        ("nul\0", "null"),
    ):
        with pytest.raises(OutputUnwritable) as raised:
            write_whole(tmp_path / name, "new")
        assert str(raised.value).startswith(f"cannot write {escape(str(tmp_path / name))}: ")
        assert message in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == there
    assert stat.S_ISFIFO((tmp_path / "to-pipe").stat().st_mode)
    assert all((tmp_path / name).is_symlink() for name in ("circle", "to-folder", "to-null", "to-pipe"))
    assert (tmp_path / "file").read_text() == "old"


def test_a_device_is_never_replaced():
    with pytest.raises(OutputUnwritable, match="not a plain file"):
        write_whole(canonical.Path(os.devnull), "new")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, behind in (("link", "folder/plan.json"), ("again", "link")):
        (tmp_path / name).symlink_to(behind)
    for text in ("made", "replaced"):
        write_whole(tmp_path / "again", text)
        assert (tmp_path / "folder" / "plan.json").read_text() == text
    assert (tmp_path / "again").is_symlink()
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "folder") == ["plan.json"]


def test_where_the_process_itself_prints_is_never_replaced(tmp_path):
    """As `> file` does to it, through a link like that of /dev/stdout; a file of its own is no exception."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    code = (
        "import sys; from pathlib import Path; from planner.canonical import write_whole\n"
        "for name in sys.argv[1:]:\n"
        "    try: write_whole(Path(name), 'new')\n"
        "    except Exception as error: print(error)"
    )
    named = [str(tmp_path / "stdout"), str(tmp_path / "printed")]
    with (tmp_path / "printed").open("w") as printed:
        subprocess.run([sys.executable, "-c", code, *named], stdout=printed, check=True, cwd=Path(__file__).parents[2])
    lines = (tmp_path / "printed").read_text().splitlines()
    assert [line.partition("; ")[0].rpartition(": ")[2] for line in lines] == [
        "this command's own input or output goes there"
    ] * 2
    done = subprocess.run(
        [sys.executable, "-c", code, named[0]], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert "it is not a plain file" in done.stdout
    assert (tmp_path / "stdout").is_symlink()
