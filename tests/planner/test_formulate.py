from __future__ import annotations

import pytest

from planner.formulate import formulate
from planner.policy import Policy
from planner.selection import resolve_policy
from solver.problem import Span
from tests.planner.build import joining, online, serving, swarm, waiting


def posed(state, **wishes):
    policy = resolve_policy(state, Policy(**wishes))
    return formulate(state.with_spans(dict(policy.spans)), policy)


def test_who_may_not_move_is_a_constant_and_counts_with_what_it_holds():
    state = swarm(
        online("a", 0, 2, 1.0, offline={1}),
        joining("b", 1, 3, 2.0),
        online("c", 0, 3, 4.0, uncertain=True),
        online("d", 2, 4, 8.0),
        online("e", 2, 4, 16.0),
    )
    formulation = posed(state, cordons=("d",))
    assert formulation.placed == ("e",)
    assert formulation.problem.base_throughput == (5.0, 6.0, 14.0, 8.0)
    assert formulation.problem.base_replicas == (2, 2, 3, 1)


def test_the_drained_and_the_waiting_count_for_nothing():
    formulation = posed(swarm(online("a", 0, 2), waiting("b", 2), waiting("c", 2)), drains=("a", "b"))
    assert formulation.placed == ("c",)
    assert formulation.problem.base_throughput == (0.0,) * 4
    assert formulation.problem.base_replicas == (0,) * 4
    assert formulation.targets((Span(1, 3),)) == {"a": None, "b": None, "c": Span(1, 3)}


def test_a_server_keeps_its_length_and_a_newcomer_takes_its_capacity():
    state = swarm(
        online("a", 0, 2, 5.0, agent=serving(capacity=4, throughput_by_length=(9.0, 8.0, 7.0, 6.0))),
        waiting("b", 3, 2.0),
        waiting("c", 9, 2.0, throughput_by_length=(9.0, 8.0, 7.0, 6.0)),
    )
    a, b, c = posed(state).problem.servers
    assert (a.current, a.throughput, a.only, a.may_stay) == (Span(0, 2), {2: 5.0}, None, True)
    assert (b.current, b.throughput) == (None, {3: 2.0})
    assert (c.current, c.throughput) == (None, {4: 6.0})


def test_a_pinned_server_has_one_span_and_its_throughput_there():
    state = swarm(online("a", 0, 3, 6.0, forward_rps=12.0), waiting("b", 3, 2.0, throughput_by_length=(4.0, 3.0, 2.0)))
    a, b = posed(state, pins=(("a", Span(3, 4)), ("b", Span(1, 3)))).problem.servers
    assert (a.current, a.only, a.throughput, a.may_stay) == (Span(0, 3), Span(3, 4), {1: 12.0}, False)
    assert (b.current, b.only, b.throughput, b.may_stay) == (None, Span(1, 3), {2: 3.0}, False)


def test_what_loading_costs():
    agent = serving(seconds_per_block=10.0, seconds_per_cached_block=1.0, cached_blocks=frozenset({3}))
    state = swarm(online("a", 0, 2), online("b", 0, 2, agent=agent))
    problem = posed(state, movable="all", horizon=100.0).problem
    assert [server.load_seconds for server in problem.servers] == [(28.0,) * 4, (10.0, 10.0, 10.0, 1.0)]
    assert problem.horizon == 100.0
    overridden = posed(state, movable="all", seconds_per_block=4.0).problem.servers
    assert [server.load_seconds for server in overridden] == [(4.0,) * 4, (4.0, 4.0, 4.0, 1.0)]


# --- limits: what newcomers, pins and drains need comes first and always passes

LIMITED = swarm(online("a", 0, 2), online("b", 1, 3), online("c", 2, 4), waiting("n", 3))
DEMANDS = {"pins": (("a", Span(1, 3)),), "drains": ("b",)}


@pytest.mark.parametrize(("asked", "left"), [(None, None), (5, 4), (4, 3), (3, 2)])
def test_moves_that_are_left_for_the_solver(asked, left):
    # a is pinned, b drained, n placed: 3 moves, of which the solver sees those of a and n.
    formulation = posed(LIMITED, max_moves=asked, **DEMANDS)
    assert formulation.problem.max_moves == left
    assert not any("--max-moves" in warning for warning in formulation.warnings)


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_too_few_moves_for_what_has_to_be(asked):
    formulation = posed(LIMITED, max_moves=asked, **DEMANDS)
    assert formulation.problem.max_moves == 2
    text = f"--max-moves {asked} is less than the 3 moves that newcomers, pins and drains need"
    assert text in formulation.warnings


def test_loads_likewise():
    # a loads block 2, n three blocks; who is drained loads nothing.
    for asked, left in ((None, None), (9, 9), (4, 4), (3, 4), (0, 4)):
        formulation = posed(LIMITED, max_loads=asked, **DEMANDS)
        assert formulation.problem.max_loads == left
        warned = [warning for warning in formulation.warnings if "--max-loads" in warning]
        assert bool(warned) is (asked is not None and asked < 4)


def test_limits_where_nothing_has_to_be():
    problem = posed(swarm(online("a", 0, 2)), max_moves=0, max_loads=0, min_replicas=2).problem
    assert (problem.max_moves, problem.max_loads, problem.min_replicas) == (0, 0, 2)


# --- staying


def test_staying_frees_newcomers_only():
    state = swarm(online("a", 0, 2), online("b", 2, 4), waiting("n", 1))
    a, b, n = posed(state, movable="all", pins=(("b", Span(0, 2)),)).staying().servers
    assert (a.only, b.only, n.only) == (Span(0, 2), Span(0, 2), None)


# --- warnings about who follows


def test_without_agents_a_plan_is_advice():
    advice = "no server runs an agent: this plan is advice, servers will not follow it by themselves"
    state = swarm(online("a", 0, 2))
    assert posed(state).warnings == (advice,)
    assert posed(state, movable="all").warnings == (advice,)


def test_with_agents_only_the_moves_of_others_are_advice():
    state = swarm(online("a", 0, 2, agent=serving()), online("b", 2, 4), online("c", 2, 4))
    assert posed(state).warnings == ()
    text = "of the 3 servers that may move run no agent: their moves are advice"
    assert posed(state, movable="all").warnings == (f"2 {text}",)
    text = "1 of the 2 servers that may move run no agent: their moves are advice"
    assert posed(state, drains=("b",)).warnings == (text,)
    assert posed(state, pins=(("b", Span(1, 3)),)).warnings == (text,)
    assert posed(state, pins=(("b", None),)).warnings == ()
