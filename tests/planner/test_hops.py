"""How many servers a request passes through, and a limit on them."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import assemble, planning
from planner.coverage import coverage_of, runs_of
from planner.errors import InfeasibleDemands
from planner.fields import Malformed
from planner.formulate import formulate
from planner.hops import fewest_hops
from planner.plan_file import load_plan
from planner.policy import MinGain, Policy
from planner.published import read_plan
from planner.recheck import recheck
from planner.selection import resolve_policy
from planner.state import SwarmState
from solver.hops import shortest_chain
from solver.problem import Limits, Solution, Span, Status
from tests.planner.build import NOW, joining, moves, online, planned, recount, serving, swarm, waiting


def posed(state, **wishes):
    return formulate(state, resolve_policy(state, Policy(**wishes)))


# --- counting


def test_servers_on_the_shortest_chain():
    assert coverage_of(4, [(range(2), 1.0), (range(1, 3), 1.0), (range(2, 4), 1.0)]).hops == 2
    assert coverage_of(4, [(range(4), 0.0)]).hops == 1
    assert coverage_of(4, [(range(2), 1.0), (range(3, 4), 1.0)]).hops is None
    # Whoever lacks a block in the middle can be passed through on either side of it.
    assert coverage_of(4, [({0, 1, 3}, 1.0), ({2}, 1.0)]).hops == 3


def test_runs_of_blocks():
    assert runs_of({5, 1, 2, 4}) == [Span(1, 3), Span(4, 6)]
    assert runs_of(()) == []


def test_before_is_what_serves_now_and_after_what_will_be_held():
    state = swarm(online("a", 0, 2), online("b", 2, 3), online("c", 3, 4), joining("j", 1, 4))
    plan = planned(state, cordons=("a", "b", "c"))
    assert (plan.before.hops, plan.after.hops) == (3, 2)
    assert [plan.to_json()[when]["hops"] for when in ("before", "after")] == [3, 2]
    newcomer = planned(swarm(online("a", 0, 2, agent=serving()), waiting("n", 2)))
    assert (newcomer.before.hops, newcomer.after.hops) == (None, 2)
    drained = planned(swarm(online("a", 0, 4), online("b", 0, 2), online("c", 2, 4)), drains=("a",))
    assert (drained.before.hops, drained.after.hops) == (1, 2)
    offline = planned(swarm(online("a", 0, 4, offline={1}), online("b", 0, 2)))
    assert (offline.before.hops, offline.after.hops) == (2, 2)


# --- a plan's figures, when it is read back


def edited(plan, when, hops):
    document = json.loads(json.dumps(plan.to_json()))
    document[when]["hops"] = hops
    recheck(read_plan(document), document)


def test_edited_hops_are_named():
    plan = planned(swarm(online("a", 0, 2), online("b", 2, 4), online("c", 1, 3)))
    for when, hops in (("before", 1), ("before", 3), ("before", None), ("after", 1), ("after", None)):
        shown = "null" if hops is None else hops
        with pytest.raises(Malformed, match=rf"^{when}\.hops is {shown}, and should be 2: it was changed"):
            edited(plan, when, hops)
    for hops in (0, 5, "2", True):
        with pytest.raises(Malformed, match=r"^before\.hops"):
            edited(plan, "before", hops)


def test_a_joining_server_may_serve_any_part_already():
    # j makes it 2 hops where it serves 2:4, and there are 3 without it.
    state = swarm(online("a", 0, 2), online("b", 2, 3), online("c", 3, 4), joining("j", 2, 4))
    plan = planned(state, movable="agents")
    assert plan.before.hops == 3
    edited(plan, "before", 2)
    for hops in (1, 4, None):
        with pytest.raises(Malformed, match=r"^before\.hops is .*, and should be (from 2 to 3|at most 3)"):
            edited(plan, "before", hops)
    alone = planned(swarm(online("a", 0, 2), joining("j", 2, 4)), movable="agents")
    assert (alone.before.hops, alone.after.hops) == (None, 2)
    with pytest.raises(Malformed, match=r"^before\.hops is 2, and before\.holes is 2: they contradict"):
        edited(alone, "before", 2)


def test_plans_of_planners_that_counted_no_hops_are_read_and_not_published(tmp_path):
    document = planned(swarm(online("a", 0, 4))).to_json()
    for when in ("before", "after"):
        del document[when]["hops"]
    assert read_plan(json.loads(json.dumps(document))).after.hops is None
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(Exception, match="'hops' of before is missing"):
        load_plan(path)


# --- the fewest there can be


def test_the_fewest_hops_by_hand():
    assert fewest_hops(10, [], [5, 3, 4]) == 3
    assert fewest_hops(9, [], [5, 3, 4]) == 2
    assert fewest_hops(13, [], [5, 3, 4]) is None
    assert fewest_hops(4, [Span(0, 4)], []) == 1
    assert fewest_hops(4, [Span(1, 3)], []) is None
    assert fewest_hops(10, [Span(2, 8), Span(0, 5), Span(5, 7)], [1]) is None
    assert fewest_hops(10, [Span(2, 8), Span(0, 5), Span(5, 7)], [2, 1]) == 3  # 0:5, 2:8, and 2 blocks
    assert fewest_hops(10, [Span(2, 8), Span(0, 5)], [9, 1]) == 2


@settings(max_examples=60)
@given(st.data())
def test_the_fewest_hops_are_a_lower_bound_on_every_placement(data):
    num_blocks = data.draw(st.integers(1, 6))
    spans = [Span(start, end) for start in range(num_blocks) for end in range(start + 1, num_blocks + 1)]
    fixed = data.draw(st.lists(st.sampled_from(spans), max_size=3))
    free = data.draw(st.lists(st.integers(1, num_blocks), max_size=2))
    places = [[span for span in spans if span.length <= length] for length in free]
    chains = [shortest_chain([*fixed, *placed], num_blocks) for placed in itertools.product(*places)]
    found = min((len(chain) for chain in chains if chain is not None), default=None)
    bound = fewest_hops(num_blocks, fixed, free)
    assert found is None or (bound is not None and bound <= found)
    if not fixed:
        assert bound == found


# --- the limit

LONG_WAY = swarm(online("a", 0, 2), online("b", 2, 4), online("c", 4, 5), online("d", 1, 4), num_blocks=5)
"""a, d, c make 3 hops; a and d alone make 2 where d holds 2:5."""


def test_what_the_solver_is_given():
    state = swarm(
        online("a", 0, 4, offline={2}),
        joining("b", 1, 3),
        online("c", 0, 2),
        online("d", 2, 4),
        online("e", 0, 3, uncertain=True),
    )
    formulation = posed(state, cordons=("c",), max_hops=2)
    assert formulation.problem.max_hops == 2
    # What is offline cannot be passed through; who is joining counts as in the plan's `after`.
    assert formulation.problem.base_spans == (Span(0, 2), Span(3, 4), Span(1, 3), Span(0, 2), Span(0, 3))
    assert formulation.staying().max_hops is None
    assert posed(state).problem.max_hops is None
    drained = posed(swarm(online("a", 0, 4), online("b", 0, 4), online("c", 0, 4)), drains=("a",), cordons=("b",))
    assert drained.problem.base_spans == (Span(0, 4),)


def test_too_few_hops_are_refused_with_the_fewest_there_can_be():
    with pytest.raises(InfeasibleDemands) as caught:
        posed(LONG_WAY, max_hops=1)
    assert str(caught.value) == (
        "--max-hops 1 cannot be kept: with the lengths that the servers may take, a request needs 2 of them at least"
    )
    plan = planned(LONG_WAY, max_hops=1)
    assert (plan.status, plan.warnings[0], plan.before.hops) == ("infeasible", str(caught.value), 3)
    # With other lengths it can be kept: d is given the whole model.
    agent = serving(capacity=5)
    longer = swarm(*LONG_WAY.servers[:3], online("d", 1, 4, agent=agent), num_blocks=5)
    assert posed(longer, max_hops=1, resize=True).problem.max_hops == 1


def test_a_swarm_too_small_for_its_model_is_planned_all_the_same():
    plan = planned(swarm(online("a", 0, 2), num_blocks=4), max_hops=1)
    assert (plan.status, plan.after.hops) == ("nothing_to_do", None)
    assert "--max-hops 1 says nothing here: blocks are left without a server" in plan.warnings


def test_a_swarm_that_was_seen_in_part_is_not_measured_by_it():
    state = SwarmState("model", 5, NOW, LONG_WAY.servers, (), partial=True)
    assert posed(state, max_hops=1).problem.max_hops is None


def solving(monkeypatch, placement, **fields):
    """Let the search end with this placement, and tell the problems and hints that it was given."""
    asked = []

    def solve(problem, limits: Limits, *, hints=(), **_):
        asked.append((problem, limits, hints))
        spans = tuple(server.current for server in problem.servers) if problem.max_hops is None else placement
        return Solution(spans, Status.OPTIMAL, 10.0, 0.0, (), 0.0, 1.0, **fields)

    monkeypatch.setattr(planning, "solve", solve)
    return asked


def test_keeping_the_limit_is_worth_a_move_whatever_the_least_gain(monkeypatch):
    asked = solving(monkeypatch, (Span(0, 2), Span(2, 4), Span(4, 5), Span(2, 5)), bound_by="prices")
    plan = planning.make_plan(LONG_WAY, Policy(max_hops=2, min_gain=MinGain(rps=1e6)), now=NOW)
    recount(plan, LONG_WAY)
    assert [problem.max_hops for problem, _, _ in asked] == [None, 2]
    assert (plan.status, moves(plan), plan.before.hops, plan.after.hops) == ("feasible", {"d": (2, 5)}, 3, 2)
    assert plan.objective.bound_by == "prices"


def test_one_server_goes_farther_where_that_makes_the_way_short_enough():
    plan = planned(LONG_WAY, max_hops=2)
    recount(plan, LONG_WAY)
    assert (moves(plan), plan.before.hops, plan.after.hops) == ({"d": (2, 5)}, 3, 2)


def test_the_limit_opens_no_hole(monkeypatch):
    solving(monkeypatch, (Span(0, 2), Span(1, 3), Span(4, 5), Span(0, 3)))
    plan = planning.make_plan(LONG_WAY, Policy(max_hops=2), now=NOW)
    assert (plan.status, plan.moves) == ("infeasible", ())
    assert plan.warnings[0].startswith("--max-hops 2 cannot be kept: no placement was found")


def test_what_no_placement_keeps_is_said_by_the_solver_too(monkeypatch):
    def solve(*_, **__):
        raise planning.Infeasible("the demands contradict each other")

    monkeypatch.setattr(planning, "solve", solve)
    plan = planning.make_plan(LONG_WAY, Policy(max_hops=2), now=NOW)
    assert (plan.status, plan.warnings[0]) == ("infeasible", "the demands contradict each other")


def test_without_a_limit_staying_is_not_left_for_fewer_hops():
    plan = planned(LONG_WAY)
    assert (plan.status, plan.after.hops) == ("nothing_to_do", 3)
    assert not assemble._too_many_hops(posed(LONG_WAY).problem, None)
