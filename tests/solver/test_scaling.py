"""Integers claim no more than floats hold, and say how much less."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.model import PlacementModel
from solver.scaling import MAX_ROW_SUM, choose_scale
from tests.solver.cases import CHURN, churn, holds, problem

RPS = st.floats(1e-9, 1e7)


@given(RPS, st.floats(1e-3, 1e12))
def test_down_and_up_enclose(rps, row):
    scale = choose_scale(row)
    if rps <= row:
        assert scale.down(rps) * scale.rps <= rps <= scale.up(rps) * scale.rps
        assert scale.up(rps) - scale.down(rps) <= 1
    assert row / 2 < MAX_ROW_SUM * scale.rps / 1.0
    assert row <= MAX_ROW_SUM * scale.rps


def test_exact_where_it_can_be():
    scale = choose_scale(1000.0)
    assert scale.down(0.75) * scale.rps == 0.75 == scale.up(0.75) * scale.rps


def row_sums(model: PlacementModel) -> list[int]:
    """What the coefficients of each linear row sum up to, in absolute value, but for the bottleneck's big-M."""
    return [
        sum(abs(coefficient) for coefficient in constraint.linear.coeffs)
        for constraint in model.model.proto.constraints
        if constraint.has_linear()
    ]


def test_rows_stay_below_the_limit_on_real_instances():
    for path in CHURN:
        model = PlacementModel(churn(path), 0)
        model.cover_all()
        model.model.maximize(model.objective())
        assert max(row_sums(model)) < 2**31
        assert sum(abs(c) for c in model.model.proto.objective.coeffs) < 2**31


def test_rows_stay_below_the_limit_with_extreme_numbers():
    for rps in (1e7, 1.0, 1e-6):
        for horizon in (1e-3, 1e12):
            case = problem(40, *[holds(f"{i}:{i + 20}", rps) for i in range(20)], horizon=horizon)
            model = PlacementModel(case, 40)
            model.count_holes()
            model.weakest()
            assert max(row_sums(model)) < 2**31


def test_the_slack_is_the_sum_of_what_rounding_takes():
    case = problem(2, holds("0:1", 1 / 3), holds("1:2", 0.5), horizon=1e12)
    model = PlacementModel(case, 0)
    lost = sum(rps - np.floor(rps * model.scale.units) / model.scale.units for rps in (1 / 3, 0.5))
    assert lost <= model.rounding_slack <= lost + 4 / model.scale.units
