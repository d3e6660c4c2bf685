"""The bound from how blocks can be covered: by hand, and against all sets of servers."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from solver import covers
from solver.covers import CoverBound, Kind, Worths


def table(*rps):
    return tuple(enumerate(rps, start=1))


def test_lengths_that_pass_no_more_than_a_longer_one_are_left_out():
    assert Kind(1, table(9.0, 5.0, 3.0, 4.0)).useful(6.0) == [(4, 4.0), (2, 5.0), (1, 6.0)]


def test_what_exceeds_the_need_is_lost():
    # Two servers a block make 2, three make 3, so 1.5 is as hard to reach as 2: 4 servers cover 2 blocks, not 3.
    bound = CoverBound([0.0] * 3, [Kind(4, ((1, 1.0),))])
    assert not bound.refutes(1.0)
    assert bound.refutes(1.001)


def test_averaging_does_not_see_it():
    # On average each of 4 blocks has 1.5; but a block of 1.2 needs one of 1.6, or two of 1.0.
    bound = CoverBound([0.0] * 4, [Kind(2, ((1, 1.6),)), Kind(3, ((1, 1.0),))])
    assert bound.refutes(1.2)
    assert not bound.refutes(1.0)


def test_constants_are_no_servers():
    bound = CoverBound([1.0, 0.0], [Kind(1, ((1, 1.0),))])
    assert not bound.refutes(1.0)
    assert bound.refutes(1.001)


def test_nobody_is_left_to_supply_anything():
    assert CoverBound([1.0], []).refutes(1.1)
    assert not CoverBound([1.0], []).refutes(1.0)


def test_told_to_stop_it_refutes_nothing():
    assert not CoverBound([0.0] * 3, [Kind(4, ((1, 1.0),))]).refutes(1.001, lambda: False)


def random_kinds(rng):
    return [
        Kind(
            rng.randint(1, 3),
            table(*(rng.choice([1.0, 2.0, 2.5, rng.uniform(0, 4)]) for _ in range(rng.randint(1, 3)))),
        )
        for _ in range(rng.randint(1, 2))
    ]


@pytest.mark.parametrize("sets", [covers.MAX_SETS, 4])
def test_no_set_of_servers_covers_for_less(sets, monkeypatch):
    monkeypatch.setattr(covers, "MAX_SETS", sets)
    monkeypatch.setattr(covers, "FEW_SETS", sets)
    rng, seen = random.Random(0), 0
    for _ in range(80):
        kinds, threshold = random_kinds(rng), rng.uniform(0.5, 6)
        base = [rng.choice([0.0, 0.5]) for _ in range(4)]
        _, worths = CoverBound(base, kinds).look(threshold)
        if worths is None:
            continue
        seen += 1
        for need in {threshold - one for one in base if threshold > one}:
            assert worths.of_need(need * (1 - 1e-12)) <= cheapest(kinds, worths, need, threshold) + 1e-9
    assert seen > 20


def cheapest(kinds: list[Kind], worths: Worths, need: float, threshold: float) -> float:
    """The least worth of servers that supply the need, each with any of its lengths or none."""
    choices = []
    for kind, worth in zip(kinds, worths.worth, strict=True):
        rps = dict(kind.rps)
        choices += [[(0.0, 0.0), *((min(rps[n], threshold), w) for n, w in worth.items())]] * kind.count
    sums = ([sum(part) for part in zip(*some, strict=True)] for some in itertools.product(*choices))
    return min((cost for supply, cost in sums if supply >= need), default=np.inf)
