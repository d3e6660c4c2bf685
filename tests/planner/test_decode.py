from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.canonical import canonical_json
from planner.decode import MAX_HELD, MAX_LIFETIME, decode
from planner.errors import InputInvalid, NothingToPlan
from planner.notes import MAX_DROPPED_LINES
from planner.state import ServerState
from solver.problem import Span

REAL = json.loads((Path(__file__).parents[2] / "examples/llama-65b-hf.json").read_text())
NOW = 1000.0
OFFLINE, JOINING, ONLINE = 0, 1, 2


def record(block, peer="a", state=ONLINE, *, at=NOW + 120, rps=10.0, span=None, prefix="m", **info):
    if span is not None:
        info |= {"start_block": span[0], "end_block": span[1]}
    return {"uid": f"{prefix}.{block}", "peer_id": peer, "expiration": at, "value": [state, rps, info]}


def records(blocks, *args, **kwargs):
    return [record(block, *args, **kwargs) for block in blocks]


def agent(peer="a", *, at=NOW + 120, **value):
    return {"peer_id": peer, "expiration": at, "value": value}


def read(raw, agents=(), num_blocks=40):
    return decode("m", num_blocks, NOW, raw, agents)


def only(raw, agents=(), num_blocks=40):
    (server,) = read(raw, agents, num_blocks).servers
    return server


# Rule 1: the newest record speaks, and old or expired ones do not.


def test_a_server_that_states_its_span():
    server = only(records(range(5, 9), span=(5, 9), rps=7, public_name="host", forward_rps=3, network_rps=2.0))
    assert (server.state, server.span, server.seen) == (ServerState.ONLINE, Span(5, 9), Span(5, 9))
    assert server.throughput == 7.0
    assert server.serving == server.held == frozenset(range(5, 9))
    assert (server.public_name, server.forward_rps, server.network_rps) == ("host", 3.0, 2.0)
    assert not server.uncertain


def test_a_server_that_moved_holds_its_new_span_only():
    old = records(range(0, 20), at=NOW + 30, span=(0, 20), rps=1)
    new = records(range(10, 30), at=NOW + 120, span=(10, 30), rps=2)
    server = only(old + new)
    assert (server.span, server.throughput) == (Span(10, 30), 2.0)


def test_the_same_without_stated_spans():
    old = records(range(0, 20), at=NOW + 30, rps=1)
    new = records(range(10, 30), at=NOW + 120, rps=2)
    server = only(old + new)
    assert (server.span, server.throughput, server.uncertain) == (Span(10, 30), 2.0, False)


@pytest.mark.parametrize(("expiration", "counts"), [(NOW - 3, True), (NOW - 3.001, False), (NOW - 1, True)])
def test_a_record_counts_up_to_three_seconds_after_it_expired(expiration, counts):
    state = read([record(0, "a", at=expiration), record(1, "b")])
    assert ("a" in [server.peer_id for server in state.servers]) == counts
    assert state.warnings == ()


@pytest.mark.parametrize(("lifetime", "counts"), [(MAX_LIFETIME, True), (MAX_LIFETIME + 0.001, False), (1e9, False)])
def test_a_record_that_lives_for_years_has_no_word(lifetime, counts):
    state = read([record(0, rps=7, span=(0, 3)), record(1, at=NOW + lifetime, rps=9, span=(0, 9))])
    (server,) = state.servers
    assert server.span == (Span(0, 9) if counts else Span(0, 3))
    assert [warning.partition(": it")[0] for warning in state.warnings] == (
        [] if counts else ["a: dropped its record of block 1"]
    )


def test_an_agents_record_that_lives_for_years_has_no_word():
    (warning,) = read([record(0)], [agent(at=NOW + MAX_LIFETIME + 1, capacity=30)]).warnings
    assert warning.startswith("a: dropped its agent's record: it expires over 1 h after the reading")


def test_a_peer_that_both_expired_and_is_alive_counts_with_what_is_alive():
    state = read(records(range(0, 20), at=NOW - 50, rps=1) + records(range(30, 34), rps=2))
    assert [(server.span, server.throughput) for server in state.servers] == [(Span(30, 34), 2.0)]
    assert state.warnings == ()


def test_blocks_taken_offline_since_are_not_held():
    server = only(records([0, 1], state=OFFLINE, at=NOW + 121, span=(2, 6)) + records(range(2, 6), span=(0, 6)))
    assert server.span == Span(0, 6)
    assert server.offline == {0, 1}
    assert server.held == server.serving == {2, 3, 4, 5}


@pytest.mark.parametrize("at", [NOW + 120, NOW + 119])
def test_an_offline_record_that_is_not_newer_takes_nothing_away(at):
    server = only([record(0, state=OFFLINE, at=at), *records([1, 2], span=(0, 3))])
    assert server.offline == frozenset()


def test_peers_with_nothing_but_offline_records_are_gone():
    gone = records(range(4), "a", OFFLINE)
    half = [*records(range(4), "b", OFFLINE, at=NOW + 121), record(0, "b", span=(0, 4), at=NOW + 60)]
    alive = records(range(4), "c")
    assert [server.peer_id for server in read(gone + half[:4] + alive).servers] == ["c"]
    # Block 0 has an older ONLINE record that another replica still gave: the whole span is offline all the same.
    assert [server.peer_id for server in read(gone + half + alive).servers] == ["c"]


def test_the_same_peer_and_block_twice():
    twice = [record(0, rps=1, at=NOW + 60), record(0, rps=2, at=NOW + 61)]
    assert read(twice).servers[0].throughput == 2.0
    assert read(twice).warnings == ()
    assert read([record(0), record(0)]).warnings == ()


def test_the_same_peer_and_block_twice_with_equal_expirations():
    twice = [record(0, rps=1), record(0, rps=2), record(0, state=OFFLINE)]
    states = [read(order) for order in (twice, twice[::-1])]
    assert states[0] == states[1]
    (warning,) = states[0].warnings
    assert warning.startswith("a: it has different records of block 0 ")
    # Of a past moment nothing is said.
    assert read([*twice, record(0, at=NOW + 121)]).warnings == ()


def test_newest_records_that_contradict_each_other():
    state = read([record(0, span=(0, 4)), record(9, span=(9, 12))])
    assert state.servers[0].span == Span(0, 4)
    (warning,) = state.warnings
    assert warning.startswith("a: its newest records differ ")


# Rule 2: keys flap.


def test_one_record_with_a_stated_span_is_enough():
    state = read([record(25, span=(20, 40))])
    assert state.servers[0].span == Span(20, 40)
    assert state.warnings == ()


def test_keys_missing_inside_an_unstated_span_make_it_uncertain():
    state = read(records([10, 11, 14, 15, 17]))
    (server,) = state.servers
    assert (server.seen, server.span, server.uncertain) == (Span(10, 18), Span(8, 20), True)
    assert server.serving == frozenset(range(8, 20))
    (warning,) = state.warnings
    assert warning.startswith("a: keys of its span 10:18 are missing")
    assert "--span a=START:END" in warning


def test_the_stretch_stays_inside_the_model():
    server = only(records([1, 8]), num_blocks=10)
    assert (server.seen, server.span, server.uncertain) == (Span(1, 9), Span(0, 10), True)


def test_records_older_than_one_refresh_do_not_extend_an_unstated_span():
    at = NOW + 120
    assert only([*records([3, 4], at=at), record(5, at=at - 60)]).span == Span(3, 6)
    assert only([*records([3, 4], at=at), record(5, at=at - 60.1)]).span == Span(3, 5)
    assert only([*records([3, 5], at=at), record(4, at=at - 61)]).uncertain


def test_a_block_taken_offline_is_not_missing():
    server = only([*records([3, 4, 6, 7]), record(5, state=OFFLINE, at=NOW + 125)])
    assert (server.span, server.uncertain, server.offline) == (Span(3, 8), False, {5})


def test_offline_blocks_beside_an_unstated_span_do_not_extend_it():
    assert only(records([3, 4]) + records([5, 6], state=OFFLINE, at=NOW + 125)).span == Span(3, 5)


def test_the_truth_from_an_operator_ends_the_doubt():
    state = read(records([10, 13])).with_spans({"a": Span(10, 14)})
    assert not state.servers[0].uncertain
    assert state.warnings == ()


# Rule 3: names identify nobody.


def test_servers_with_one_public_name_are_several():
    raw = records([0, 1], "a", public_name="host") + records([5, 6], "b", public_name="host")
    assert [(server.peer_id, server.span) for server in read(raw).servers] == [("a", Span(0, 2)), ("b", Span(5, 7))]


# Rule 4: a bad record is dropped, and named.


def test_a_bad_record_is_dropped_with_a_warning_and_the_rest_is_read():
    good = records([0, 1, 2], "a")
    bad = [record(3, "a", rps=float("nan")), record(4, "b", span=(9, 4)), {"uid": "m.5", "peer_id": "b\x1b[2J"}, None]
    state = read(good + bad)
    assert state.servers == read(good).servers
    assert state.warnings == (
        "a: dropped its record of block 3: throughput nan is not a number from 0 to 10000000",
        "b: dropped its record of block 4: its stated span 9:4 is not a span inside the model's 0:40",
        r"dropped a record: peer id 'b\x1b[2J' is not one word of 1 to 128 printable characters",
        "dropped a record: the record is null, not a map",
    )


def test_records_dropped_for_one_reason_share_a_line():
    state = read(records([0, 1], "a") + records(range(2, 9), "a", rps=-1))
    assert state.warnings == (
        "a: dropped its records of blocks 2, 3, 4, 5, 6 and 2 more: throughput -1 is not a number from 0 to 10000000",
    )


def test_a_flood_of_bad_records_gives_few_lines():
    bad = [record(0, f"bad{index:04}", rps=-1) for index in range(500)]
    state = read([record(0), *bad])
    assert len(state.warnings) == MAX_DROPPED_LINES + 1
    assert state.warnings[-1] == "... and 480 more dropped records"
    assert state.warnings[0].startswith("bad0000: ")


def test_warnings_are_single_lines_without_escapes():
    value = [2, 1.0, {"public_name": 5}]
    raw = [{"uid": uid, "peer_id": "b", "expiration": NOW, "value": value} for uid in ("\n", "m.\x1b", "x\u202e.1")]
    for warning in read([record(0), *raw]).warnings:
        assert warning.isprintable()


def test_records_of_other_models_are_counted_once():
    state = read([record(0), *records(range(3), "b", prefix="other")])
    assert [server.peer_id for server in state.servers] == ["a"]
    assert state.warnings == ("ignored 3 records of other models than m",)


# Rule 5: JOINING.


def test_a_joining_server_has_its_place_and_serves_nothing_yet():
    server = only(records(range(4), state=JOINING, span=(0, 4)))
    assert (server.state, server.span) == (ServerState.JOINING, Span(0, 4))
    assert server.held == frozenset(range(4))
    assert server.serving == frozenset()


def test_a_server_in_the_middle_of_a_change_serves_what_it_keeps():
    # From 0:20 to 10:30: 10:20 is kept, 20:30 is being loaded, 0:10 was dropped.
    raw = (
        records(range(0, 10), state=OFFLINE, span=(10, 20))
        + records(range(10, 20), span=(10, 20))
        + records(range(20, 30), state=JOINING, span=(10, 30))
    )
    server = only(raw)
    assert (server.state, server.span) == (ServerState.JOINING, Span(10, 30))
    assert server.serving == frozenset(range(10, 20))
    assert read(raw).warnings == ()


def test_what_a_joining_server_serves_without_stated_spans():
    server = only(records([0, 1], at=NOW + 119) + records([2, 3], state=JOINING))
    assert (server.state, server.span, server.serving) == (ServerState.JOINING, Span(0, 4), {0, 1})


def test_records_from_before_a_restart_serve_nothing():
    old = records(range(0, 20), at=NOW + 10, span=(0, 20))
    server = only(old + records(range(10, 30), state=JOINING, span=(10, 30)))
    assert (server.state, server.span, server.serving) == (ServerState.JOINING, Span(10, 30), frozenset())


def test_a_server_that_has_joined_is_online():
    old = records(range(0, 4), state=JOINING, at=NOW + 60, span=(0, 4))
    assert only([*old[1:], record(0, at=NOW + 61, span=(0, 4))]).state is ServerState.ONLINE


# Rule 6: older forms.


def test_older_forms_are_read():
    raw = [
        {"uid": "m.0", "peer_id": peer, "expiration": NOW, "value": value}
        for peer, value in [("a", [2, 1.0]), ("b", (2, 2.0, ("x/y",))), ("c", [2, 3])]
    ]
    assert [(s.peer_id, s.throughput, s.adapters) for s in read(raw).servers] == [
        ("a", 1.0, ()),
        ("b", 2.0, ("x/y",)),
        ("c", 3.0, ()),
    ]


# Agents.


def test_an_agent_joins_its_server():
    state = read(records([0, 1]), [agent(state="serving", span=[0, 2], capacity=8, pinned=True)])
    server = state.servers[0]
    assert server.agent is not None
    assert (server.agent.capacity, server.agent.pinned, server.capacity(40)) == (8, True, 8)
    assert state.warnings == ()


def test_the_newest_live_record_of_an_agent_counts():
    agents = [agent(capacity=5, at=NOW + 1), agent(capacity=6, at=NOW + 2), agent(capacity=7, at=NOW - 4)]
    assert only(records([0]), agents).agent.capacity == 6
    assert only(records([0]), agents[2:]).agent is None


def test_different_agents_records_of_one_moment():
    agents = [agent(capacity=5, cached_blocks=[1]), agent(capacity=5, cached_blocks=[2]), agent(capacity=5)]
    states = [read(records([0]), order) for order in (agents, agents[::-1], agents[1:] + agents[:1])]
    assert states[0] == states[1] == states[2]
    assert states[0].warnings[0].startswith("a: it has different agent's records ")


def test_a_capacity_below_the_present_length():
    state = read(records(range(5)), [agent(capacity=3)])
    assert state.servers[0].capacity(40) == 5
    assert state.warnings == ("a: its agent announces a capacity of 3, but it holds 5 blocks; these count",)
    # The stretch of an uncertain span is the reader's doubt, not the server's length.
    assert len(read(records([0, 2, 3]), [agent(capacity=4)], num_blocks=6).warnings) == 1


def test_a_waiting_newcomer():
    server = only([], [agent("new", state="waiting", span=None, capacity=3, throughput=9, public_name="host")])
    assert (server.peer_id, server.state, server.span, server.throughput) == ("new", ServerState.WAITING, None, 9.0)
    assert server.held == frozenset()
    assert server.public_name == "host"


@pytest.mark.parametrize(
    ("capacity", "table", "throughput"), [(2, [9, 8, 7], 8.0), (99, [9, 8, 7, 6], 6.0), (3, [9, 8], 1.0), (3, [], 1.0)]
)
def test_a_newcomers_throughput(capacity, table, throughput):
    value = {"state": "waiting", "capacity": capacity, "throughput": 1, "throughput_by_length": table}
    assert only([], [agent(**value)], num_blocks=4).throughput == throughput


def test_a_drained_server_waits_again():
    server = only(records(range(4), state=OFFLINE), [agent(state="waiting", capacity=4, throughput=5)])
    assert server.state is ServerState.WAITING


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"state": "waiting", "throughput": 1}, "capacity"),
        ({"state": "waiting", "capacity": 0, "throughput": 1}, "capacity"),
        ({"state": "waiting", "capacity": 4}, "throughput"),
        ({"state": "waiting", "capacity": 4, "throughput_by_length": [1, 1]}, "throughput"),
        ({"state": "serving", "span": [0, 4], "capacity": 4, "throughput": 1}, "span 0:4"),
        ({"state": "serving", "capacity": 4, "throughput": 1}, "does not wait"),
        ({"state": "waiting", "capacity": 4, "throughput": 1, "cached_blocks": [40]}, "cached_blocks"),
    ],
)
def test_agents_that_cannot_be_planned_are_dropped(value, reason):
    state = read([record(0)], [agent("new", **value)])
    assert [server.peer_id for server in state.servers] == ["a"]
    (warning,) = state.warnings
    assert warning.startswith("new: dropped its agent's record: ")
    assert reason in warning


def test_a_bad_agents_record_leaves_its_server():
    state = read([record(0)], [agent(capacity="many")])
    assert state.servers[0].agent is None
    assert len(state.warnings) == 1


# The whole.


def test_nothing_is_left():
    with pytest.raises(NothingToPlan, match="no server of 'm'"):
        read([])
    with pytest.raises(NothingToPlan, match="1 records had expired"):
        read([record(0, at=NOW - 10)])
    with pytest.raises(NothingToPlan, match="a: dropped its record of block 0: throughput"):
        read([record(0, rps=-1)])


@pytest.mark.parametrize("read_at", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_reading_needs_its_time(read_at):
    with pytest.raises(InputInvalid, match="read_at"):
        decode("m", 4, read_at, [record(0)])


def test_servers_that_hold_absurdly_many_blocks_together():
    raw = [record(0, f"peer{index}", span=(0, 100_000)) for index in range(MAX_HELD // 100_000 + 1)]
    with pytest.raises(InputInvalid, match="no real swarm"):
        decode("m", 100_000, NOW, raw)


def test_the_real_swarm():
    state = decode(REAL["prefix"], REAL["num_blocks"], REAL["read_at"], REAL["records"])
    assert {server.peer_id: str(server.span) for server in state.servers} == {
        "server1": "0:33",
        "server2": "0:80",
        "server3": "0:20",
        "server4": "18:41",
        "server5": "60:80",
        "server6": "47:57",
        "server7": "40:60",
    }
    server4 = state.servers[3]
    assert (server4.seen, server4.uncertain, server4.throughput) == (Span(21, 38), True, 3154.063460812297)
    assert [server.peer_id for server in state.servers if server.uncertain] == ["server4"]
    (warning,) = state.warnings
    assert warning.startswith("server4: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
STATED = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted).map(lambda pair: (pair[0], pair[1] + 1))
RECORDS = st.builds(
    record,
    st.integers(0, 8),
    st.sampled_from("abc"),
    st.sampled_from([OFFLINE, JOINING, ONLINE]),
    at=st.sampled_from([NOW - 4, NOW - 1, NOW + 40, NOW + 60, NOW + 119, NOW + 120]),
    rps=st.sampled_from([1.0, 2.0, float("inf")]),
    span=st.none() | STATED,
)
AGENTS = st.builds(
    agent,
    st.sampled_from("abcd"),
    at=st.sampled_from([NOW - 4, NOW + 60, NOW + 120]),
    state=st.sampled_from(["serving", "waiting"]),
    capacity=st.none() | st.integers(0, 9),
    throughput=st.none() | st.just(3.0),
    cached_blocks=st.lists(st.integers(0, 9), max_size=3),
)


def outcome(raw, agents):
    try:
        return read(raw, agents, num_blocks=9)
    except NothingToPlan as error:
        return str(error)


@given(st.lists(RECORDS, max_size=25), st.lists(AGENTS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(raw, agents, shuffler):
    shuffled, shuffled_agents = shuffler.sample(raw, len(raw)), shuffler.sample(agents, len(agents))
    first, second = outcome(raw, agents), outcome(shuffled, shuffled_agents)
    assert first == second
    if not isinstance(first, str):
        assert canonical_json(first.to_json()) == canonical_json(second.to_json())


@given(st.lists(RECORDS, min_size=1, max_size=15), st.lists(AGENTS, max_size=4), JSON, st.integers(0, 15))
def test_a_bad_record_never_changes_how_the_rest_is_read(raw, agents, junk, place):
    bad = [junk, record(3, "a", at=NOW + 999, rps=-1.0), record(3, "b", at=NOW + 999, span=(5, 4)), record(99, "c")]
    before, after = outcome(raw, agents), outcome(raw[:place] + bad + raw[place:], [*agents, junk, *bad])
    if isinstance(before, str):
        assert isinstance(after, str)
    else:
        assert after.servers == before.servers
        assert len(after.warnings) > len(before.warnings)


@given(st.lists(RECORDS, max_size=25), st.lists(AGENTS, max_size=6))
def test_what_is_read_is_in_order(raw, agents):
    state = outcome(raw, agents)
    if isinstance(state, str):
        return
    for server in state.servers:
        assert server.serving <= server.held
        if server.span is None:
            assert (server.state, server.seen) == (ServerState.WAITING, None)
        else:
            assert server.held
            assert server.seen is not None
            assert server.span.start <= server.seen.start < server.seen.end <= server.span.end
            assert server.uncertain or server.seen == server.span


def test_the_real_swarm_in_any_order():
    shuffled = REAL["records"][:]
    random.Random(7).shuffle(shuffled)
    arguments = (REAL["prefix"], REAL["num_blocks"], REAL["read_at"])
    assert decode(*arguments, shuffled) == decode(*arguments, REAL["records"])
