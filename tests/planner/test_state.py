from __future__ import annotations

from dataclasses import replace

import pytest

from planner.canonical import canonical_json
from planner.decode import decode
from planner.errors import InputInvalid, NothingToPlan
from planner.state import Agent, Server, ServerState, SwarmState
from solver.problem import Span
from tests.planner.build import NOW, joining, online, serving, swarm, waiting

# --- the state itself


def test_servers_are_sorted_and_each_peer_is_there_once():
    a, b = online("a", 0, 2), online("b", 2, 4)
    for servers in ((b, a), (a, a)):
        with pytest.raises(InputInvalid, match="sorted by peer id, each once"):
            SwarmState("model", 4, NOW, servers)


def test_a_state_without_servers():
    with pytest.raises(NothingToPlan, match="nothing to plan"):
        SwarmState("model", 4, NOW, ())


@pytest.mark.parametrize("num_blocks", [0, -1, 100_001, True, 4.0, None, "4"])
def test_a_number_of_blocks_that_no_model_has(num_blocks):
    with pytest.raises(InputInvalid, match="num_blocks must be"):
        SwarmState("model", num_blocks, NOW, (online("a", 0, 1),))


@pytest.mark.parametrize("span", [Span(0, 5), Span(-1, 2), Span(3, 3), Span(3, 2)])
def test_a_span_outside_the_model(span):
    for name in ("span", "seen"):
        with pytest.raises(InputInvalid, match=f"a: span {span} is outside the model's 0:4"):
            swarm(replace(online("a", 0, 2), **{name: span}))


# --- one server


def test_what_a_server_holds():
    assert online("a", 1, 4, offline={2}).held == {1, 3}
    assert joining("a", 1, 3).held == {1, 2}
    assert waiting("a", 3).held == frozenset()


@pytest.mark.parametrize(
    ("server", "capacity"),
    [
        (online("a", 0, 3), 3),
        (online("a", 0, 3, agent=serving()), 3),
        (online("a", 0, 3, agent=serving(capacity=5)), 5),
        (online("a", 0, 3, agent=serving(capacity=50)), 8),
        (online("a", 0, 3, agent=serving(capacity=1)), 3),
        (waiting("a", 5), 5),
        (waiting("a", 50), 8),
        (waiting("a", None), 0),
    ],
)
def test_capacity(server, capacity):
    assert server.capacity(8) == capacity


def test_throughput_at_the_present_length_is_what_is_announced():
    table = serving(throughput_by_length=(9.0, 8.0, 7.0))
    assert online("a", 0, 2, 5.0, agent=table, forward_rps=100.0).throughput_at(2) == 5.0


def test_throughput_at_another_length_comes_from_the_agents_table_first():
    server = online("a", 0, 2, 5.0, agent=serving(throughput_by_length=(9.0, 8.0, 7.0)), forward_rps=6.0)
    assert [server.throughput_at(n) for n in (1, 3)] == [9.0, 7.0]
    # The table ends at 3; Petals' rule goes on: 6 / 2.5 at 4, 6 / 1.5 = 4 at 2, which is announced as 5.
    assert server.throughput_at(4) == pytest.approx(5.0 * 2.4 / 4.0)


def test_petals_rule_for_other_lengths():
    # 12 forward passes a second and block are 12 / ((n + 1) / 2): 12, 8, 6, 4.8, 4 for 1 to 5 blocks.
    server = online("a", 0, 3, 6.0, forward_rps=12.0)
    assert [server.throughput_at(n) for n in range(1, 6)] == pytest.approx([12.0, 8.0, 6.0, 4.8, 4.0])
    # The network caps at 7.
    network = replace(server, network_rps=7.0)
    assert [network.throughput_at(n) for n in range(1, 6)] == pytest.approx([7.0, 7.0, 6.0, 4.8, 4.0])
    # A relay leaves a fifth of it: 1.4 at every length, scaled to the 6 that are announced.
    relayed = replace(network, using_relay=True)
    assert [relayed.throughput_at(n) for n in range(1, 6)] == pytest.approx([6.0] * 5)


def test_petals_rule_is_scaled_to_what_is_announced():
    server = online("a", 0, 3, 3.0, forward_rps=12.0)
    assert [server.throughput_at(n) for n in range(1, 6)] == pytest.approx([6.0, 4.0, 3.0, 2.4, 2.0])


def test_without_figures_throughput_does_not_depend_on_length():
    assert online("a", 0, 3, 3.0).throughput_at(1) == 3.0
    assert online("a", 0, 3, 3.0, network_rps=2.0).throughput_at(1) == 3.0
    assert online("a", 0, 3, 3.0, forward_rps=0.0).throughput_at(1) == 3.0
    assert online("a", 0, 3, 3.0, forward_rps=5.0, network_rps=0.0).throughput_at(1) == 3.0
    assert waiting("a", 3, 3.0).throughput_at(2) == 3.0
    assert waiting("a", 3, 3.0, throughput_by_length=(4.0, 3.5, 3.0)).throughput_at(2) == 3.5


def test_at_which_lengths_the_throughput_is_more_than_a_guess():
    def known(server):
        return [length for length in range(1, 6) if server.knows_throughput_at(length)]

    assert known(online("a", 0, 3)) == [3]
    assert known(online("a", 0, 3, forward_rps=0.0)) == [3]
    assert known(online("a", 0, 3, forward_rps=2.0)) == [1, 2, 3, 4, 5]
    assert known(online("a", 0, 3, agent=serving(throughput_by_length=(2.0, 1.0)))) == [1, 2, 3]
    assert known(waiting("a", 3, throughput_by_length=(2.0, 1.0))) == [1, 2]


# --- spans that the operator knows better


def test_a_span_that_is_told_replaces_what_was_read():
    uncertain = online("a", 0, 3, seen=Span(0, 2), uncertain=True)
    partly = online("b", 1, 4, offline={2})
    state = swarm(uncertain, partly, online("c", 0, 1)).with_spans({"a": Span(1, 3), "b": Span(0, 2)})
    a, b, c = state.servers
    assert (a.span, a.seen, a.uncertain, a.serving) == (Span(1, 3), Span(1, 3), False, {1, 2})
    assert (b.span, b.offline, b.held, b.serving) == (Span(0, 2), frozenset(), {0, 1}, {0, 1})
    assert c == online("c", 0, 1)


def test_who_is_joining_serves_no_more_for_being_told_about():
    (server,) = swarm(replace(joining("a", 0, 3), serving=frozenset({2}))).with_spans({"a": Span(1, 4)}).servers
    assert (server.state, server.span, server.serving) == (ServerState.JOINING, Span(1, 4), {2})


def test_being_told_answers_the_doubt_and_no_other_warning():
    def record(block, at, peer="a", value=(2, 5.0)):
        return {"uid": f"m.{block}", "peer_id": peer, "expiration": NOW + at, "value": list(value)}

    records = [record(0, 60), record(3, 60), record(1, 60, value=(7, 5.0)), record(0, 60, "aa"), record(2, 60, "aa")]
    state = decode("m", 6, NOW, records)
    doubt_a, doubt_aa = (f"give --span {peer}=START:END" for peer in ("a", "aa"))
    assert [sum(doubt in warning for warning in state.warnings) for doubt in (doubt_a, doubt_aa)] == [1, 1]
    told = state.with_spans({"a": Span(0, 4)}).warnings
    assert [sum(doubt in warning for warning in told) for doubt in (doubt_a, doubt_aa)] == [0, 1]
    assert any("a: dropped its record of block 1: unknown state 7" in warning for warning in told)
    assert len(told) == len(state.warnings) - 1


def test_a_span_outside_the_model_cannot_be_told():
    with pytest.raises(InputInvalid, match="outside the model's 0:4"):
        swarm(online("a", 0, 2)).with_spans({"a": Span(3, 5)})


# --- the fingerprint


def read(rps=[762.939], expiration=120.0, **info):  # noqa: B006  # not changed
    info = {"start_block": 0, "end_block": 2, "next_pings": {"b": 0.1}, "cache_tokens_left": 9, **info}
    records = [
        {"uid": "m.0", "peer_id": "a", "expiration": NOW + expiration, "value": [2, rps[0], info]},
        {"uid": "m.2", "peer_id": "b", "expiration": NOW + 60, "value": [2, 5.0, {"start_block": 2, "end_block": 4}]},
    ]
    return decode("m", 4, NOW, records)


def test_the_fingerprint_is_blind_to_what_changes_all_the_time():
    fingerprint = read().fingerprint()
    assert len(fingerprint) == 64
    for other in (
        read(expiration=61.0),
        read(next_pings={"b": float("inf")}),
        read(next_pings=None),
        read(cache_tokens_left=None),
        read(rps=[763.4]),
        read(version="9", public_name="new"),
        replace(read(), read_at=NOW + 99, warnings=("odd",)),
    ):
        assert other.fingerprint() == fingerprint


def test_the_fingerprint_sees_what_a_plan_rests_on():
    a = online("a", 0, 2, 100.0, agent=serving(capacity=3))
    b = online("b", 2, 4)
    states = [
        swarm(a, b),
        swarm(a),
        swarm(a, b, num_blocks=5),
        replace(swarm(a, b), prefix="other"),
        swarm(replace(a, throughput=101.0), b),
        swarm(replace(a, span=Span(1, 3)), b),
        swarm(replace(a, span=Span(0, 3)), b),
        swarm(replace(a, state=ServerState.JOINING), b),
        swarm(replace(a, uncertain=True), b),
        swarm(replace(a, offline=frozenset({1})), b),
        swarm(replace(a, agent=serving(capacity=4)), b),
        swarm(replace(a, peer_id="aa"), b),
    ]
    assert len({state.fingerprint() for state in states}) == len(states)


def test_a_told_span_is_part_of_the_fingerprint():
    state = swarm(online("a", 0, 2))
    assert state.with_spans({"a": Span(1, 3)}).fingerprint() != state.fingerprint()
    assert state.with_spans({"a": Span(0, 2)}).fingerprint() == state.fingerprint()


# --- as JSON


def test_as_json():
    agent = Agent("serving", capacity=3, cached_blocks=frozenset({3, 1}))
    state = swarm(online("a", 0, 3, offline={1}, agent=agent), joining("b", 2, 4), waiting("c", 2))
    a, b, c = state.to_json()["servers"]
    assert (a["state"], a["span"], a["offline"], a["serving"]) == ("online", (0, 3), [1], [0, 2])
    assert a["agent"]["cached_blocks"] == [1, 3]
    assert (b["state"], b["serving"], b["agent"], c["state"], c["span"]) == ("joining", [], None, "waiting", None)
    assert canonical_json(state.to_json()) == canonical_json(swarm(*reversed(state.servers)).to_json())


def test_server_states_read_as_their_values():
    assert [state.value for state in ServerState] == ["online", "joining", "waiting"]
    assert Server("a", ServerState("online"), Span(0, 1), 1.0).state is ServerState.ONLINE
