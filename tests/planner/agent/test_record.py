from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.agent.record import Intent, Report, read_intent, read_intents
from planner.decode import MAX_LIFETIME, decode
from planner.records import AgentRecord, read_agent
from planner.state import Agent, ServerState
from planner.status import _said_why
from solver.problem import Span

NOW = 1_700_000_000.0
INTENT = Intent("ab" * 16, 7, (Span(0, 2), Span(6, 8)), NOW - 5)
FULL = Report(
    state="waiting",
    span=Span(0, 8),
    capacity=8,
    throughput=12.5,
    throughput_by_length=(20.0, 15.0),
    seconds_per_block=3.5,
    seconds_per_cached_block=1.25,
    cached_blocks=frozenset({3, 1}),
    pinned=True,
    public_name="me",
    using_relay=False,
    adapters=("x/y",),
    why="block 3 would have no server",
    progress=(3, 7),
    intent=INTENT,
)


def raw(peer_id, value, expiration=NOW + 100):
    return {"peer_id": peer_id, "expiration": expiration, "value": value}


def intents(*agents, num_blocks=8):
    return read_intents(agents, num_blocks, NOW)


def test_the_record_is_what_the_design_says():
    assert FULL.to_value() == {
        "version": 1,
        "state": "waiting",
        "span": [0, 8],
        "capacity": 8,
        "throughput": 12.5,
        "throughput_by_length": [20.0, 15.0],
        "seconds_per_block": 3.5,
        "seconds_per_cached_block": 1.25,
        "cached_blocks": [1, 3],
        "pinned": True,
        "public_name": "me",
        "using_relay": False,
        "adapters": ["x/y"],
        "why": "block 3 would have no server",
        "progress": [3, 7],
        "intent": {"plan_id": "ab" * 16, "epoch": 7, "blocks": [[0, 2], [6, 8]], "since": NOW - 5},
    }
    json.dumps(FULL.to_value(), allow_nan=False)


def test_the_planners_decoder_reads_it_back():
    record = read_agent(raw("a", FULL.to_value()), 8)
    agent = Agent("waiting", Span(0, 8), 8, 12.5, (20.0, 15.0), 3.5, 1.25, frozenset({1, 3}), True, "me", False)
    assert record == AgentRecord("a", NOW + 100, replace(agent, adapters=("x/y",)))


@pytest.mark.parametrize("word", ["serving", "waiting", "draining", "loading", "failed"])
def test_every_word_passes_the_decoder_beside_block_records(word):
    value = Report(word, Span(2, 4), capacity=4, why="why not").to_value()
    block = {"uid": "m.2", **raw("a", [2, 5.0, {"start_block": 2, "end_block": 4}])}
    (server,) = decode("m", 8, NOW, [block], [raw("a", value)]).servers
    assert server.agent is not None
    assert server.agent.state == word
    assert _said_why(value) == "why not"


def test_a_newcomers_record_alone_makes_it_a_server():
    value = Report("waiting", None, capacity=4, throughput=5.0, why="no plan yet").to_value()
    (server,) = decode("m", 8, NOW, [], [raw("a", value)]).servers
    assert (server.state, server.throughput) == (ServerState.WAITING, 5.0)


def test_progress_is_said_in_words_where_nothing_else_is():
    loading = Report("loading", Span(2, 4), progress=(3, 7))
    assert loading.to_value()["why"] == "3 of 7 blocks loaded"
    assert replace(loading, why="again").to_value()["why"] == "again"
    assert Report("serving", Span(2, 4)).to_value()["why"] == ""


def test_why_is_one_short_line():
    why = Report("failed", None, why="no\nspace\x1b[2J" + "x" * 1000).to_value()["why"]
    assert len(why) == 300
    assert why.startswith("no\\x0aspace\\x1b[2J")


@given(
    st.builds(
        Report,
        st.sampled_from(["serving", "waiting", "draining", "loading", "failed"]),
        st.none() | st.just(Span(2, 4)),
        capacity=st.none() | st.integers(),
        throughput=st.none() | st.floats(),
        throughput_by_length=st.none() | st.lists(st.floats(), max_size=8).map(tuple),
        seconds_per_block=st.none() | st.floats(),
        seconds_per_cached_block=st.none() | st.floats(),
        cached_blocks=st.frozensets(st.integers(0, 7)),
        public_name=st.none() | st.text(),
        adapters=st.lists(st.text(), max_size=3).map(tuple),
        why=st.text(),
        progress=st.none() | st.tuples(st.integers(0, 8), st.integers(0, 8)),
        intent=st.none() | st.just(INTENT),
    )
)
def test_no_figure_however_measured_makes_readers_drop_the_record(report):
    value = json.loads(json.dumps(report.to_value(), allow_nan=False))
    record = read_agent(raw("a", value), 8)
    assert isinstance(record, AgentRecord)
    good = report.throughput is not None and 0 <= report.throughput <= 1e7
    assert record.agent.throughput == (report.throughput if good else None)
    assert intents(raw("a", value)) == ({} if report.intent is None else {"a": INTENT})


# --- intents of others


def test_intents_are_read_by_peer():
    none = replace(FULL, intent=None).to_value()
    found = intents(raw("a", FULL.to_value()), raw("b", none), raw("c", FULL.to_value(), NOW - 2))
    assert found == {"a": INTENT, "c": INTENT}


def test_the_newest_record_of_a_peer_speaks_for_it():
    old, new = raw("a", FULL.to_value(), NOW + 50), raw("a", replace(FULL, intent=None).to_value(), NOW + 60)
    assert intents(old, new) == intents(new, old) == {}


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        raw("a", None),
        raw("a", "text"),
        raw("a", {}),
        raw("a b", FULL.to_value()),
        raw("x" * 129, FULL.to_value()),
        raw(7, FULL.to_value()),
        raw("a", FULL.to_value(), NOW - 4),
        raw("a", FULL.to_value(), NOW + MAX_LIFETIME + 1),
        raw("a", FULL.to_value(), math.nan),
        raw("a", FULL.to_value(), "soon"),
    ],
)
def test_records_that_do_not_count_have_no_intents(record):
    assert intents(record) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"plan_id": "AB" * 16},
        {"plan_id": "ab" * 15},
        {"plan_id": None},
        {"epoch": -1},
        {"epoch": 2**60},
        {"epoch": True},
        {"epoch": 7.0},
        {"blocks": []},
        {"blocks": [0, 2]},
        {"blocks": [[0, 2]] * 3},
        {"blocks": [[0, 2]] * 100_000},
        {"blocks": [[2, 0]]},
        {"blocks": [[0, 9]]},
        {"blocks": [[0, 2], None]},
        {"blocks": "0:2"},
        {"blocks": None},
        {"since": math.inf},
        {"since": math.nan},
        {"since": -1},
        {"since": None},
    ],
)
def test_an_intent_out_of_order_is_none(change):
    value = FULL.to_value()
    value["intent"].update(change)
    assert intents(raw("a", value)) == {}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_reading_never_raises(value):
    assert read_intent(value, 8) is None
    assert intents(value, raw("a", value), raw("a", {"intent": value}), raw(value, value, value)) == {}


def test_no_more_records_are_looked_at_than_a_key_may_have():
    flood = (raw(f"p{number}", FULL.to_value()) for number in range(20_000))
    assert len(read_intents(flood, 8, NOW)) == 10_000
