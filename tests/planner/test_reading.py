from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

import planner
from planner import reading
from planner.errors import InputInvalid, InputUnreadable, NothingToPlan, PlanSwarmError
from planner.reading import MAX_BYTES, load_state

ROOT = Path(__file__).parents[2]
REAL = ROOT / "examples" / "llama-65b-hf.json"
CHURN = sorted((ROOT / "benchmarks" / "data").glob("churn-*.json"))


def dump(**changes):
    document = {
        "format": "plan-swarm.dht-dump",
        "version": 1,
        "prefix": "m",
        "num_blocks": 4,
        "read_at": 1000.0,
        "records": [{"uid": "m.0", "peer_id": "a", "expiration": 1100.0, "value": [2, 5.0]}],
        "agents": [],
    }
    document |= changes
    return {name: value for name, value in document.items() if value is not ...}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "dump.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_the_real_dump_from_every_kind_of_source(monkeypatch):
    state = load_state(REAL)
    assert (state.prefix, state.num_blocks, len(state.servers)) == ("llama-65b-hf", 80, 7)
    assert load_state(str(REAL)) == state
    assert load_state(json.loads(REAL.read_text())) == state
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(REAL.read_bytes())))
    assert load_state("-") == state


@pytest.mark.parametrize("path", CHURN, ids=lambda path: path.stem)
def test_the_generated_swarms(path):
    state = load_state(path)
    assert len(state.servers) == int(path.stem.split("-")[1].split("x")[1])
    assert state.warnings == ()


def test_a_pipe():
    reader, writer = os.pipe()
    threading.Thread(target=lambda: (os.write(writer, json.dumps(dump()).encode()), os.close(writer))).start()
    assert load_state(f"/dev/fd/{reader}").num_blocks == 4
    os.close(reader)


def test_a_byte_order_mark_is_accepted(write):
    assert load_state(write(b"\xef\xbb\xbf" + json.dumps(dump()).encode())).prefix == "m"


def test_literals_that_are_not_json_spoil_only_their_record(write):
    records = [
        *dump()["records"],
        {"uid": "m.1", "peer_id": "a", "expiration": 1100.0, "value": [2, float("nan")]},
        {"uid": "m.1", "peer_id": "b", "expiration": float("inf"), "value": [2, 1.0]},
    ]
    state = load_state(write(json.dumps(dump(records=records))))
    assert [server.peer_id for server in state.servers] == ["a"]
    assert [warning.split(":")[0] for warning in state.warnings] == ["a", "b"]


def test_agents_may_be_left_out():
    assert load_state(dump(agents=...)) == load_state(dump(agents=None)) == load_state(dump())


def test_num_blocks_overrides():
    assert load_state(dump(), num_blocks=9).num_blocks == 9
    assert load_state(dump(num_blocks=...), num_blocks=9).num_blocks == 9


def test_prefix():
    assert load_state(dump(), prefix="m").prefix == "m"
    with pytest.raises(NothingToPlan, match=r"holds no model of the prefix 'llama-65b'.*did you mean 'llama-65b-hf'"):
        load_state(REAL, prefix="llama-65b")
    with pytest.raises(NothingToPlan, match=r"it holds m$"):
        load_state(dump(), prefix="bloom")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b'{"a": 1,\n "b" 2}', "line 2, column 6: this is not JSON"),
        (b"<html>", "line 1, column 1: this is not JSON"),
        (b'{"a": "b', "column 7: this is not JSON"),
        (b'{"a":\n "\xff"}', "line 2: byte 8 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8"),
        (b'{"num_blocks": ' + b"9" * 100_000 + b"}", "an integer has over 400 digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json(write, content, message):
    path = write(content)
    with pytest.raises(InputUnreadable, match=message) as caught:
        load_state(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "a value of type list; expected a dump"),
        ("5", "holds 5; expected a dump"),
        ("null", "holds null; expected a dump"),
        ("{}", "JSON of another kind"),
        ('{"format": "plan-swarm.plan", "version": 1}', "its format is 'plan-swarm.plan'; expected a dump"),
        ('{"format": "\\u001b[2J"}', r"its format is '\\x1b\[2J'"),
        ('{"format": ["plan-swarm.dht-dump"]}', "JSON of another kind"),
        (json.dumps(dump(version=2)), "version is 2; this planner reads version 1"),
        (json.dumps(dump(version="1")), "version is '1'"),
        (json.dumps(dump(version=True)), "version is true"),
        (json.dumps(dump(version=...)), "version is null"),
        (json.dumps(dump(prefix=...)), "prefix is null"),
        (json.dumps(dump(prefix="")), "prefix is ''"),
        (json.dumps(dump(num_blocks=...)), "num_blocks, .* is missing"),
        (json.dumps(dump(num_blocks=0)), "num_blocks must be from 1 to 100,000, not 0"),
        (json.dumps(dump(num_blocks=-1)), "num_blocks must be"),
        (json.dumps(dump(num_blocks=100_001)), "num_blocks must be"),
        (json.dumps(dump(num_blocks=2.5)), "num_blocks must be an integer"),
        (json.dumps(dump(num_blocks=True)), "num_blocks must be an integer"),
        (json.dumps(dump(read_at=...)), "read_at is null"),
        (json.dumps(dump(read_at=float("nan"))), "read_at is nan"),
        (json.dumps(dump(read_at="now")), "read_at is 'now'"),
        (json.dumps(dump(records=...)), "records is null, not a list"),
        (json.dumps(dump(records={})), "records is a value of type dict"),
        (json.dumps(dump(agents={"a": 1})), "agents is a value of type dict"),
    ],
)
def test_json_of_another_kind(write, content, message):
    path = write(content)
    with pytest.raises(InputInvalid, match=message) as caught:
        load_state(path)
    assert str(caught.value).startswith(str(path))


def test_a_swarm_without_servers(write):
    with pytest.raises(NothingToPlan, match="no server of 'm'"):
        load_state(write(json.dumps(dump(records=[]))))


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(InputUnreadable, match=r"nowhere\.json does not exist"):
        load_state(tmp_path / "nowhere.json")
    with pytest.raises(InputUnreadable, match="is a directory"):
        load_state(tmp_path)
    with pytest.raises(InputUnreadable, match="cannot be read"):
        load_state("a\0b")
    with pytest.raises(InputUnreadable, match="cannot be read: File name too long"):
        load_state("x" * 5000)
    with pytest.raises(InputUnreadable, match="cannot be read: Not a directory"):
        load_state(REAL / "dump.json")
    with pytest.raises(InputUnreadable, match=r"evil\\x1b\[2J does not exist"):
        load_state("evil\x1b[2J")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputUnreadable, match="standard input cannot be read"):
        load_state("-")


def test_a_file_without_permission(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("planner.files.os.open", refuse)
    with pytest.raises(InputUnreadable, match="may not be read by this user"):
        load_state("dump.json")


def test_a_file_over_the_limit_is_refused_with_bounded_memory(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200 * 2**30)  # sparse: it takes no room
    tracemalloc.start()
    try:
        with pytest.raises(InputUnreadable, match="has over 128 MiB"):
            load_state(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.1 * MAX_BYTES


def test_a_source_without_an_end(monkeypatch):
    with pytest.raises(InputUnreadable, match="is not a plain file"):
        load_state("/dev/zero")
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(InputUnreadable, match="has over 128 MiB"):
            load_state("-")


def test_a_file_of_too_many_values(write, monkeypatch):
    monkeypatch.setattr(reading, "MAX_VALUES", 1000)
    assert load_state(write(json.dumps(dump()))).prefix == "m"
    with pytest.raises(InputUnreadable, match="has over 1,000 JSON values"):
        load_state(write("[" + "[]," * 500 + "[]]"))


@pytest.mark.parametrize("depth", [50, 400, 800, 1200, 5000])
@pytest.mark.parametrize("field", ["num_blocks", "version", "prefix", "read_at", "records", "uid", "peer_id"])
def test_deep_nesting_anywhere_is_a_clear_error(write, depth, field):
    document = dump()
    (document if field in document else document["records"][0])[field] = "DEEP"
    with pytest.raises(PlanSwarmError) as caught:
        load_state(write(json.dumps(document).replace('"DEEP"', "[" * depth + "]" * depth)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_front_door_is_lazy():
    assert planner.load_state is load_state
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        planner.nonsense  # noqa: B018


def test_reading_imports_neither_solvers_nor_networks():
    code = (
        f"import sys; from planner import load_state; load_state({str(REAL)!r}); "
        "print([m for m in ('ortools', 'torch', 'hivemind', 'petals') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
