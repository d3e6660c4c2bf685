"""The sweep's bound on the bottleneck against trying every placement."""

from __future__ import annotations

import random

import pytest

from solver import ceiling
from solver.ceiling import bottleneck_ceiling
from tests.solver.cases import holds, problem, waits
from tests.solver.exhaustive import best_bottleneck


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


def test_it_knows_nothing_where_lengths_are_to_be_chosen():
    assert bottleneck_ceiling(problem(3, holds("0:1", {1: 2.0, 2: 1.0})), 0.0) is None


def test_it_knows_nothing_of_many_servers():
    assert bottleneck_ceiling(problem(3, *[waits(1, 1.0)] * 13), 0.0) is None


def test_volume_is_not_enough():
    # 2 servers of 2 blocks for 3 blocks: the volume would give 4/3, but one block has only one of them.
    assert bottleneck_ceiling(problem(3, waits(2, 1.0), waits(2, 1.0)), 0.0) == 1.0
