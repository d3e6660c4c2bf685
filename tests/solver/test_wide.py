"""The search for larger swarms, on swarms small enough to try every placement, and on real ones."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from solver import Limits, Status, evaluate, solve, stages
from solver.branch import Branching
from solver.choices import choices_of
from solver.prices import best_prices
from tests.solver.cases import CHURN, churn, holds, problem, solved, spans, waits
from tests.solver.exhaustive import rank
from tests.solver.test_exhaustive import random_problem

BRIEF = Limits(0.4, 1, deterministic=True)
BATCHES, EACH = 8, 16


@pytest.fixture
def always_wide(monkeypatch):
    """No swarm is too small for it."""
    monkeypatch.setattr(stages, "FEW_SPANS", -1)
    monkeypatch.setattr(stages, "FEW_SERVERS", -1)
    monkeypatch.setattr(stages, "ALIKE_SPANS", -1)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_bound_is_below_the_best_there_is(batch):
    rng = random.Random(5000 + batch)
    for _ in range(EACH):
        case = random_problem(rng, dyadic=False)
        ranked = rank(case)
        if ranked is None or ranked.holes or not any(server.only is None for server in case.servers):
            continue
        best = ranked.best_objective()
        reached = float(best) - rng.choice([0.0, 1e-3, 1.0, 100.0])
        choices = choices_of(case)
        prices = best_prices(choices, reached, lambda _seconds: True)
        assert Fraction(prices.bound) >= best, case
        branching = Branching(choices, prices)
        for _, _ in zip(range(20), branching.run(lambda reached=reached: reached), strict=False):
            assert Fraction(branching.bound) >= best, case


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.usefixtures("always_wide")
def test_what_it_finds_keeps_all_demands_and_is_hardly_ever_not_the_best(batch):
    rng = random.Random(6000 + batch)
    missed = 0
    for _ in range(EACH):
        case = random_problem(rng, dyadic=False)
        ranked = rank(case)
        if ranked is None:
            continue
        found = solved(case, BRIEF)
        worth, best = evaluate(case, found.placement), ranked.best_objective()
        tiny = Fraction(1e-12 * abs(float(best)))  # where there is only one placement, the bound is its evaluation
        higher = ranked.holes < worth.holes or ranked.missing < worth.missing_replicas
        assert Fraction(found.bound) >= best - tiny or higher
        close = (worth.holes, worth.missing_replicas) == (ranked.holes, ranked.missing) and best - Fraction(
            worth.objective
        ) <= Fraction(1e-9 * abs(float(best)) + 2 * found.rounding_slack)
        missed += not close
        if found.status is Status.OPTIMAL:
            assert close, case
    assert missed <= 1


def test_the_price_of_a_limit_on_moves():
    # Of three equal holders of block 0 two should move, and one may.
    rows = [holds("0:1", 6.0) for _ in range(3)]
    free, one = (problem(3, *rows, max_moves=limit) for limit in (None, 1))
    assert best_prices(choices_of(free), 6.0, lambda _: True).bound == pytest.approx(6.0, rel=1e-3)
    bound = best_prices(choices_of(one), 0.0, lambda _: True).bound
    assert bound < 4.0  # 18 RPS on three blocks, of which only 6 may leave the first: 3 for each of the others


def test_the_weights_are_the_blocks_that_lack():
    case = problem(4, waits(1, 4.0), waits(1, 4.0), base=(1.0, 2.0, 9.0, 9.0))
    prices = best_prices(choices_of(case), 5.0, lambda _: True)
    assert prices.bound == pytest.approx(5.5, rel=1e-3)  # (1 + 2 + 4 + 4) / 2: split evenly over the first two
    assert prices.weights[:2].sum() == pytest.approx(1.0, abs=1e-2)


def test_branching_proves_what_prices_cannot():
    case = problem(4, waits(1, 4.0), waits(1, 4.0, seconds=2.0), base=(1.0, 2.0, 9.0, 9.0), horizon=1e12)
    branching = Branching(choices_of(case), best_prices(choices_of(case), 5.0, lambda _: True))
    reached = evaluate(case, spans("0:1 1:2")).objective
    for _ in branching.run(lambda: reached):
        pass
    assert branching.bound == pytest.approx(reached, rel=1e-11)


@pytest.mark.parametrize("path", CHURN[1:], ids=lambda path: path.stem)
def test_the_same_plan_whatever_the_workers(path):
    """And by the same work; the clock has no part in it."""
    case = churn(path)
    one, other = (solve(case, Limits(1.5, workers, deterministic=True)) for workers in (1, 4))
    assert (one.placement, one.bound, one.bound_by) == (other.placement, other.bound, other.bound_by)
    assert one.placement != tuple(server.current for server in case.servers)


def test_the_same_plan_of_a_small_swarm_whatever_the_workers():
    case = churn(CHURN[0])
    one, two, four = (solve(case, Limits(1.0, workers, deterministic=True)) for workers in (1, 2, 4))
    assert one.placement == two.placement == four.placement
    assert one.bound == two.bound == four.bound


@pytest.mark.usefixtures("always_wide")
def test_a_chain_as_short_as_is_asked_for():
    rows = [holds("0:2", 5.0), holds("2:4", 5.0), holds("4:6", 5.0), holds("0:3", 4.0), holds("1:4", 3.0)]
    case = problem(6, *rows)
    assert evaluate(case, tuple(server.current for server in case.servers)).hops == 3
    two = problem(6, *rows, max_hops=2)
    found = solved(two, BRIEF)
    assert evaluate(two, found.placement).hops == 2
    assert found.placement[3:] == spans("0:3 3:6")


def test_a_long_way_in_a_large_swarm():
    case = churn(CHURN[3])
    shortest = problem(case.num_blocks, max_hops=1)
    assert shortest.max_hops == 1
    for hops in (1, 2):
        limited = case.__class__(**{**case.__dict__, "max_hops": hops})
        found = solve(limited, Limits(1.0, 1, deterministic=True))
        worth = evaluate(limited, found.placement)
        assert worth.hops is not None
        assert worth.hops <= hops
        assert found.bound >= worth.objective


@pytest.mark.usefixtures("always_wide")
def test_ties_go_to_the_plan_under_way():
    # Two strong newcomers are equal; either may take the hole, and the plan under way says which.
    rows = [waits(2, 5.0, seconds=1.0), waits(2, 5.0, seconds=2.0)]
    case = problem(4, *rows, horizon=1e15)
    for under_way in (spans("0:2 2:4"), spans("2:4 0:2")):
        assert solve(case, BRIEF, under_way=under_way).placement == under_way


def test_one_that_leaves_is_planned_around_from_the_plan_under_way():
    case = churn(CHURN[1])
    earlier = solve(case, Limits(2.0, 1, deterministic=True)).placement
    gone = int(np.argmax([server.throughput[server.current.length] for server in case.servers]))
    left = case.__class__(**{**case.__dict__, "servers": tuple(s for i, s in enumerate(case.servers) if i != gone)})
    under_way = tuple(span for index, span in enumerate(earlier) if index != gone)
    again = solve(left, Limits(1.0, 1, deterministic=True), under_way=under_way)
    anew = solve(left, Limits(1.0, 1, deterministic=True))
    kept = [sum(one != other for one, other in zip(found.placement, under_way, strict=True)) for found in (again, anew)]
    assert kept[0] < kept[1]
    worth, worth_anew, before = (evaluate(left, found) for found in (again.placement, anew.placement, under_way))
    assert worth.objective >= max(before.objective, 0.99 * worth_anew.objective)
