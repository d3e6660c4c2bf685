"""Planning on from an earlier plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner import planning
from planner.errors import InputInvalid
from planner.formulate import formulate
from planner.plan_file import load_plan
from planner.policy import Policy
from planner.published import read_plan
from planner.selection import resolve_policy
from solver.problem import Limits, Span
from tests.planner.build import NOW, joining, moves, online, planned, serving, swarm, timeless, waiting

SWAP = swarm(online("a", 2, 4, 10), online("b", 0, 2, 20), online("c", 0, 2, 20), online("d", 2, 4, 10))
CORDONS = {"cordons": ("c", "d")}


def published(plan):
    return read_plan(json.loads(json.dumps(plan.to_json())))


@pytest.fixture
def asked(monkeypatch):
    """The hints and limits that the search is given, in order."""
    calls = []
    solve = planning.solve

    def watched(problem, limits, *, hints=(), under_way=None, **others):
        calls.append((hints if under_way is None else (under_way, *hints), limits))
        return solve(problem, limits, hints=hints, under_way=under_way, **others)

    monkeypatch.setattr(planning, "solve", watched)
    return calls


def hints(state, previous, asked, **wishes):
    asked.clear()
    plan = planning.make_plan(state, Policy(workers=1, **wishes), now=NOW, previous=previous)
    return plan, asked[-1][0]


def test_the_earlier_targets_are_the_first_hint_and_staying_the_second(asked):
    earlier = planned(SWAP, **CORDONS)
    plan, given = hints(SWAP, published(earlier), asked, **CORDONS)
    assert given == ((Span(0, 2), Span(2, 4)), (Span(2, 4), Span(0, 2)))
    assert (plan.status, moves(plan)) == ("optimal", {"a": (0, 2), "b": (2, 4)})
    _, alone = hints(SWAP, None, asked, **CORDONS)
    assert alone == ((Span(2, 4), Span(0, 2)),)


def test_the_earlier_plan_does_not_enter_the_id():
    earlier = planned(SWAP, **CORDONS)
    again = planning.make_plan(SWAP, Policy(workers=1, **CORDONS), now=NOW, previous=published(earlier))
    assert again.plan_id == earlier.plan_id


def test_half_way(asked):
    # a has moved already, and there it stays; b is still to go.
    earlier = published(planned(SWAP, **CORDONS))
    state = swarm(online("a", 0, 2, 10), *SWAP.servers[1:])
    plan, given = hints(state, earlier, asked, **CORDONS)
    assert given[0] == (Span(0, 2), Span(2, 4))
    assert moves(plan) == {"b": (2, 4)}


def test_who_is_gone_is_passed_over_and_who_is_new_stays(asked):
    earlier = published(planned(SWAP, **CORDONS))
    state = swarm(*SWAP.servers[1:], online("e", 1, 3, 5), waiting("n", 2, 5))
    _, given = hints(state, earlier, asked, movable="all", **CORDONS)
    b, e, n = given[0]
    assert (b, e, n) == (Span(2, 4), Span(1, 3), given[1][2])


def test_a_target_that_is_not_to_be_had_now_is_staying(asked):
    # a is given 0:1 by an agent's word; now it may keep its length only, c is drained, d pinned elsewhere.
    agent = serving(capacity=3)
    state = swarm(online("a", 0, 2, agent=agent), online("b", 2, 4), online("c", 0, 4), online("d", 0, 2))
    earlier = published(planned(state, pins=(("a", Span(1, 4)), ("d", Span(1, 3))), drains=("c",), movable="all"))
    assert [server.target for server in earlier.servers] == [Span(1, 4), Span(0, 2), None, Span(1, 3)]
    _, given = hints(state, earlier, asked, movable="all", pins=(("d", Span(2, 4)),))
    assert given[0] == (Span(0, 2), Span(0, 2), Span(0, 4), Span(2, 4))
    _, given = hints(state, earlier, asked, movable="all", resize=True)
    assert given[0][0] == Span(1, 4)


def test_constants_are_no_part_of_it():
    state = swarm(online("a", 0, 2), online("b", 2, 4), joining("j", 2, 4))
    formulation = formulate(state, resolve_policy(state, Policy(cordons=("b",))))
    assert formulation.going_on({"a": Span(1, 3), "b": Span(0, 2), "j": Span(0, 2)}, (Span(0, 2),)) == (Span(1, 3),)


def test_a_plan_for_another_model_is_refused():
    earlier = published(planned(swarm(online("a", 0, 2), num_blocks=2)))
    with pytest.raises(InputInvalid) as caught:
        planning.make_plan(SWAP, Policy(), previous=earlier)
    assert str(caught.value) == ("the previous plan is for 'model' of 2 blocks, and the swarm read is 'model' of 4")


def test_a_bad_file_says_what_it_was_to_be_read_for(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"format": "other"}')
    with pytest.raises(InputInvalid, match=r"plan\.json is not a plan to go on from: its format is 'other'"):
        load_plan(path, "to go on from")


# --- by an amount of work


def test_every_search_is_told_to_go_by_work(asked):
    planned(SWAP, deterministic=True, time_limit=7.0, workers=1, seed=3, explain=False, **CORDONS)
    # Neither search is given a share of what the clock says is left.
    assert [limits for _, limits in asked] == [Limits(7.0, 1, 3, deterministic=True)] * 2
    asked.clear()
    planned(SWAP, time_limit=7.0, workers=1, **CORDONS)
    assert [limits.deterministic for _, limits in asked] == [False, False]


def test_explanations_go_by_work_too(monkeypatch):
    from planner import explain

    seen, solve = [], explain.solve

    def watched(problem, limits, **others):
        seen.append(limits)
        return solve(problem, limits, **others)

    monkeypatch.setattr(explain, "solve", watched)
    planned(SWAP, deterministic=True, time_limit=7.0, explain=True, **CORDONS)
    assert seen == [Limits(7.0, 1, 0, deterministic=True)] * 2


def test_it_does_not_enter_the_id_and_the_json_is_the_same_but_for_times():
    one, other = (planned(SWAP, deterministic=True, explain=True, now=now, **CORDONS) for now in (NOW, NOW + 5.0))
    assert timeless(one) == timeless(other)
    assert one.plan_id == planned(SWAP, **CORDONS).plan_id
    workers = planned(SWAP, deterministic=True, explain=True, workers=2, **CORDONS)
    assert timeless(workers) == timeless(one)


def test_what_the_clock_says_is_never_told_of_it(monkeypatch):
    solve = planning.solve
    monkeypatch.setattr(planning, "solve", lambda *a, **k: replace(solve(*a, **k), seconds=7.0))
    slow = planned(SWAP, deterministic=True, time_limit=7.0, **CORDONS)
    monkeypatch.setattr(planning, "solve", solve)
    assert timeless(slow) == timeless(planned(SWAP, deterministic=True, time_limit=7.0, **CORDONS))
