from __future__ import annotations

import threading

import pytest

from planner import explain
from planner.policy import MinGain
from planner.reading import load_state
from solver.problem import Solution, Span, Status
from tests.planner.build import REAL, SCHEMA, joining, online, planned, serving, swarm, waiting


def explained(state, **wishes):
    plan = planned(state, explain=True, **wishes)
    assert [explanation.peer_id for explanation in plan.explanations] == [server.peer_id for server in state.servers]
    SCHEMA.validate(plan.to_json())
    return plan, {explanation.peer_id: explanation for explanation in plan.explanations}


def test_who_moves_is_forced_to_stay_and_who_stays_to_move():
    # c or b closes the hole at 2:4, at 5 * 2 * 28 / 14400 RPS.
    plan, why = explained(swarm(online("a", 0, 4, 10), online("b", 0, 2, 5), online("c", 0, 2, 5)))
    assert [server.peer_id for server in plan.moves] == ["c"]
    # c stays: b goes instead, which is as good.
    assert (why["c"].alternative, why["c"].objective_change, why["c"].blocks_loaded_change) == (Span(0, 2), 0.0, 0)
    assert why["c"].reason == "forced to stay, the objective would be the same, with 2 blocks loaded"
    # b goes: c need not, and again nothing is lost.
    assert (why["b"].alternative, why["b"].objective_change) == (Span(2, 4), 0.0)
    assert why["b"].reason == "forced to move, the objective would be the same, with 2 blocks loaded"
    # a holds the whole model.
    assert (why["a"].alternative, why["a"].objective_change, why["a"].reason) == (
        None,
        None,
        "it holds the whole model",
    )
    assert all(explanation.proven for explanation in why.values())


def test_what_forcing_costs():
    # a 10 on 0:2, b 20 on 2:4. Moved by one block at best, a leaves block 0 a hole.
    plan, why = explained(swarm(online("a", 0, 2, 10), online("b", 2, 4, 20), online("c", 0, 4, 5)))
    assert plan.status == "nothing_to_do"
    assert why["a"].alternative is not None
    # a to 2:4 and b to 0:2 is the same bottleneck for 30 * 56 s; a alone to 1:3 leaves block 0 with 5.
    assert (why["a"].alternative, why["a"].min_throughput_change) == (Span(2, 4), 0.0)
    assert why["a"].objective_change == pytest.approx(-30 * 56 / 14400)
    assert why["a"].blocks_loaded_change == 4
    assert why["a"].reason == "forced to move, the objective would fall by 0.1167 RPS"


def test_holes_and_replicas_are_told_before_the_objective():
    plan, why = explained(
        swarm(online("a", 0, 2), online("b", 0, 2), online("c", 0, 4)), cordons=("c",), min_replicas=2
    )
    assert [server.peer_id for server in plan.moves] == ["b"]
    assert why["b"].objective_change == 0.0
    plan, why = explained(swarm(online("a", 0, 2), online("b", 0, 1)), pins=(("b", None),))
    assert why["a"].reason == "forced to stay, there would be 1 more hole"
    plan, why = explained(swarm(online("a", 0, 2), online("b", 2, 4)), pins=(("b", None),))
    assert why["a"].reason == "forced to move, there would be 1 more hole"
    plan, why = explained(swarm(online("a", 0, 3), online("b", 0, 4)), pins=(("b", None),), min_replicas=2)
    assert why["a"].reason == "forced to move, the objective would fall by 0.01944 RPS"
    plan, why = explained(
        swarm(online("a", 0, 2), online("b", 0, 4), online("c", 2, 4)), cordons=("b", "c"), min_replicas=2
    )
    assert why["a"].reason == "forced to move, there would be 1 more missing replica"


def test_who_has_no_choice():
    state = swarm(
        online("a", 0, 2),
        online("b", 2, 4, uncertain=True),
        joining("c", 0, 2),
        online("d", 0, 2),
        online("e", 0, 2),
        online("f", 0, 4),
        waiting("n", 2),
    )
    plan, why = explained(state, movable="all", pins=(("a", Span(2, 4)), ("d", None)), drains=("e",))
    assert {peer: explanation.reason for peer, explanation in why.items()} == {
        "a": "pinned there",
        "b": "span uncertain",
        "c": "joining",
        "d": "pinned",
        "e": "drained",
        "f": "it holds the whole model",
        "n": "a newcomer has to be placed",
    }
    assert all(explanation.alternative is None for explanation in why.values())
    assert all(explanation.objective_change is None for explanation in why.values())
    assert plan.status == "optimal"


def test_limits_may_leave_no_other_plan():
    state = swarm(online("a", 0, 2), online("b", 2, 4))
    for limit in ({"max_moves": 0}, {"max_loads": 0}):
        _, why = explained(state, **limit)
        for explanation in why.values():
            assert explanation.reason == "the limits on moves and loads leave no plan that forces it to move"
            assert (explanation.alternative, explanation.proven) == (None, True)


def test_limits_that_leave_one_block_leave_a_plan(monkeypatch):
    # However little time there is: the least change is known without a search.
    _, why = explained(swarm(online("a", 0, 2), online("b", 2, 4)), max_loads=1)
    assert (why["a"].alternative, why["b"].alternative) == (Span(1, 3), Span(1, 3))
    solve = explain.solve

    def in_no_time(problem, limits, **kwargs):
        stop = threading.Event()
        stop.set()
        return solve(problem, limits, **{**kwargs, "stop": stop})

    monkeypatch.setattr(explain, "solve", in_no_time)
    for most in (1, 0):
        _, why = explained(swarm(online("a", 0, 2), online("b", 2, 4)), max_loads=most)
        assert why["a"].alternative == (Span(1, 3) if most else None)
        assert why["a"].proven is (most == 0)
        if most:
            assert why["a"].reason.startswith("as far as found in time, forced to move, there would be 1 more hole")


def test_a_gain_that_was_not_enough_is_no_fault_of_the_plan():
    state = swarm(online("a", 2, 4, 10), online("b", 0, 2, 20), online("c", 0, 2, 20), online("d", 2, 4, 10))
    plan, why = explained(state, cordons=("c", "d"), min_gain=MinGain(50.0))
    assert plan.status == "nothing_to_do"
    for peer in "ab":
        assert why[peer].objective_change == pytest.approx(10 - 30 * 56 / 14400)
        assert why[peer].reason == (
            "forced to move, the objective would rise by 9.883 RPS, less than the least gain asked for"
        )


def test_a_plan_that_is_not_the_best_is_owned_up_to(monkeypatch):
    # The first search is stopped, the ones that explain are not.
    state = swarm(online("a", 2, 4, 10), online("b", 0, 2, 20), online("c", 0, 2, 20), online("d", 2, 4, 10))
    stop = threading.Event()
    stop.set()
    hole = swarm(online("a", 0, 2), online("b", 0, 2))
    explain_plan = explain.explain_plan
    monkeypatch.setattr(
        "planner.planning.explain_plan",
        lambda formulation, plan, workers, progress, _: explain_plan(
            formulation, plan, workers, progress, threading.Event()
        ),
    )
    _, why = explained(state, cordons=("c", "d"), stop=stop)
    assert why["a"].reason.endswith("rise by 9.883 RPS: the plan is not the best one yet")
    _, why = explained(hole, stop=stop)
    assert why["a"].reason == "forced to move, there would be 2 fewer holes: the plan is not the best one yet"


def test_what_is_not_proven_says_so(monkeypatch):
    def halfway(problem, limits, **kwargs):
        return Solution(kwargs["hints"][1], Status.FEASIBLE, 99.0, 0.0, (), 0.0, 1.0)

    monkeypatch.setattr(explain, "solve", halfway)
    _, why = explained(swarm(online("a", 0, 2), online("b", 2, 4)))
    assert why["a"].proven is False
    assert why["a"].reason == "as far as found in time, forced to move, there would be 1 more hole"


def test_what_petals_says_stands_beside_it():
    _, why = explained(swarm(online("a", 0, 2), online("b", 0, 2), online("c", 2, 4), waiting("n", 1)), movable="all")
    assert why["a"].petals_rule.startswith("stay")
    assert why["n"].petals_rule is None
    _, why = explained(swarm(online("a", 0, 2, agent=serving()), online("b", 0, 2)))
    assert why["b"].petals_rule.startswith("restart at block 2")
    assert why["b"].reason == "no agent"


def test_the_real_swarm():
    state = load_state(REAL)
    plan, why = explained(state, cordons=("server2", "server3", "server5", "server7"), time_limit=30.0)
    assert plan.status == "nothing_to_do"
    assert why["server1"].petals_rule == "restart at block 7, balance quality 47.7%"
    assert why["server1"].alternative != Span(0, 33)
    assert why["server1"].objective_change < 0
    assert why["server1"].proven
    assert (why["server4"].reason, why["server4"].alternative) == ("span uncertain", None)
