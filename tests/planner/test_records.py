from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.records import (
    AgentRecord,
    Record,
    RecordState,
    Rejection,
    read_agent,
    read_record,
)
from planner.state import Agent
from solver.problem import Span

INF, NAN = math.inf, math.nan


def raw(value=(2, 100.0), *, uid="m.3", peer_id="peer", expiration=1000.0):
    return {"uid": uid, "peer_id": peer_id, "expiration": expiration, "value": value}


def read(value=(2, 100.0), **fields):
    return read_record(raw(value, **fields), "m", 10)


def reason_of(record):
    assert isinstance(record, Rejection), record
    return record.reason


def test_a_full_record():
    info = {
        "start_block": 2,
        "end_block": 6,
        "public_name": "host",
        "version": "2.2.0",
        "network_rps": 700.0,
        "forward_rps": 1323938.5,
        "inference_rps": 250.0,
        "adapters": ["a/b"],
        "torch_dtype": "float16",
        "quant_type": "nf4",
        "using_relay": False,
        "cache_tokens_left": 4,
        "next_pings": {"x": 0.1},
    }
    assert read([2, 500.5, info]) == Record(
        block=3,
        peer_id="peer",
        expiration=1000.0,
        state=RecordState.ONLINE,
        throughput=500.5,
        span=Span(2, 6),
        public_name="host",
        version="2.2.0",
        torch_dtype="float16",
        quant_type="nf4",
        adapters=("a/b",),
        using_relay=False,
        forward_rps=1323938.5,
        network_rps=700.0,
    )


@pytest.mark.parametrize("kind", [list, tuple])
def test_older_forms(kind):
    assert read(kind((1, 5.0))) == Record(3, "peer", 1000.0, RecordState.JOINING, 5.0)
    assert read(kind((2, 5.0, kind(("a", "b"))))) == Record(
        3, "peer", 1000.0, RecordState.ONLINE, 5.0, adapters=("a", "b")
    )


def test_an_integer_throughput_and_expiration_are_numbers():
    record = read((2, 100), expiration=1000)
    assert record == Record(3, "peer", 1000.0, RecordState.ONLINE, 100.0)
    assert isinstance(record.throughput, float)
    assert str(read((2, -0.0)).throughput) == "0.0"


def test_fields_that_are_not_used_are_ignored_whatever_they_hold():
    info = {"next_pings": {"x": INF}, "cache_tokens_left": -1, "inference_rps": NAN, "unknown": [[]], 7: 8}
    assert read((2, 1.0, info)) == read((2, 1.0))


@pytest.mark.parametrize(
    "throughput", [NAN, INF, -INF, -1, -1e-9, 10_000_001, 1e7 + 1, 10**400, "5", None, True, [], {}, b"5", 1j]
)
def test_bad_throughput_is_rejected(throughput):
    assert reason_of(read((2, throughput))).startswith("throughput ")


@pytest.mark.parametrize("state", [3, -1, 2.0, "2", "online", None, True, [2], 10**400, NAN])
def test_unknown_states_are_rejected(state):
    assert reason_of(read((state, 1.0))).startswith("unknown state ")


@pytest.mark.parametrize("value", [None, 5, "2", b"", {}, [], [2], [2, 1.0, {}, {}], {"state": 2}])
def test_other_shapes_are_rejected(value):
    assert reason_of(read(value)).startswith("its value ")


@pytest.mark.parametrize("info", [None, 5, "abc", True])
def test_info_of_another_type_is_rejected(info):
    assert reason_of(read((2, 1.0, info))).startswith("its info ")


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 11), (-1, 5), (5, 2), (3, 3), (0, None), (None, 5), (True, 5), (0.0, 5), ("0", 5), (0, 10**400), ([], {})],
)
def test_bad_stated_spans_are_rejected(start, end):
    assert isinstance(read((2, 1.0, {"start_block": start, "end_block": end})), Rejection)


def test_a_block_outside_the_span_that_it_states():
    info = {"start_block": 4, "end_block": 6}
    assert "outside the span 4:6" in reason_of(read((2, 1.0, info)))
    assert "outside the span 4:6" in reason_of(read((1, 1.0, info)))
    # A server that changes its span takes the dropped blocks offline with the range that it keeps.
    assert read((0, 1.0, info)).span == Span(4, 6)


@pytest.mark.parametrize("name", ["public_name", "version", "torch_dtype", "quant_type"])
def test_texts(name):
    assert getattr(read((2, 1.0, {name: "x" * 16_384})), name) == "x" * 16_384
    assert getattr(read((2, 1.0, {name: None})), name) is None
    assert name in reason_of(read((2, 1.0, {name: "x" * 16_385})))
    assert name in reason_of(read((2, 1.0, {name: 5})))


def test_adapters():
    assert read((2, 1.0, {"adapters": None})).adapters == ()
    assert len(read((2, 1.0, {"adapters": ["x"] * 1000})).adapters) == 1000
    for bad in (["x"] * 1001, ["x" * 16_385], "abc", [5], {"a": 1}):
        assert "adapter" in reason_of(read((2, 1.0, {"adapters": bad})))


@pytest.mark.parametrize("name", ["forward_rps", "network_rps"])
def test_partial_rps_may_be_large_or_missing_but_not_absurd(name):
    assert getattr(read((2, 1.0, {name: 1e12})), name) == 1e12
    assert getattr(read((2, 1.0, {name: None})), name) is None
    for bad in (NAN, INF, -1, 1.1e12, "5", True):
        assert name in reason_of(read((2, 1.0, {name: bad})))


def test_using_relay_is_a_flag():
    assert read((2, 1.0, {"using_relay": True})).using_relay is True
    assert "using_relay" in reason_of(read((2, 1.0, {"using_relay": "yes"})))


@pytest.mark.parametrize(
    "uid", ["m.10", "m.-1", "m.+1", "m. 1", "m.01", "m.1_0", "m.٣", "m.", "m", "", None, 3, "m.1e0", "m." + "9" * 5000]
)
def test_bad_uids_are_rejected(uid):
    rejection = read(uid=uid)
    assert reason_of(rejection).startswith("uid ")
    assert rejection.peer_id == "peer"
    assert rejection.block is None


@pytest.mark.parametrize(
    "peer_id", [None, 5, "", "a b", "a\n", "a\x1b[0m", "a\u200b", "a\u202e", "\ud800", "x" * 129, b"a"]
)
def test_bad_peer_ids_are_rejected(peer_id):
    rejection = read(peer_id=peer_id)
    assert reason_of(rejection).startswith("peer id ")
    assert rejection.peer_id is None


@pytest.mark.parametrize("expiration", [NAN, INF, -INF, None, "5", True, 10**400])
def test_bad_expirations_are_rejected(expiration):
    assert reason_of(read(expiration=expiration)).startswith("expiration ")


@pytest.mark.parametrize("record", [None, 5, "x", [], True])
def test_what_is_no_map_is_rejected(record):
    assert isinstance(read_record(record, "m", 10), Rejection)
    assert isinstance(read_agent(record, 10), Rejection)


def agent(**value):
    return read_agent({"peer_id": "peer", "expiration": 1000.0, "value": value}, 10)


def test_a_full_agent_record():
    record = agent(
        version=1,
        state="serving",
        span=[0, 4],
        capacity=5,
        throughput=7,
        throughput_by_length=[9.0, 8],
        seconds_per_block=28.0,
        seconds_per_cached_block=7.0,
        cached_blocks=[3, 4, 3],
        pinned=True,
        public_name="host",
        using_relay=False,
        adapters=["a"],
    )
    assert record == AgentRecord(
        "peer",
        1000.0,
        Agent("serving", Span(0, 4), 5, 7.0, (9.0, 8.0), 28.0, 7.0, frozenset({3, 4}), True, "host", False, ("a",)),
    )


def test_an_agents_fields_may_be_missing_or_null():
    assert agent() == AgentRecord("peer", 1000.0, Agent("serving"))
    names = (
        "version state span capacity throughput throughput_by_length seconds_per_block cached_blocks pinned adapters"
    )
    assert agent(**dict.fromkeys(names.split())) == agent()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 2),
        ("version", True),
        ("version", "1"),
        ("state", 5),
        ("span", [0, 11]),
        ("span", [4, 4]),
        ("span", [0]),
        ("span", "0:4"),
        ("capacity", -1),
        ("capacity", 2.0),
        ("capacity", 10**9),
        ("throughput", NAN),
        ("throughput_by_length", [1.0, -1.0]),
        ("throughput_by_length", [0.0] * 100_001),
        ("throughput_by_length", {"1": 5.0}),
        ("seconds_per_block", -1),
        ("seconds_per_cached_block", INF),
        ("cached_blocks", [10]),
        ("cached_blocks", [-1]),
        ("cached_blocks", [True]),
        ("cached_blocks", [1.0]),
        ("pinned", "yes"),
        ("public_name", "x" * 16_385),
        ("using_relay", 1),
        ("adapters", [None]),
    ],
)
def test_bad_agents_are_rejected(name, value):
    rejection = agent(**{name: value})
    assert isinstance(rejection, Rejection)
    assert rejection.peer_id == "peer"
    assert rejection.what == "agent's record"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["start_block", "end_block", "public_name", "adapters", "using_relay", "forward_rps", "span", "capacity", "state"]
)


@given(JSON, JSON)
def test_arbitrary_json_never_raises(record, value):
    for candidate in (record, raw(value), raw([2, 1.0, value]), raw(uid=value), raw(peer_id=value)):
        assert isinstance(read_record(candidate, "m", 10), (Record, Rejection))
        assert isinstance(read_agent(candidate, 10), (AgentRecord, Rejection))


@given(st.dictionaries(NAMES, JSON))
def test_arbitrary_fields_never_raise(info):
    assert isinstance(read((2, 1.0, info)), (Record, Rejection))
    assert isinstance(agent(**info), (AgentRecord, Rejection))
