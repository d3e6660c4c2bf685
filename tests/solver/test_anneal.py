"""The local search: whatever it finds keeps all demands, and on small problems it finds the best."""

from __future__ import annotations

import math
import threading

import pytest

from solver import Limits, Span, evaluate, rounds
from solver.anneal import LOOK, Schedule
from solver.anneal import anneal as anneal_choices
from solver.budget import Budget
from solver.choices import choices_of
from solver.start import StartingPoint
from tests.solver.cases import CHURN, churn, holds, problem, spans, waits

WALKS = Schedule(walks=32, sweeps=60)


def anneal(case, start, seed, keep_on):
    return anneal_choices(choices_of(case), start, WALKS, seed, lambda _steps: keep_on())


def best_objective(case, found):
    return max(evaluate(case, placement).objective for placement in found)


SWAP = problem(2, holds("0:1", 2.0), holds("1:2", 5.0), base=(1.0, 4.0))


def test_it_finds_a_swap():
    assert spans("1:2 0:1") in anneal(SWAP, spans("0:1 1:2"), 0, lambda: True)


def test_one_placement_a_walk_the_best_first():
    found = anneal(SWAP, spans("0:1 1:2"), 0, lambda: True)
    assert len(found) == 32
    worths = [evaluate(SWAP, placement).objective for placement in found]
    assert worths == sorted(worths, reverse=True)


def test_the_same_seed_finds_the_same():
    case = problem(6, *[holds("0:2", rps) for rps in (3.0, 3.1, 0.5, 2.0)])
    start = tuple(server.current for server in case.servers)
    assert anneal(case, start, 7, lambda: True) == anneal(case, start, 7, lambda: True)


def test_told_to_stop_it_takes_no_more_steps_than_up_to_the_next_look():
    case = problem(6, *[holds("0:2", 1.0 + number / 100) for number in range(3 * LOOK)])
    start = tuple(server.current for server in case.servers)
    asked = []

    def keep_on(steps):
        asked.append(steps)
        return len(asked) < 2

    for placement in anneal_choices(choices_of(case), start, Schedule(4, 10), 0, keep_on):
        assert 0 < evaluate(case, placement).moves <= 2 * LOOK
    assert asked == [LOOK] * 2


@pytest.mark.parametrize("lengths", [{2: 3.0}, {1: 5.0, 2: 3.0, 4: 1.0}])
def test_what_it_believes_of_its_walks_is_so(lengths):
    """The sums that follow the moves are those of the placements, whatever the lengths."""
    rows = [holds("0:2", {n: rps * (1 + k / 7) for n, rps in lengths.items()}) for k in range(7)]
    case = problem(9, *rows, waits(3, 2.0), base=(1.0,) * 9)
    start = spans("0:2 " * 7 + "6:9")
    for placement in anneal(case, start, 3, lambda: True):
        assert evaluate(case, placement).holes == 0
    assert best_objective(case, anneal(case, start, 3, lambda: True)) > evaluate(case, start).objective


def test_it_closes_holes_before_all_else():
    # Blocks 0:4 have plenty; two of the three strong servers there are needed at the holes.
    case = problem(8, *[holds("0:2", 100.0), holds("0:2", 100.0), holds("0:2", 1.0)], base=(50.0,) * 4 + (0.0,) * 4)
    best = anneal(case, spans("0:2 0:2 0:2"), 0, lambda: True)
    assert min(evaluate(case, placement).holes for placement in best) == 0


def test_it_supplies_replicas_before_throughput():
    case = problem(
        4, holds("0:2", 10.0), holds("0:2", 9.0), holds("2:4", 1.0), min_replicas=1, base=(99.0, 99.0, 0.0, 0.0)
    )
    wanted = problem(4, *[holds("0:2", 10.0), holds("0:2", 9.0), holds("0:2", 1.0)], min_replicas=2, horizon=1e9)
    assert min(evaluate(wanted, p).missing_replicas for p in anneal(wanted, spans("0:2 0:2 0:2"), 0, lambda: True)) == 2
    assert min(evaluate(case, p).missing_replicas for p in anneal(case, spans("0:2 0:2 2:4"), 0, lambda: True)) == 0


def test_what_is_not_better_is_not_given_but_for_what_lacks_servers():
    case = problem(3, holds("0:1", 9.0), holds("0:1", 1.0), base=(20.0, 5.0, 0.0))
    found = anneal_choices(choices_of(case), spans("0:1 0:1"), WALKS, 0, lambda _: True, above=7.0)
    assert found == []  # all come to 6
    found = anneal_choices(choices_of(case), spans("0:1 0:1"), WALKS, 0, lambda _: True, most=1)
    assert evaluate(case, found[0]).min_throughput == 6.0
    short = Schedule(walks=32, sweeps=0)
    kept = anneal_choices(choices_of(case), spans("0:1 0:1"), short, 0, lambda _: True, above=99.0)
    assert set(kept) == {spans("0:1 0:1")}  # a hole is there still


def test_from_a_place_that_lacks_servers_a_lower_objective_is_taken_too(monkeypatch):
    # Whoever closes the hole at block 2 lowers the bottleneck.
    case = problem(3, holds("0:1", 9.0), holds("0:1", 1.0), base=(20.0, 15.0, 0.0))
    asked, walk = [], rounds.anneal

    def noted(choices, start, *others, above, **more):
        asked.append((evaluate(case, start).holes, above))
        return walk(choices, start, *others, above=above, **more) if len(asked) > 2 else []

    monkeypatch.setattr(rounds, "anneal", noted)
    best, choices, start = StartingPoint(case), choices_of(case), spans("0:1 0:1")
    best.offer([start])
    budget = Budget(Limits(0.05, 1, deterministic=True), threading.Event())
    for found in rounds.Rounds(choices, start, None, budget, 1.0, best, lambda: None):
        best.offer(found)
    assert best.worth.holes == 0
    assert {above for holes, above in asked if holes} == {-math.inf}
    assert {above for holes, above in asked if not holes} <= {best.objective, -math.inf}


def test_two_servers_far_stronger_than_all_others_go_where_each_is_needed():
    weak = [holds("0:1", 1.0) for _ in range(50)]
    case = problem(3, holds("0:1", 100.0), holds("0:1", 100.0), *weak, base=(0.0, 0.0, 60.0))
    best = best_objective(case, anneal(case, spans("0:1 " * 52), 0, lambda: True))
    assert best == pytest.approx(101.0, abs=5.0)  # a strong one on each of blocks 0 and 1, the weak on block 2


@pytest.mark.parametrize("limits", [{"max_moves": 1}, {"max_loads": 2}, {"max_moves": 2, "max_loads": 3}])
def test_it_keeps_the_demands(limits):
    rows = (
        holds("0:2", 3.0),
        holds("0:2", 2.0, only="0:2"),
        holds("0:3", {1: 9.0, 3: 4.0}),
        waits(1, 1.0),
    )
    case = problem(6, *rows, **limits)
    start = spans("0:2 0:2 0:3 5:6")
    found = anneal(case, start, 0, lambda: True)
    assert best_objective(case, [*found, start]) >= evaluate(case, start).objective  # and evaluate refuses none


def test_a_forbidden_stay():
    case = problem(3, holds("0:1", 2.0, may_stay=False), base=(2.0, 4.0, 1.0))
    assert spans("2:3") in anneal(case, spans("1:2"), 0, lambda: True)


@pytest.mark.parametrize("rps", [0.0, 5e-324, 1e-12, 1e-6, 1e7])
@pytest.mark.parametrize("horizon", [1e-3, 1e12])
def test_extreme_numbers_raise_no_warning(rps, horizon):
    case = problem(4, holds("0:2", rps), holds("0:2", 2 * rps), waits(1, rps), horizon=horizon)
    found = anneal(case, spans("0:2 0:2 3:4"), 0, lambda: True)
    assert all(math.isfinite(evaluate(case, placement).objective) for placement in found)


def test_it_improves_a_real_instance():
    case = churn(CHURN[0])
    start = tuple(server.current for server in case.servers)
    found = anneal(case, start, 0, lambda: True)
    assert all(isinstance(target, Span) for target in found[0])
    assert best_objective(case, found) > 1000.0  # staying leaves holes; the optimum is 1115
