"""The integer program: it counts what the validator counts, and CP-SAT can count with its numbers."""

from __future__ import annotations

import random

import pytest
from ortools.sat.python import cp_model

from solver import Span, evaluate, exact
from solver.model import PlacementModel
from tests.solver.cases import CHURN, churn, holds, problem, solved, spans, waits
from tests.solver.exhaustive import allowed

LIMIT = 2**31


def row_sums(model: cp_model.CpModel) -> list[int]:
    """What the coefficients of each linear row, and of the objective, sum up to in absolute value."""
    rows = [constraint.linear.coeffs for constraint in model.proto.constraints if constraint.has_linear()]
    return [sum(map(abs, row)) for row in (*rows, model.proto.objective.coeffs)]


def fixed(model: PlacementModel, placement) -> cp_model.CpSolver:
    """The model's optimum with the hint's values for all that is hinted."""
    model.hint(placement)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return solver


def random_placement(rng, case):
    return tuple(Span(*rng.choice(allowed(case, server))) for server in case.servers)


ROWS = (
    holds("0:2", 762.9, seconds=27.3),
    holds("0:2", 762.9, seconds=27.3),
    holds("1:4", {1: 33.3, 3: 10.1, 5: 4.0}, seconds=(7.0, 28.0, 7.0, 7.0, 28.0, 0.0, 1.5)),
    holds("4:6", 0.0, may_stay=False),
    waits(3, 0.1),
    waits(2, 12.5, only="2:4"),
)


@pytest.mark.parametrize("horizon", [60.0, 14_400.0])
def test_it_counts_what_the_validator_counts(horizon):
    rng = random.Random(0)
    base = (5.0, 0.0, 0.3, 0.0, 0.0, 0.0, 2.0)
    case = problem(7, *ROWS, base=base, horizon=horizon, min_replicas=2)
    for _ in range(20):
        placement = random_placement(rng, case)
        worth = evaluate(case, placement)
        exact = {"loads": worth.loads, "moves": worth.moves, "distance": worth.distance}
        exact["missing_replicas"] = worth.missing_replicas
        for name, value in exact.items():
            model = PlacementModel(case, 7)
            model.model.minimize(getattr(model, name)())
            assert fixed(model, placement).objective_value == value
        model = PlacementModel(case, 7)
        model.model.minimize(model.count_holes())
        assert fixed(model, placement).objective_value == worth.holes
        model = PlacementModel(case, 7)
        model.count_holes()
        model.model.maximize(model.objective())
        value = fixed(model, placement).objective_value * model.scale.rps - model.fixed_penalty
        assert worth.objective - model.rounding_slack <= value <= worth.objective + 1e-9
        model = PlacementModel(case, 7)
        model.model.maximize(model.weakest())
        value = fixed(model, placement).objective_value * model.scale.rps
        assert worth.weakest - 2 * model.rounding_slack <= value <= worth.weakest + 1e-9


@pytest.mark.parametrize("path", CHURN, ids=lambda path: path.stem)
def test_it_takes_hints_of_real_size(path):
    case = churn(path)
    model = PlacementModel(case, case.num_blocks)
    model.count_holes()
    model.model.maximize(model.objective())
    fixed(model, tuple(server.current for server in case.servers))


def test_the_placement_of_equal_servers_comes_back_in_order():
    case = problem(6, *[holds("0:2", 4.0)] * 3, holds("2:4", 1.0))
    model = PlacementModel(case, 6)
    solver = fixed(model, spans("4:6 0:2 2:4 1:3"))
    assert model.placement(list(solver.response_proto.solution)) == spans("0:2 2:4 4:6 1:3")


# --- sums of coefficients


@pytest.mark.parametrize("path", CHURN, ids=lambda path: path.stem)
@pytest.mark.parametrize("holes", [0, 80])
def test_sums_on_real_instances(path, holes):
    model = PlacementModel(churn(path), holes)
    if holes:
        model.count_holes()
    else:
        model.cover_all()
    model.model.add(model.objective() >= 0)
    model.model.add(model.loads() <= 10**6)
    model.model.add(model.distance() <= 10**6)
    model.model.maximize(model.weakest())
    assert max(row_sums(model.model)) < LIMIT


@pytest.fixture
def solves(monkeypatch):
    """The largest sum of each solve of a search, the rows that fix its levels included."""
    seen = []
    run = exact.run

    def look(model, **more):
        seen.append(max(row_sums(model)))
        return run(model, **more)

    monkeypatch.setattr(exact, "run", look)
    return seen


def test_sums_of_many_orders(solves):
    # The order of all targets at once, in powers of 16, would need 2^64.
    assert solved(problem(16, *[waits(1, 1.0, seconds=n / 64) for n in range(16)])).stages[-1].proven
    assert len(solves) > 8
    assert max(solves) < LIMIT


@pytest.mark.parametrize("rps", [1e7, 1.0, 1e-6])
@pytest.mark.parametrize("horizon", [1e-3, 60.0, 1e12])
def test_sums_of_extreme_numbers(solves, rps, horizon):
    rows = [holds("0:3", rps * (1 + n / 7), seconds=27.3) for n in range(3)]
    solved(problem(8, *rows, waits(2, rps / 3, seconds=1e6), holds("1:2", {1: 1e7, 4: 1e-6}), horizon=horizon))
    assert max(solves) < LIMIT
