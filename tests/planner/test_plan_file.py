from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import Policy, load_state, make_plan
from planner.errors import InputInvalid, InputUnreadable, PlanSwarmError
from planner.fields import Malformed
from planner.plan_file import MAX_BYTES, load_plan
from planner.policy import MinGain
from planner.published import read_plan
from planner.strict_json import NotStrictJson, parse_strict
from solver.problem import Span
from tests.plans import NOW, PREFIX, document, dump, identified, swarm

ROOT = Path(__file__).parents[2]
CHURN = sorted((ROOT / "benchmarks" / "data").glob("churn-*.json"))


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "plan.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def said(action, error):
    """What `action` says as `error`, the only one that it may raise; None where it succeeds."""
    try:
        action()
    except error as raised:
        return str(raised)
    return None


def mover(fields):
    return next(server for server in fields["servers"] if server["wave"] is not None)


def stayer(fields):
    return next(server for server in fields["servers"] if server["wave"] is None)


def test_a_plan_reads_back_as_it_was_made(write):
    plan = make_plan(swarm(), Policy(time_limit=5.0, workers=1), now=NOW, explain=True)
    read = load_plan(write(json.dumps(plan.to_json(), indent=2)))
    assert (read.prefix, read.num_blocks, read.plan_id, read.status) == (PREFIX, 4, plan.plan_id, plan.status)
    assert (read.created_at, read.valid_until, read.epoch, read.floor) == (NOW, NOW + 3600.0, 0, 0.0)
    assert read.fingerprint == plan.state_fingerprint
    assert (read.servers, read.waves, read.before, read.after) == (plan.servers, plan.waves, plan.before, plan.after)
    assert read.moves == plan.moves != ()
    assert read.document() == json.loads(json.dumps(plan.to_json()))


def test_a_byte_order_mark_is_accepted(write):
    assert load_plan(write(b"\xef\xbb\xbf" + json.dumps(document()).encode())).prefix == PREFIX


@pytest.mark.parametrize("path", CHURN, ids=lambda path: path.stem)
def test_the_generated_swarms(path, write):
    plan = make_plan(load_state(path), Policy(time_limit=1.0))
    read = load_plan(write(json.dumps(plan.to_json())))
    assert (read.plan_id, read.servers) == (plan.plan_id, plan.servers)


@pytest.mark.parametrize(
    "policy",
    [
        {"drains": ("c",)},
        {"cordons": ("a",), "min_replicas": 2},
        {"pins": (("d", None), ("c", Span(1, 3)))},
        {"pins": (("d", Span(0, 4)),)},  # infeasible
        {"min_gain": MinGain(share=0.9), "max_moves": 1, "seconds_per_block": 1.5},
        {"resize": True, "min_span": 2, "max_hops": 4, "deterministic": True},
        {"max_hops": 1},  # infeasible
        {"horizon": 1, "min_gain": MinGain(rps=1)},  # integers where floats are usual: the id must bear them
    ],
    ids=lambda policy: "-".join(policy),
)
def test_plans_under_every_kind_of_policy(policy, write):
    plan = make_plan(swarm(), Policy(time_limit=5.0, workers=1, **policy))
    assert load_plan(write(json.dumps(plan.to_json()))).servers == plan.servers


def test_newcomers_and_joining_servers(write):
    state = dump(
        ("a", 0, 4, 1.0), ("j", 0, 2, 1.0), agents=[("n", {"state": "waiting", "capacity": 2, "throughput": 1.0})]
    )
    for record in state["records"]:
        record["value"][0] = 1 if record["peer_id"] == "j" else 2
    plan = make_plan(load_state(state), Policy(time_limit=5.0, workers=1))
    read = load_plan(write(json.dumps(plan.to_json())))
    assert [(server.peer_id, server.state) for server in read.servers] == [
        ("a", "online"),
        ("j", "joining"),
        ("n", "waiting"),
    ]
    assert read.servers[2].current is None
    assert read.servers[2].moves


def test_what_the_operator_told_is_known(write):
    plan = make_plan(swarm(), Policy(time_limit=5.0, workers=1, spans=(("a", Span(0, 2)),)))
    assert load_plan(write(json.dumps(plan.to_json()))).told == (("a", Span(0, 2)),)


def spoiled(name, change):
    return pytest.param(change, id=name)


def setting(path, value):
    def change(fields):
        *way, last = path
        for step in way:
            fields = step(fields) if callable(step) else fields[step]
        if value is ...:
            del fields[last]
        else:
            fields[last] = value

    return change


def swap_servers(fields):
    fields["servers"].reverse()


def double_server(fields):
    fields["servers"].insert(0, fields["servers"][0])


def two_waves(fields):
    fields["waves"] = [fields["waves"][0], fields["waves"][0]]


def wave_of_another(fields):
    fields["waves"][0]["moves"] = [stayer(fields)["peer_id"]]


def wave_with_a_stranger(fields):
    fields["waves"][0]["moves"].append("zzz")


def wave_with_a_stayer(fields):
    fields["waves"][0]["moves"].append(stayer(fields)["peer_id"])


def after_itself(fields):
    mover(fields)["after"] = [mover(fields)["peer_id"]]


def after_a_stayer(fields):
    mover(fields)["after"] = [stayer(fields)["peer_id"]]


def loaded_as_flags(fields):
    server = mover(fields)
    server["current"], server["target"] = [1, 2], [0, 1]
    server["loaded"], server["dropped"], server["kept"] = [False], [True], 0


SPOILED = [
    spoiled("format", setting(["format"], "plan-swarm.dht-dump")),
    spoiled("no format", setting(["format"], ...)),
    spoiled("version 2", setting(["version"], 2)),
    spoiled("version true", setting(["version"], True)),
    spoiled("version 1.0", setting(["version"], 1.0)),
    spoiled("no prefix", setting(["prefix"], "")),
    spoiled("prefix a list", setting(["prefix"], ["m"])),
    spoiled("prefix too long", setting(["prefix"], "m" * 1001)),
    spoiled("no blocks", setting(["num_blocks"], 0)),
    spoiled("many blocks", setting(["num_blocks"], 10**9)),
    spoiled("blocks true", setting(["num_blocks"], True)),
    spoiled("fewer blocks than spans", setting(["num_blocks"], 3)),
    spoiled("id too short", setting(["plan_id"], "ab")),
    spoiled("id not hexadecimal", setting(["plan_id"], "g" * 32)),
    spoiled("another id", setting(["plan_id"], "0" * 32)),
    spoiled("fingerprint", setting(["state_fingerprint"], "0" * 32)),
    spoiled("another fingerprint", setting(["state_fingerprint"], "0" * 64)),
    spoiled("another prefix", setting(["prefix"], "other")),
    spoiled("another floor", setting(["floor"], 1.0)),
    spoiled("another policy", setting(["solve", "settings", "min_replicas"], 7)),
    spoiled("status", setting(["status"], "perfect")),
    spoiled("status a list", setting(["status"], [])),
    spoiled("created in text", setting(["created_at"], "now")),
    spoiled("created in milliseconds", setting(["created_at"], NOW * 1000)),
    spoiled("ends before it begins", setting(["valid_until"], NOW - 1)),
    spoiled("never ends", setting(["valid_until"], 1e300)),
    spoiled("epoch negative", setting(["epoch"], -1)),
    spoiled("epoch huge", setting(["epoch"], 2**60)),
    spoiled("epoch a float", setting(["epoch"], 1.0)),
    spoiled("floor negative", setting(["floor"], -1.0)),
    spoiled("servers a map", setting(["servers"], {})),
    spoiled("server a list", setting(["servers", 0], [])),
    spoiled("servers unsorted", swap_servers),
    spoiled("a peer twice", double_server),
    spoiled("peer id with a space", setting(["servers", 0, "peer_id"], "a b")),
    spoiled("peer id with an escape", setting(["servers", 0, "peer_id"], "a\x1b[2J")),
    spoiled("peer id too long", setting(["servers", 0, "peer_id"], "a" * 129)),
    spoiled("span outside", setting([mover, "target"], [3, 5])),
    spoiled("span reversed", setting([mover, "target"], [4, 2])),
    spoiled("span empty", setting([mover, "target"], [2, 2])),
    spoiled("span negative", setting([mover, "target"], [-2, 2])),
    spoiled("span of three", setting([mover, "target"], [0, 1, 2])),
    spoiled("span of floats", setting([mover, "target"], [2.0, 4.0])),
    spoiled("span a map", setting([mover, "target"], {"start": 2})),
    spoiled("another target", setting([mover, "target"], [1, 3])),
    spoiled("no target", setting([mover, "target"], ...)),
    spoiled("throughput negative", setting(["servers", 0, "throughput"], -1.0)),
    spoiled("throughput null", setting(["servers", 0, "throughput"], None)),
    spoiled("movable 1", setting(["servers", 0, "movable"], 1)),
    spoiled("mover not movable", setting([mover, "movable"], False)),
    spoiled("mover with a reason against", setting([mover, "why_not"], "pinned")),
    spoiled("state", setting(["servers", 0, "state"], "offline")),
    spoiled("state a list", setting(["servers", 0, "state"], ["online"])),
    spoiled("name a number", setting(["servers", 0, "public_name"], 5)),
    spoiled("name too long", setting(["servers", 0, "public_name"], "x" * 20_000)),
    spoiled("loads nothing", setting([mover, "loaded"], [])),
    spoiled("loads others", setting([mover, "loaded"], [0, 1])),
    spoiled("loads outside", setting([mover, "loaded"], [2, 4])),
    spoiled("loads flags", loaded_as_flags),
    spoiled("drops nothing", setting([mover, "dropped"], [])),
    spoiled("keeps more", setting([mover, "kept"], 2)),
    spoiled("mover without a wave", setting([mover, "wave"], None)),
    spoiled("mover in a wave that is not there", setting([mover, "wave"], 1)),
    spoiled("stayer in a wave", setting([stayer, "wave"], 0)),
    spoiled("stayer waits", setting([stayer, "after"], ["a"])),
    spoiled("after itself", after_itself),
    spoiled("after a stayer", after_a_stayer),
    spoiled("after a peer twice", setting([mover, "after"], ["a", "a"])),
    spoiled("waves a map", setting(["waves"], {})),
    spoiled("no waves", setting(["waves"], [])),
    spoiled("an empty wave", setting(["waves", 0, "moves"], [])),
    spoiled("a move in two waves", two_waves),
    spoiled("a wave of another", wave_of_another),
    spoiled("a wave with a stranger", wave_with_a_stranger),
    spoiled("a wave with a stayer", wave_with_a_stayer),
    spoiled("a wave's seconds", setting(["waves", 0, "seconds"], -1.0)),
    spoiled("before", setting(["before"], None)),
    spoiled("after of other blocks", setting(["after", "throughput"], [1.0])),
    spoiled("more holes than blocks", setting(["after", "holes"], 5)),
    spoiled("bottleneck outside", setting(["after", "bottleneck_blocks"], [4])),
    spoiled("no settings", setting(["solve"], {})),
    spoiled("told a map", setting(["solve", "settings", "spans"], {})),
    spoiled("told without a span", setting(["solve", "settings", "spans"], [["a", None]])),
    spoiled("told outside", setting(["solve", "settings", "spans"], [["a", [0, 9]]])),
]


@pytest.mark.parametrize("change", SPOILED)
def test_what_contradicts_itself_or_was_changed_is_refused_in_one_line(change, write):
    fields = document()
    change(fields)
    path = write(json.dumps(fields))
    with pytest.raises(InputInvalid) as caught:
        load_plan(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a plan to publish: ")
    assert message.isprintable()
    assert len(message) < len(str(path)) + 300


def test_an_edited_target_is_refused_even_if_all_else_fits(write):
    fields = document()
    server = mover(fields)
    server.update(target=[1, 3], loaded=[2], dropped=[0], kept=1)
    with pytest.raises(InputInvalid, match="plan_id is not the id of what it asks for"):
        load_plan(write(json.dumps(fields)))
    assert read_plan(identified(fields)).moves[0].target == Span(1, 3)
    with pytest.raises(InputInvalid, match=r"after\.throughput of block 1 is 20\.0, and should be 30\.0"):
        load_plan(write(json.dumps(identified(fields))))


def test_waves_in_order():
    """b moves after a: by hand, since two waves need two moves."""
    fields = document()
    a, b, c, _ = fields["servers"]
    for index, server in enumerate((a, b)):
        server.update(target=[2, 4], loaded=[2, 3], dropped=[0, 1], kept=0, wave=index, after=[])
    c.update(target=c["current"], loaded=[], dropped=[], kept=2, wave=None)
    b["after"] = ["a"]
    fields["waves"] = [{"moves": [peer], "min_throughput_during": 1.0, "seconds": 1.0} for peer in "ab"]
    assert [server.after for server in read_plan(identified(fields)).moves] == [(), ("a",)]
    a["after"], b["after"] = ["b"], []
    with pytest.raises(Malformed, match="a waits for b, which moves in no earlier wave"):
        read_plan(identified(fields))


EDITED = [
    (setting(["valid_until"], NOW + 86400.0), "valid_until is 1700086400.0, and should be 1700003600.0"),
    (setting(["created_at"], NOW + 60.0), "valid_until is 1700003600.0, and should be 1700003660.0"),
    (setting(["epoch"], 7), "epoch is 7, and should be 0"),
    (setting(["after", "min_throughput"], 900.0), "after.min_throughput is 900.0, and should be 15.0"),
    (setting(["after", "holes"], 1), "after.holes is 1, and should be 0"),
    (setting(["after", "bottleneck_blocks"], [0]), "after.bottleneck_blocks is [0], and should be [2, 3]"),
    (setting(["after", "throughput", 1], 25.0), "after.throughput of block 1 is 25.0, and should be 20.0"),
    (setting(["before", "min_throughput"], 1.0), "before.min_throughput is 1.0, and should be 5.0"),
    (setting(["before", "throughput", 3], 1.0), "before.throughput of block 3 is 1.0, and should be 5.0"),
    (setting(["before", "holes"], 1), "before.holes is 1, and should be 0"),
    (setting([stayer, "throughput"], 11.0), ", and should be "),
    (setting([stayer, "reload_seconds"], 1.0), " is 1.0, and should be 0.0"),
    (setting([mover, "reload_seconds"], 1.0), "waves[0].seconds is 56.0, and should be 1.0"),
    (setting(["waves", 0, "seconds"], 9.0), "waves[0].seconds is 9.0, and should be 56.0"),
    (setting(["waves", 0, "min_throughput_during"], 9.0), "min_throughput_during is 9.0, and should be 5.0"),
    (setting(["objective", "value"], 99.0), "objective.value is 99.0, and should be 14.9"),
    (setting(["objective", "min_throughput"], 99.0), "objective.min_throughput is 99.0, and should be 15.0"),
    (setting(["objective", "reload_penalty"], 0.0), "objective.reload_penalty is 0.0, and should be 0.03"),
    (setting(["objective", "bound"], 1.0), "objective.bound is 1.0, below the value 14.9"),
    (setting(["objective", "bound"], 1e6), ", and should be 0.99"),
    (setting(["objective", "bound_by"], "a guess"), "objective.bound_by 'a guess' is none of averaging, sweep"),
    (setting(["objective", "bound_by"], ["sweep"]), "objective.bound_by a value of type list is none of"),
    (setting(["before", "hops"], 1), "before.hops is 1, and should be 2"),
    (setting(["after", "hops"], None), "after.hops is null, and should be 2"),
    (setting(["objective", "gap"], "none"), "objective.gap 'none' is not a number from 0 to inf"),
    (setting(["objective", "value"], "\x1b[2J"), r"objective.value '\x1b[2J' is not a number"),
    (setting(["objective"], []), "objective is a value of type list, not a map"),
    (setting(["objective"], {}), "'value' of objective is missing"),
    (setting(["baseline"], ...), "'baseline' is missing"),
    (setting(["status"], "nothing_to_do"), "status is 'nothing_to_do', and 1 servers move"),
    (setting(["surprise"], 1), "'surprise' is a field that no plan has"),
    (setting(["servers", 0, "trusted"], True), "'trusted' of servers is a field that no plan has"),
    (setting(["servers", 0, "offline"], [0]), ", and should be "),
    (setting(["servers", 0, "offline"], [3]), "offline is not an ascending list of blocks in current"),
    (setting(["before", "note"], ""), "'note' of before is a field that no plan has"),
    (setting(["solve", "stages", 0, "x"], 0), "'x' of solve.stages is a field that no plan has"),
    (setting(["solve", "settings", "x"], 0), "'x' of solve.settings is a field that no plan has"),
    (setting(["solve", "settings", "min_gain", "x"], 0), "'x' of solve.settings.min_gain is a field that no plan has"),
]


@pytest.mark.parametrize(("change", "said"), EDITED, ids=[said[:30] for _, said in EDITED])
def test_an_edited_figure_is_named_with_what_it_should_be(change, said, write):
    fields = document()
    change(fields)
    with pytest.raises(InputInvalid) as caught:
        load_plan(write(json.dumps(identified(fields))))
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"<html>", "line 1, column 1: this is not JSON"),
        (json.dumps(document())[:-20].encode(), "this is not JSON .*was it cut short"),
        (json.dumps(document()).encode() + b"{}", "this is not JSON .Extra data"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": -Infinity}', "-Infinity is not a number in JSON"),
        (b'{"a": 1e999}', "too large for a double"),
        (b'{"a": ' + b"9" * 31 + b"}", "over 30 digits"),
        (b'{"a": 1, "\\u0061": 2}', "the name 'a' stands twice"),
        (
            json.dumps(document()).replace('"floor":', '"floor": 9.0, "floor":').encode(),
            "the name 'floor' stands twice",
        ),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" + b"[]," * 5_000_001 + b"[]]", "over 5,000,000 JSON values"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_not_json_with_one_meaning(content, message, write):
    path = write(content)
    with pytest.raises(InputUnreadable, match=message) as caught:
        load_plan(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "5", "null", '"plan"'])
def test_json_that_is_no_map(content, write):
    with pytest.raises(InputInvalid, match=r"the plan is .* not a map"):
        load_plan(write(content))


@pytest.mark.parametrize("depth", [50, 400, 900, 5000])
@pytest.mark.parametrize("way", ["prefix", "servers", "solve", "unknown"])
def test_deep_nesting_anywhere_is_a_clear_error_or_ignored(depth, way, write):
    text = json.dumps(document(**{way: "DEEP"})).replace('"DEEP"', "[" * depth + "]" * depth)
    found = said(lambda: load_plan(write(text)), PlanSwarmError)
    assert found is None or len(found) < 400
    assert found is not None or way == "unknown"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputUnreadable, match=r"nowhere\.json does not exist"):
        load_plan(tmp_path / "nowhere.json")
    with pytest.raises(InputUnreadable, match="is a directory"):
        load_plan(tmp_path)
    with pytest.raises(InputUnreadable, match="cannot be read"):
        load_plan("a\0b")
    with pytest.raises(InputUnreadable, match=r"evil\\x1b\[2J does not exist"):
        load_plan("evil\x1b[2J")


def test_a_source_without_an_end_is_refused_with_bounded_memory():
    with pytest.raises(InputUnreadable, match="is not a plain file"):
        load_plan("/dev/zero")
    tracemalloc.start()
    try:
        with open("/dev/zero") as handed, pytest.raises(InputUnreadable, match="has over 32 MiB"):
            load_plan(f"/dev/fd/{handed.fileno()}")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * MAX_BYTES


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner))


@given(st.data())
def test_any_value_anywhere_is_read_or_refused(data):
    """Never another exception, however a document was changed."""
    fields = document()
    place = fields
    for _ in range(data.draw(st.integers(0, 3))):
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key]:
            break
        place = place[key]
    key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(VALUES)
    assert "\n" not in (said(lambda: read_plan(fields), Malformed) or "")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_json_or_refused(data):
    assert "\n" not in (said(lambda: parse_strict(data), NotStrictJson) or "")


@given(VALUES)
def test_strict_json_reads_what_json_writes(value):
    text = json.dumps(value)
    if "NaN" in text or "Infinity" in text or any(len(digits) > 25 for digits in text.split()):
        return
    assert parse_strict(text.encode()) == value


def test_reading_a_plan_imports_neither_solvers_nor_networks(write):
    path = write(json.dumps(document()))
    code = (
        f"import sys; from planner.plan_file import load_plan; load_plan({os.fspath(path)!r}); "
        "print([m for m in ('ortools', 'torch', 'hivemind', 'petals', 'cryptography', 'msgpack') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
