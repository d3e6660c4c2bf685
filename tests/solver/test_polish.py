from __future__ import annotations

from solver.polish import polish
from tests.solver.cases import holds, problem, spans, waits


def test_who_moved_for_nothing_stays():
    # Block 0 is the bottleneck whatever b does, and reloading is free.
    case = problem(4, holds("0:2", 5.0, seconds=0.0), holds("2:4", 7.0, seconds=0.0), holds("1:3", 7.0, seconds=0.0))
    assert polish(case, spans("0:2 2:4 2:4"), None) == spans("0:2 2:4 1:3")


def test_who_moved_for_something_does_not():
    case = problem(4, holds("0:2", 5.0), holds("0:2", 5.0))
    assert polish(case, spans("0:2 2:4"), None) == spans("0:2 2:4")


def test_a_plan_under_way_wins_ties_and_nothing_else():
    case = problem(6, *[holds("0:2", 5.0), holds("0:2", 5.0), holds("0:2", 5.0)])
    assert polish(case, spans("0:2 2:4 4:6"), spans("0:2 4:6 2:4")) == spans("0:2 2:4 4:6")  # one at a time
    free = problem(4, holds("0:2", 9.0, seconds=0.0), holds("2:4", 5.0, seconds=0.0), waits(1, 1.0, seconds=0.0))
    assert polish(free, spans("0:2 2:4 1:2"), spans("0:2 2:4 0:1")) == spans("0:2 2:4 0:1")
    assert polish(free, spans("0:2 2:4 1:2"), spans("2:4 2:4 0:1"))[:2] == spans("0:2 2:4")


def test_pins_and_forbidden_stays_are_kept():
    case = problem(
        4,
        holds("0:2", 5.0, only="2:4", seconds=0.0),
        holds("0:2", 5.0, may_stay=False, seconds=0.0),
        base=(9.0, 9.0, 9.0, 9.0),
    )
    assert polish(case, spans("2:4 1:3"), None) == spans("2:4 1:3")


def test_a_chain_that_is_short_enough_stays_so():
    case = problem(4, holds("0:2", 5.0, seconds=0.0), holds("1:3", 5.0, seconds=0.0), base=(9.0,) * 4, max_hops=2)
    assert polish(case, spans("0:2 2:4"), None) == spans("0:2 2:4")
