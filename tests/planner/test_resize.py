"""Spans of other lengths: cases that can be checked by hand."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from planner import explain
from planner.drift import Override, drift
from planner.formulate import formulate
from planner.plan_file import load_plan
from planner.policy import Policy
from planner.selection import resolve_policy
from solver.problem import Span
from tests.planner.build import moves, online, planned, serving, swarm, targets, waiting

RULE = {"forward_rps": 12.0}
"""Petals' rule then gives 12, 8, 6, 4.8 RPS on each of 1, 2, 3, 4 blocks."""
OVERLAP = swarm(online("a", 0, 3, 6.0, **RULE), online("b", 1, 4, 6.0, **RULE))
"""0:3 and 1:4 leave 6 RPS on the outer blocks; 0:2 and 2:4 have 8 on each, and nothing must be loaded."""


def lengths(state, **wishes):
    policy = resolve_policy(state, Policy(resize=True, **wishes))
    return {s.current: dict(s.throughput) for s in formulate(state, policy).problem.servers}


def test_shorter_spans_are_faster_by_petals_rule():
    assert (planned(OVERLAP).status, planned(OVERLAP).moves) == ("nothing_to_do", ())
    plan = planned(OVERLAP, resize=True)
    assert (plan.status, moves(plan)) == ("optimal", {"a": (0, 2), "b": (2, 4)})
    assert (plan.before.min_throughput, plan.after.min_throughput, plan.blocks_loaded) == (6.0, 8.0, 0)
    assert [(s.throughput, s.dropped, s.reload_seconds) for s in plan.servers] == [(8.0, (2,), 0.0), (8.0, (1,), 0.0)]
    # While both drop a block, what they keep still has the throughput of three.
    assert plan.waves[0].min_throughput_during == 6.0
    assert not any("unknown" in warning for warning in plan.warnings)


def test_an_agents_table_makes_a_server_longer():
    agent = serving(capacity=4, throughput_by_length=(9.0, 5.0, 4.0, 3.0))
    state = swarm(online("a", 0, 2, 5.0, agent=agent))
    assert planned(state).moves == ()
    plan = planned(state, resize=True)
    assert (plan.status, moves(plan), plan.servers[0].loaded) == ("optimal", {"a": (0, 4)}, (2, 3))
    assert (plan.before.holes, plan.after.holes, plan.after.min_throughput) == (2, 0, 3.0)
    assert plan.objective.value == pytest.approx(3.0 - 3.0 * 56.0 / 14400.0)


def test_newcomers_share_the_model_by_their_tables():
    # Two that take 1 and 3 blocks leave 3 RPS, 2 and 2 have 5, and 4 each on the whole model have 4 together.
    table = {"throughput_by_length": (9.0, 5.0, 3.0, 2.0)}
    plan = planned(swarm(waiting("a", 4, 2.0, **table), waiting("b", 4, 2.0, **table)), resize=True)
    assert (plan.status, targets(plan), plan.after.min_throughput) == ("optimal", {"a": (0, 2), "b": (2, 4)}, 5.0)


def test_lengths_from_one_to_the_capacity():
    agent = serving(capacity=4, throughput_by_length=(9.0, 8.0))
    state = swarm(online("a", 0, 2, 5.0, agent=agent, forward_rps=6.0), online("b", 0, 3, 6.0, **RULE), num_blocks=6)
    assert lengths(state, movable="all") == {
        # The table as far as it goes, but for what is announced; then the rule, 6 / 1.5 = 4 RPS being announced as 5.
        Span(0, 2): pytest.approx({1: 9.0, 2: 5.0, 3: 3.75, 4: 3.0}),
        Span(0, 3): pytest.approx({1: 12.0, 2: 8.0, 3: 6.0}),
    }


@pytest.mark.parametrize(
    ("least", "online_lengths", "newcomer_lengths"),
    [
        (1, [1, 2, 3, 4], [1, 2, 3]),
        (2, [2, 3, 4], [2, 3]),
        (3, [2, 3, 4], [3]),  # 2 is what it has, and it may stay
        (4, [2, 4], [3]),  # the newcomer can hold no more than 3
        (9, [2, 4], [3]),
    ],
)
def test_the_least_length(least, online_lengths, newcomer_lengths):
    state = swarm(online("a", 0, 2, agent=serving(capacity=4)), waiting("n", 3))
    a, n = lengths(state, min_span=least).values()
    assert (list(a), list(n)) == (online_lengths, newcomer_lengths)


def test_the_least_length_in_a_plan():
    assert moves(planned(OVERLAP, resize=True, min_span=2)) == {"a": (0, 2), "b": (2, 4)}
    for least in (3, 9):
        plan = planned(OVERLAP, resize=True, min_span=least)
        assert (plan.status, plan.moves) == ("nothing_to_do", ())


def test_a_pinned_server_keeps_what_it_is_given():
    plan = planned(OVERLAP, resize=True, pins=(("a", Span(0, 1)), ("b", None)))
    assert targets(plan) == {"a": (0, 1), "b": (1, 4)}
    assert (plan.after.min_throughput, plan.servers[0].throughput) == (6.0, 12.0)


def test_a_throughput_that_is_only_guessed_is_owned_up_to():
    text = "the throughput of {} at other lengths is unknown, and taken to be what is announced"
    one = swarm(online("a", 0, 2), online("b", 0, 4, **RULE))
    assert text.format("1 server") in planned(one, resize=True).warnings
    two = swarm(online("a", 0, 2), online("b", 0, 4, forward_rps=0.0))
    assert text.format("2 servers") in planned(two, resize=True).warnings
    table = {"throughput_by_length": (4.0, 3.0, 2.0)}
    known = swarm(online("a", 0, 1), waiting("n", 1), waiting("m", 9, **table))
    for plan in (planned(known, resize=True), planned(one)):
        assert not any("unknown" in warning for warning in plan.warnings)


def test_a_limit_on_loads_makes_a_newcomer_shorter():
    state = swarm(online("a", 0, 4, 5.0, agent=serving()), waiting("n", 4, 2.0))
    plan = planned(state, resize=True, max_loads=2, cordons=("a",))
    assert plan.servers[1].target is not None
    assert plan.servers[1].target.length <= 2
    assert not any("--max-loads" in warning for warning in plan.warnings)


def test_what_is_published_of_it(tmp_path):
    plan = planned(OVERLAP, resize=True)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_json()))
    read = load_plan(path)
    assert (read.servers, read.before, read.after) == (plan.servers, plan.before, plan.after)
    assert drift(read, OVERLAP) == ()
    # What is announced at the present length decides, by the rule for the target's.
    changed = swarm(replace(OVERLAP.servers[0], throughput=7.3), OVERLAP.servers[1])
    assert [(one.override, one.peer_id) for one in drift(read, changed)] == [(Override.THROUGHPUT, "a")]
    assert "from 8.00 to 9.73 RPS" in str(drift(read, changed)[0])
    assert drift(read, swarm(replace(OVERLAP.servers[0], throughput=7.1), OVERLAP.servers[1])) == ()


def test_what_staying_would_mean():
    plan = planned(OVERLAP, resize=True, explain=True)
    assert [(e.alternative, e.objective_change, e.proven) for e in plan.explanations] == [
        (Span(0, 3), -2.0, True),
        (Span(1, 4), -2.0, True),
    ]


def test_a_server_that_is_forced_to_move_may_become_shorter(monkeypatch):
    # Nothing may be loaded: however little time there is, a shorter span is known to be a way.
    solve = explain.solve

    def in_no_time(problem, limits, **kwargs):
        stop = threading.Event()
        stop.set()
        return solve(problem, limits, **{**kwargs, "stop": stop})

    monkeypatch.setattr(explain, "solve", in_no_time)
    state = swarm(online("a", 0, 4, 6.0), online("b", 0, 4, 6.0))
    for least, found in ((2, Span(0, 3)), (4, None)):
        (why, _) = planned(state, resize=True, min_span=least, max_loads=0, explain=True).explanations
        assert why.alternative == found
