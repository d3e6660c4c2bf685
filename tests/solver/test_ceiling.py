"""The sweep's bound on the bottleneck against trying every placement."""

from __future__ import annotations

import random

import pytest

from solver import ceiling, evaluate
from solver.ceiling import bottleneck_ceiling
from solver.covers import CoverBound
from solver.equal_stages import equal_stages
from tests.solver.cases import Row, problem, waits
from tests.solver.exhaustive import best_bottleneck
from tests.solver.free_lengths import HELIX_30B, HELIX_70B, random_lengths


def random_case(rng):
    blocks = rng.randint(1, 9)
    speed = rng.choice(
        [lambda: float(rng.choice([1, 2, 3])), lambda: rng.uniform(0, 100), lambda: rng.choice([0, 7.3])]
    )
    tiny = rng.choice([1.0, 1.0, 1e-12, 1e5])
    rows = []
    for _ in range(rng.randint(1, 4)):
        length = rng.randint(1, blocks)
        start = rng.randint(0, blocks - length)
        pin = f"{start}:{start + length}" if rng.random() < 0.2 else None
        rows.append(waits(length, tiny * speed(), only=pin))
    return problem(blocks, *rows, base=tuple(tiny * rng.choice([0.0, speed(), speed()]) for _ in range(blocks)))


@pytest.mark.parametrize("batch", range(6))
def test_it_is_the_best_bottleneck(batch):
    rng = random.Random(batch)
    for _ in range(60):
        case = random_case(rng)
        best = best_bottleneck(case)
        for reached in (0.0, best / 2, best):
            assert bottleneck_ceiling(case, reached) == pytest.approx(best, rel=2e-12, abs=0.0)


@pytest.mark.parametrize("batch", range(3))
def test_cut_short_it_is_never_below(batch, monkeypatch):
    rng = random.Random(batch)
    for nodes in (0, 1, 3, 10):
        monkeypatch.setattr(ceiling, "MAX_NODES", nodes)
        for _ in range(15):
            case = random_case(rng)
            assert bottleneck_ceiling(case, 0.0) >= best_bottleneck(case) * (1 - 2e-12)


def test_told_to_stop_it_is_never_below(monkeypatch):
    monkeypatch.setattr(ceiling, "NODES_A_LOOK", 1)
    rng = random.Random(0)
    for asked in range(30):
        answers = iter([True] * asked)
        case = random_case(rng)
        assert bottleneck_ceiling(case, 0.0, lambda answers=answers: next(answers, False)) >= best_bottleneck(case) * (
            1 - 2e-12
        )


def test_values_a_hair_apart_are_not_taken_for_one():
    # A chain of nearly equal servers: each block gets one of them, the weakest decides.
    rows = [waits(1, 100.0 * (1 + step * 9e-10)) for step in range(4)]
    assert bottleneck_ceiling(problem(4, *rows), 0.0) == 100.0


def test_many_equal_servers_come_in_lumps():
    # 3 blocks, 13 servers: one block has at most 4 of them, whatever the average of 13/3 says.
    assert bottleneck_ceiling(problem(3, *[waits(1, 1.0)] * 13), 0.0) == 4.0


def test_of_many_different_servers_it_says_nothing():
    rng = random.Random(0)
    assert bottleneck_ceiling(problem(3, *[waits(1, rng.uniform(1, 9)) for _ in range(40)]), 0.0) is None


def test_volume_is_not_enough():
    # 2 servers of 2 blocks for 3 blocks: the volume would give 4/3, but one block has only one of them.
    assert bottleneck_ceiling(problem(3, waits(2, 1.0), waits(2, 1.0)), 0.0) == 1.0


def test_short_spans_pass_more_but_one_is_needed_everywhere():
    # Two servers, 3 blocks: 2 + 1 blocks give 1 and 3, 3 + 3 blocks give 0.4 each.
    row = Row(None, {1: 3.0, 2: 1.0, 3: 0.4}, 1.0, None, True)
    assert bottleneck_ceiling(problem(3, row, row), 0.0) == 1.0


def test_a_longer_length_that_passes_more_is_seen():
    row = Row(None, {1: 2.0, 2: 1.0, 3: 1.5}, 1.0, None, True)
    assert bottleneck_ceiling(problem(3, row), 0.0) == 1.5
    assert bottleneck_ceiling(problem(4, row, row), 0.0) == 1.5


@pytest.mark.parametrize("batch", range(4))
def test_with_free_lengths_it_is_the_best_bottleneck(batch):
    rng = random.Random(batch)
    for _ in range(30):
        case = random_lengths(rng)
        best = best_bottleneck(case)
        for reached in (0.0, best / 2, best):
            assert bottleneck_ceiling(case, reached) == pytest.approx(best, rel=2e-12, abs=0.0)


@pytest.mark.parametrize("lumps", [ceiling.MAX_LUMPS, 0])
def test_with_free_lengths_cut_short_it_is_never_below(lumps, monkeypatch):
    monkeypatch.setattr(ceiling, "FEW_LUMPS", lumps)
    monkeypatch.setattr(ceiling, "MAX_LUMPS", lumps)
    monkeypatch.setattr(ceiling, "NODES_A_LOOK", 1)
    rng = random.Random(7)
    for asked in range(40):
        answers = iter([True] * asked)
        monkeypatch.setattr(ceiling, "MAX_NODES", rng.choice([0, 1, 3, 10]))
        case = random_lengths(rng)
        bound = bottleneck_ceiling(case, 0.0, lambda answers=answers: next(answers, False))
        assert bound is None or bound >= best_bottleneck(case) * (1 - 2e-12)


@pytest.mark.parametrize("covers", [True, False])
def test_without_lumps_it_is_close(covers, monkeypatch):
    monkeypatch.setattr(ceiling, "FEW_LUMPS", 0)
    monkeypatch.setattr(ceiling, "MAX_LUMPS", 0)
    if not covers:
        monkeypatch.setattr(CoverBound, "look", lambda *_: (False, None))
    rng = random.Random(8)
    for _ in range(40):
        case = random_lengths(rng)
        best = best_bottleneck(case)
        if not best:
            continue
        bound = bottleneck_ceiling(case, best)
        assert bound is None or best * (1 - 2e-12) <= bound <= best * (1 + 2 * ceiling.CLOSE)


@pytest.mark.parametrize("batch", range(2))
def test_the_sweep_alone_is_exact(batch, monkeypatch):
    monkeypatch.setattr(CoverBound, "look", lambda *_: (False, None))
    rng = random.Random(20 + batch)
    for _ in range(30):
        case = random_lengths(rng)
        best = best_bottleneck(case)
        assert bottleneck_ceiling(case, 0.0) == pytest.approx(best, rel=2e-12, abs=0.0)


@pytest.mark.parametrize(("case", "best"), [(HELIX_30B, 286.6), (HELIX_70B, 2045.6)])
def test_stages_and_covers_meet_on_real_servers(case, best):
    found = equal_stages(case)
    assert evaluate(case, found).min_throughput == best
    assert bottleneck_ceiling(case, best) == best
