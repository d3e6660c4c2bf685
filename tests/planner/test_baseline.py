"""The Petals rule on a swarm's state, and what its result is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.baseline import petals_baseline, petals_verdict
from planner.costs import load_seconds
from planner.policy import Policy
from planner.reading import load_state
from planner.state import Agent, Server, ServerState, SwarmState
from solver.problem import Span

DUMP = Path(__file__).parents[2] / "examples" / "llama-65b-hf.json"
CHURN = Path(__file__).parents[2] / "benchmarks" / "data"


def online(peer_id, start, end, throughput=10.0, **fields):
    span = Span(start, end)
    held = frozenset(range(start, end))
    return Server(peer_id, ServerState.ONLINE, span, throughput, **{"seen": span, "serving": held, **fields})


def waiting(peer_id, capacity, throughput=10.0, **fields):
    return Server(peer_id, ServerState.WAITING, None, throughput, agent=Agent("waiting", capacity=capacity, **fields))


def swarm(*servers, num_blocks=4):
    return SwarmState("model", num_blocks, 0.0, servers)


# --- what loading costs


def test_a_block_takes_28_seconds_where_nobody_says_more():
    assert load_seconds(online("a", 0, 2), Policy(), 3) == (28.0, 28.0, 28.0)


def test_the_agent_knows_better_and_the_operator_best():
    server = online("a", 0, 2, agent=Agent("serving", seconds_per_block=20.0))
    assert load_seconds(server, Policy(), 2) == (20.0, 20.0)
    assert load_seconds(server, Policy(seconds_per_block=9.0), 2) == (9.0, 9.0)
    assert load_seconds(server, Policy(seconds_per_block=0.0), 2) == (0.0, 0.0)


def test_a_cached_block_takes_less_but_never_more():
    agent = Agent("serving", cached_blocks=frozenset({1}))
    assert load_seconds(online("a", 0, 2, agent=agent), Policy(), 3) == (28.0, 7.0, 28.0)
    assert load_seconds(online("a", 0, 2, agent=agent), Policy(seconds_per_block=3.0), 3) == (3.0, 3.0, 3.0)
    measured = replace(agent, seconds_per_cached_block=0.0)
    assert load_seconds(online("a", 0, 2, agent=measured), Policy(), 3) == (28.0, 0.0, 28.0)


# --- the baseline


def test_a_swarm_in_balance_costs_nothing():
    baseline = petals_baseline(swarm(online("a", 0, 2), online("b", 2, 4)), Policy())
    assert (baseline.min_throughput, baseline.objective, baseline.holes) == (10.0, 10.0, 0)
    assert (baseline.blocks_loaded, baseline.servers_moved, baseline.rounds, baseline.settled) == (0, 0, 1, True)


def test_a_restart_loads_the_whole_span():
    # One of the two goes from 0:2 to 2:4; whichever it is, its 2 blocks of 28 s are loaded.
    baseline = petals_baseline(swarm(online("a", 0, 2), online("b", 0, 2)), Policy(horizon=560.0))
    assert (baseline.min_throughput, baseline.holes) == (10.0, 0)
    assert baseline.objective == pytest.approx(10.0 - 10.0 * 56.0 / 560.0)
    assert (baseline.blocks_loaded, baseline.servers_moved, baseline.settled) == (2, 1, True)


def test_kept_blocks_are_loaded_again():
    # The one from 1:3 belongs to 2:4 and keeps block 2, but stock servers load all that they serve.
    baseline = petals_baseline(swarm(online("a", 0, 2), online("b", 1, 3)), Policy())
    assert (baseline.holes, baseline.blocks_loaded) == (0, 2)


def test_newcomers_join_first_and_load():
    state = swarm(online("a", 0, 2), waiting("b", 2, cached_blocks=frozenset({2})), waiting("c", 9, 1.0))
    baseline = petals_baseline(state, Policy(horizon=1000.0))
    assert (baseline.min_throughput, baseline.holes) == (11.0, 0)
    assert (baseline.blocks_loaded, baseline.servers_moved) == (2 + 4, 2)
    assert baseline.objective == pytest.approx(11.0 - 10.0 * 0.035 - 1.0 * 0.112)


def test_a_newcomer_without_a_capacity_goes_on_waiting():
    baseline = petals_baseline(swarm(online("a", 0, 2), waiting("b", None)), Policy())
    assert (baseline.min_throughput, baseline.holes, baseline.servers_moved) == (10.0, 2, 0)


def test_nobody_can_be_placed():
    baseline = petals_baseline(swarm(waiting("b", None)), Policy())
    assert (baseline.min_throughput, baseline.objective, baseline.holes) == (0.0, 0.0, 4)


def test_petals_knows_no_pins_and_moves_who_is_joining():
    joining = replace(online("b", 0, 2), state=ServerState.JOINING, serving=frozenset())
    state = swarm(online("a", 0, 2), joining)
    baseline = petals_baseline(state, Policy(pins=(("a", None), ("b", None)), cordons=("a", "b")))
    assert (baseline.holes, baseline.servers_moved) == (0, 1)


def test_who_stays_counts_with_what_it_holds():
    # Petals sees a at 0:2 and nothing amiss; the stretched span reaches to 3, and 2 is offline at b.
    a = online("a", 0, 3, seen=Span(0, 2), uncertain=True)
    b = online("b", 2, 4, offline=frozenset({2}), serving=frozenset({3}))
    baseline = petals_baseline(swarm(a, b), Policy())
    assert (baseline.min_throughput, baseline.holes, baseline.servers_moved) == (10.0, 0, 0)


def test_the_seed_is_the_policys():
    state = load_state(CHURN / "churn-80x10-1.json")
    runs = [petals_baseline(state, Policy(seed=seed)) for seed in (0, 0, *range(1, 8))]
    assert runs[0] == runs[1]
    assert len({run.objective for run in runs}) > 1


@pytest.mark.parametrize(
    ("case", "min_throughput"), [("80x20-2", 5836.71), ("80x50-3", 12609.05), ("80x100-4", 22454.13)]
)
def test_larger_churned_swarms_are_balanced_enough_for_petals(case, min_throughput):
    baseline = petals_baseline(load_state(CHURN / f"churn-{case}.json"), Policy())
    assert baseline.min_throughput == pytest.approx(min_throughput)
    assert (baseline.blocks_loaded, baseline.servers_moved, baseline.settled) == (0, 0, True)


# --- one server's verdict


@pytest.mark.parametrize("seed", range(3))
def test_the_fault_of_petals_issue_389(seed):
    answer = petals_verdict(load_state(DUMP), "server1", seed)
    assert (answer.restart, f"{answer.balance_quality:.1%}", answer.best_start) == (True, "47.7%", 7)


def test_only_who_serves_can_ask():
    state = swarm(online("a", 0, 2), waiting("b", 2))
    for peer_id in ("b", "c"):
        with pytest.raises(ValueError, match=f"{peer_id} holds no blocks of model"):
            petals_verdict(state, peer_id, 0)


def test_the_verdict_reads_what_petals_sees():
    # Petals sees a at 0:2, so b should fill 2:4; were a seen at 0:4, b would be as well off where it is.
    a = online("a", 0, 4, seen=Span(0, 2), uncertain=True)
    assert petals_verdict(swarm(a, online("b", 0, 2)), "b", 0).best_start == 2
    assert petals_verdict(swarm(replace(a, seen=Span(0, 4)), online("b", 0, 2)), "b", 0).best_start == 0
