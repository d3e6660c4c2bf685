"""The solver against trying every placement, on random problems of up to 5 servers and 12 blocks."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from solver import Infeasible, Problem, Server, Span, Status, evaluate, exact, solve
from tests.solver.cases import AMPLE, solved
from tests.solver.exhaustive import allowed, rank

BATCHES, EACH = 16, 25
MAX_PLACEMENTS = 60_000
DYADIC = (64.0, 1024.0, 16384.0, 2.0**20)
HORIZONS = (60.0, 3_600.0, 14_400.0, 1e9)


def random_problem(rng: random.Random, *, dyadic: bool) -> Problem:
    """With `dyadic` all numbers of the objective are whole multiples of a unit that the solver can count in."""
    while True:
        blocks = rng.randint(1, 12)
        speed = rng.choice(
            [
                lambda: float(rng.choice([1, 2, 3])),
                lambda: float(rng.choice([0, 4, 5, 10])),
                lambda: float(rng.randint(0, 60)),
            ]
            if dyadic
            else [
                lambda: rng.uniform(0, 1000),
                lambda: rng.choice([0.1, 0.2, 0.3, 762.9]),
                lambda: 10 ** rng.uniform(-6, 7),
                lambda: rng.uniform(1e-6, 2e-6),
            ]
        )
        seconds = rng.choice([8.0, 28.0] if dyadic else [27.3, 28.0])
        uneven = rng.random() < 0.3
        servers = [_random_server(rng, blocks, speed, seconds, uneven) for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            servers.append(rng.choice(servers))  # interchangeable with it
        servers = servers[:5]
        base, replicas = [0.0] * blocks, [0] * blocks
        constants = []
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            start = rng.randrange(blocks)
            rps = speed()
            constants.append(Span(start, rng.randint(start + 1, blocks)))
            for block in range(*constants[-1]):
                base[block] += rps
                replicas[block] += 1
        problem = Problem(
            blocks,
            tuple(servers),
            tuple(base),
            tuple(replicas),
            horizon=rng.choice(DYADIC if dyadic else HORIZONS),
            min_replicas=rng.choice([0, 0, 0, 1, 2, 3]),
            max_moves=rng.choice([None, None, None, 1, 2, 3]),
            max_loads=rng.choice([None, None, None, 2, 4, 8, 12]),
            base_spans=tuple(constants),
            max_hops=rng.choice([None, None, None, 1, 2, 3]),
        )
        if math.prod(len(allowed(problem, server)) for server in servers) <= MAX_PLACEMENTS:
            return problem


def _random_server(rng: random.Random, blocks: int, speed, seconds: float, uneven: bool) -> Server:
    lengths = {rng.randint(1, blocks)}
    if rng.random() < 0.15:
        lengths |= {rng.randint(1, blocks), rng.randint(1, blocks)}
    elif rng.random() < 0.15:
        lengths = set(range(1, max(lengths) + 1))
    throughput = {length: speed() for length in sorted(lengths)}
    length = rng.choice(sorted(lengths))
    start = rng.randint(0, blocks - length)
    current = None if rng.random() < 0.2 else Span(start, start + length)
    only, may_stay = None, True
    if rng.random() < 0.1:
        start = rng.randint(0, blocks - length)
        only = Span(start, start + length)
    elif rng.random() < 0.15:
        may_stay = current is None or (length == blocks and len(lengths) == 1)
    cost = tuple(rng.choice([seconds, seconds / 4, 0.0]) if uneven else seconds for _ in range(blocks))
    return Server(current, throughput, cost, only, may_stay)


@pytest.fixture(autouse=True)
def _short_walks(request, monkeypatch):
    """The local search finds most optima before the proof starts: let the proof do without it in most batches."""
    monkeypatch.setattr(exact, "ROUNDS", int(request.node.callspec.params.get("batch", 1) % 8 == 0))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_very_same_placement_where_scaling_is_exact(batch):
    rng = random.Random(batch)
    for _ in range(EACH):
        problem = random_problem(rng, dyadic=True)
        ranked = rank(problem)
        if ranked is None:
            with pytest.raises(Infeasible):
                solve(problem, AMPLE)
            continue
        found = solved(problem)
        assert found.status is Status.OPTIMAL
        assert found.bound >= ranked.best_objective()
        if counts_exactly(problem, found.scale):
            assert found.placement == ranked.best(), problem
        else:
            agree_within_slack(problem, found)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_same_levels_within_the_slack(batch):
    rng = random.Random(1000 + batch)
    for _ in range(EACH):
        problem = random_problem(rng, dyadic=False)
        if rank(problem) is None:
            with pytest.raises(Infeasible):
                solve(problem, AMPLE)
        else:
            agree_within_slack(problem, solved(problem))


def counts_exactly(problem: Problem, scale: float) -> bool:
    """Whether throughput and penalties are whole numbers of units."""
    for server in problem.servers:
        for rps in server.throughput.values():
            costs = [Fraction(rps) * Fraction(s) / Fraction(problem.horizon) for s in server.load_seconds]
            if any((cost * Fraction(scale)).denominator > 1 for cost in (Fraction(rps), *costs)):
                return False
    return all((Fraction(rps) * Fraction(scale)).denominator == 1 for rps in problem.base_throughput)


def agree_within_slack(problem: Problem, found) -> None:
    """Levels agree, one after the other, as long as placements are either ties or apart by more than the slack."""
    slack = found.rounding_slack
    ranked = rank(problem, keep=4 * slack)
    worth = evaluate(problem, found.placement)
    assert found.status is Status.OPTIMAL, problem
    assert (worth.holes, worth.missing_replicas) == (ranked.holes, ranked.missing), problem
    best = ranked.best_objective()
    # Placements within the slack of each other may come in any order; from there on levels need not agree.
    tiny = Fraction(1e-12 * (sum(problem.base_throughput) + abs(worth.objective) + worth.reload_penalty))
    assert best - Fraction(worth.objective) <= Fraction(2 * slack) + tiny, problem
    assert Fraction(found.bound) >= best - tiny * (slack == 0), problem  # without slack it is a mere evaluation
    losses = [(best - int(value) / ranked.unit) for value in ranked.objective]
    if any(tiny < loss <= 4 * slack for loss in losses):
        return
    rows = np.flatnonzero([loss <= tiny for loss in losses])
    assert worth.loads == ranked.loads[rows].min(), problem
    rows = rows[ranked.loads[rows] == worth.loads]
    assert worth.moves == ranked.moves[rows].min(), problem
    rows = rows[ranked.moves[rows] == worth.moves]
    most = int(ranked.weakest[rows].max()) / ranked.weak_unit
    quarter = -(-problem.num_blocks // 4)
    assert most - Fraction(worth.weakest) <= quarter * (Fraction(2 * slack) + tiny), problem
