"""Placements made of stages: by hand, and never better than the best of all placements."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Span, evaluate
from solver import equal_stages as module
from solver.equal_stages import equal_stages
from tests.solver.cases import holds, problem, spans, waits
from tests.solver.exhaustive import best_bottleneck
from tests.solver.free_lengths import by_length, kinds_case, random_lengths


def bottleneck(case):
    return evaluate(case, equal_stages(case)).min_throughput


def test_each_takes_its_share():
    # Strong servers 3 blocks, weak ones 1: all pass 2.
    case = kinds_case(8, (2, by_length(6.0, 3.0, 2.0, 1.0)), (2, by_length(2.0, 1.0)))
    assert bottleneck(case) == 2.0


def test_weak_servers_share_a_stage():
    case = kinds_case(4, (1, by_length(4.0, 2.0, 1.0)), (2, by_length(1.5, 1.0)))
    assert equal_stages(case) in (spans("0:2 2:4 2:4"), spans("2:4 0:2 0:2"))


def test_a_longer_span_that_passes_more_is_taken():
    case = kinds_case(3, (1, {1: 1.0, 3: 2.0}), (1, {1: 1.0}))
    assert equal_stages(case)[0] == Span(0, 3)


def test_inner_stages_under_an_outer_one():
    # One server holds all 4 blocks and passes 1, the others pass 1 on 2 blocks each.
    case = kinds_case(4, (1, {4: 1.0}), (2, by_length(1.2, 1.0)))
    assert bottleneck(case) == 2.0


def test_constants_and_pins_are_built_around():
    rows = (waits(1, 3.0, only="0:1"), holds("0:1", {1: 3.0, 2: 2.0}), holds("3:4", {1: 3.0, 2: 2.0}))
    case = problem(4, *rows, base=(0.0, 2.0, 0.0, 0.0))
    assert bottleneck(case) == 3.0 - 1.0
    assert equal_stages(case)[0] == Span(0, 1)


def test_servers_of_a_kind_stay_in_order():
    table = {2: 1.0, 3: 0.5}
    case = problem(4, holds("2:4", table), holds("0:2", table))
    assert equal_stages(case) == spans("2:4 0:2")


def test_a_forbidden_span_is_not_taken():
    case = problem(2, holds("0:2", by_length(1.0, 1.0), may_stay=False), holds("0:2", by_length(2.0, 1.0)))
    assert evaluate(case, equal_stages(case)).holes == 0


def test_it_has_nothing_to_say_of_given_lengths():
    assert equal_stages(problem(3, waits(2, 1.0), waits(1, 2.0))) is None


def test_told_to_stop_it_has_nothing():
    assert equal_stages(kinds_case(2, (2, by_length(1.0, 0.5))), lambda: False) is None


@pytest.mark.parametrize("counts", [module.MAX_COUNTS, 4])
def test_it_is_valid_and_never_better_than_the_best(counts, monkeypatch):
    monkeypatch.setattr(module, "MAX_COUNTS", counts)
    rng, best_ones, seen = random.Random(3), 0, 0
    for _ in range(70):
        case = random_lengths(rng)
        found = equal_stages(case)
        if found is None:
            continue
        seen += 1
        reached, best = min(evaluate(case, found).throughput), best_bottleneck(case)
        assert reached <= best * (1 + 1e-12)
        best_ones += reached >= best * (1 - 1e-6)
    assert seen > 20
    assert counts == 4 or best_ones > seen / 2


@settings(max_examples=40, deadline=None)
@given(
    blocks=st.integers(1, 30),
    tops=st.lists(st.tuples(st.integers(1, 6), st.floats(1, 100), st.integers(1, 8)), min_size=1, max_size=3),
    stop=st.integers(0, 200),
)
def test_cut_short_it_is_valid(blocks, tops, stop):
    kinds = [(count, {n: top / n for n in range(1, min(most, blocks) + 1)}) for count, top, most in tops]
    case = kinds_case(blocks, *kinds)
    looks = iter(range(stop))
    found = equal_stages(case, lambda: next(looks, None) is not None)
    if found is not None:
        assert np.isfinite(evaluate(case, found).min_throughput)
