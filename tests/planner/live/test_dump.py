from __future__ import annotations

import gzip
import io
import json
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from planner import dump as dump_module
from planner import reading
from planner.dump import write_dump
from planner.errors import InputUnreadable, OutputUnwritable
from planner.reading import MAX_BYTES, load_state

ROOT = Path(__file__).parents[3]
REAL = ROOT / "examples" / "llama-65b-hf.json"
DOCUMENT = json.loads(REAL.read_text())


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz", ".gz"])
def test_a_dump_is_read_back(tmp_path, monkeypatch, name):
    path = tmp_path / name
    write_dump(path, DOCUMENT)
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert load_state(path) == load_state(REAL)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert load_state("-") == load_state(REAL)
    assert list(tmp_path.iterdir()) == [path]


def test_equal_dumps_give_equal_files_whatever_their_name_and_time(tmp_path):
    write_dump(tmp_path / "a.gz", DOCUMENT)
    time.sleep(1.1)
    write_dump(tmp_path / "b.gz", DOCUMENT)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == json.dumps(DOCUMENT).encode() + b"\n"


def test_what_gzip_itself_made_is_read(tmp_path):
    path = tmp_path / "named-otherwise"
    with gzip.open(path, "wb") as file:
        file.write(REAL.read_bytes())
    assert load_state(path) == load_state(REAL)


def test_a_dump_that_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "dump.json.gz"
    path.write_bytes(b"before")
    monkeypatch.setattr(dump_module, "MAX_BYTES", 100)
    with pytest.raises(OutputUnwritable, match="over 0 MiB, more than is read back"):
        write_dump(path, DOCUMENT)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_dump(path, {"x": float("nan")})
    assert path.read_bytes() == b"before"
    with pytest.raises(OutputUnwritable, match="there is no folder"):
        write_dump(tmp_path / "nowhere" / "dump.json", DOCUMENT)
    with pytest.raises(OutputUnwritable, match="is a directory"):
        write_dump(tmp_path, DOCUMENT)


PACKED = gzip.compress(REAL.read_bytes(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b", "ends in the middle"),
        (PACKED[:-1], "ends in the middle"),
        (PACKED[: len(PACKED) // 2], "ends in the middle"),
        (b"\x1f\x8b" + b"\xff" * 50, "is not what gzip makes"),
        (PACKED[:-6] + b"\0\0\0\0\0\0", "is not what gzip makes"),
        (PACKED[:200] + b"\xff" * 20 + PACKED[220:], "is not what gzip makes"),
        (PACKED + b"more", "holds something after"),
        (PACKED + PACKED, "holds something after"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b"{", mtime=0), "this is not JSON"),
        (gzip.compress(PACKED, mtime=0), "is not UTF-8"),
    ],
)
def test_bad_compressed_dumps(tmp_path, content, message):
    path = tmp_path / "dump.json.gz"
    path.write_bytes(content)
    with pytest.raises(InputUnreadable, match=message) as caught:
        load_state(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


def bomb(size):
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(b" " * 2**20) for _ in range(size // 2**20)]
    return b"".join(pieces) + packer.flush()


def test_a_decompression_bomb_is_refused_in_bounded_time_and_memory(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(bomb(300 * 2**20))
    assert path.stat().st_size < 2 * 2**20
    begun = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(InputUnreadable, match="holds over 128 MiB once decompressed"):
            load_state(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * MAX_BYTES
    assert time.monotonic() - begun < 10


def test_a_million_empty_members_are_refused_at_the_first(tmp_path):
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"", mtime=0) * 10**6)
    begun = time.monotonic()
    with pytest.raises(InputUnreadable, match="holds something after"):
        load_state(path)
    assert time.monotonic() - begun < 5


def test_the_limit_itself(tmp_path, monkeypatch):
    content = REAL.read_bytes()
    path = tmp_path / "dump.gz"
    path.write_bytes(gzip.compress(content, mtime=0))
    monkeypatch.setattr(reading, "MAX_BYTES", len(content))
    assert load_state(path).num_blocks == 80
    monkeypatch.setattr(reading, "MAX_BYTES", len(content) - 1)
    with pytest.raises(InputUnreadable, match="once decompressed"):
        load_state(path)
