"""The objective of design.md by trying every placement: slow, exact, and sharing no code with the solver.

All placements are first sifted in floats; those that remain are told apart in whole numbers. A float is a whole
number over a power of two, and the objective times the horizon needs no division, so nothing is ever rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solver import Problem

NEAR = 1e-9
"""Placements worse than the best by this share of all terms cannot be ties that floats hide."""


@dataclass(frozen=True)
class Ranked:
    """The placements that survive the demands and the first two priorities, best first in no order.

    All arrays have one entry (row) a placement, in lexicographic order of the targets. `objective` and
    `weakest` are exact: whole numbers to be divided by `unit` and `weak_unit`.
    """

    targets: list[list[tuple[int, int]]]
    holes: int
    missing: int
    choices: np.ndarray
    objective: np.ndarray
    unit: Fraction
    loads: np.ndarray
    moves: np.ndarray
    weakest: np.ndarray
    weak_unit: Fraction
    distance: np.ndarray

    def best_objective(self) -> Fraction:
        return int(self.objective.max()) / self.unit

    def best(self) -> tuple[tuple[int, int], ...]:
        """The targets that all priorities lead to."""
        rows = np.arange(len(self.loads))
        for level in (-self.objective, self.loads, self.moves, -self.weakest, self.distance):
            rows = rows[level[rows] == level[rows].min()]
        return self.placement(int(rows[0]))

    def placement(self, row: int) -> tuple[tuple[int, int], ...]:
        return tuple(spans[choice] for spans, choice in zip(self.targets, self.choices[row], strict=True))


def allowed(problem: Problem, server) -> list[tuple[int, int]]:
    """The targets that a server may take, in ascending order."""
    found = []
    for start in range(problem.num_blocks):
        for end in range(start + 1, problem.num_blocks + 1):
            target = (start, end)
            if end - start not in server.throughput or (server.only is not None and target != tuple(server.only)):
                continue
            if not server.may_stay and server.current is not None and target == tuple(server.current):
                continue
            found.append(target)
    return found


def rank(problem: Problem, keep: float = 0.0) -> Ranked | None:
    """Try all placements; None if none keeps the demands.

    `keep` is a distance to the best objective (RPS) within which placements are kept although they are no ties.
    """
    blocks, servers = problem.num_blocks, problem.servers
    targets = [allowed(problem, server) for server in servers]
    columns = [_columns(problem, server, spans) for server, spans in zip(servers, targets, strict=True)]

    throughput, replicas = np.array([problem.base_throughput]), np.array([problem.base_replicas], dtype=np.int16)
    penalty, loads, moves = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for one in columns:
        throughput = (throughput[:, None] + one.held * one.rps[:, None]).reshape(-1, blocks)
        replicas = (replicas[:, None] + one.held).reshape(-1, blocks)
        penalty = np.add.outer(penalty, one.rps * one.seconds / problem.horizon).ravel()
        loads, moves = np.add.outer(loads, one.loads).ravel(), np.add.outer(moves, one.moves).ravel()

    rows = np.arange(len(loads))
    if problem.max_moves is not None:
        rows = rows[moves[rows] <= problem.max_moves]
    if problem.max_loads is not None:
        rows = rows[loads[rows] <= problem.max_loads]
    holes = (replicas == 0).sum(axis=1)
    if problem.max_hops is not None:
        rows = rows[_short_enough(problem, targets)[rows] | (holes[rows] > 0)]
    if not rows.size:
        return None
    rows = rows[holes[rows] == holes[rows].min()]
    missing = np.maximum(0, problem.min_replicas - replicas).sum(axis=1)
    rows = rows[missing[rows] == missing[rows].min()]
    bottleneck = np.where(replicas[rows] > 0, throughput[rows], np.inf).min(axis=1)
    bottleneck[np.isinf(bottleneck)] = 0.0
    objective = bottleneck - penalty[rows]
    near = NEAR * (throughput[rows].max(initial=0.0) + penalty[rows].max(initial=0.0)) + keep
    rows = rows[objective >= objective.max() - near]

    choices = np.array(np.unravel_index(rows, [len(spans) for spans in targets])).T.reshape(len(rows), len(servers))
    exact = _Exact(problem, columns)
    objective, weakest = exact.levels(choices, replicas[rows] > 0)
    return Ranked(
        targets,
        int(holes[rows[0]]),
        int(missing[rows[0]]),
        choices,
        objective,
        exact.unit,
        loads[rows],
        moves[rows],
        weakest,
        exact.weak_unit,
        sum((one.distance[choices[:, s]] for s, one in enumerate(columns)), np.zeros(len(rows), dtype=np.int64)),
    )


def _short_enough(problem: Problem, targets: list[list[tuple[int, int]]]) -> np.ndarray:
    """For every placement, whether at most `max_hops` spans that are held reach from end to end."""
    shape = [len(spans) for spans in targets]
    # Where a chain may come to, block by block, with one span more in each round.
    held = [
        np.expand_dims(np.array(spans).reshape(-1, 2), tuple(n for n in range(len(shape)) if n != index))
        for index, spans in enumerate(targets)
    ]
    reach = np.zeros(shape, dtype=np.int16)
    for _ in range(problem.max_hops or 0):
        farther = reach.copy()
        for span in held:
            start, end = span[..., 0], span[..., 1]
            farther = np.where(start <= reach, np.maximum(farther, end), farther)
        for start, end in problem.base_spans:
            farther = np.where(start <= reach, np.maximum(farther, end), farther)
        reach = farther
    return (reach >= problem.num_blocks).ravel()


def best_bottleneck(problem: Problem) -> float:
    """The largest bottleneck over all blocks, whatever it costs and whether or not somebody must move for it."""
    throughput = np.array([problem.base_throughput])
    for server in problem.servers:
        spans = [
            (start, start + length)
            for length in server.throughput
            for start in range(problem.num_blocks - length + 1)
            if server.only is None or server.only == (start, start + length)
        ]
        one = _columns(problem, server, spans)
        throughput = (throughput[:, None] + one.held * one.rps[:, None]).reshape(-1, problem.num_blocks)
    return float(throughput.min(axis=1).max())


@dataclass(frozen=True)
class _Columns:
    """What each target of one server means: arrays of one entry a target, `held` of shape (targets, blocks)."""

    held: np.ndarray
    rps: np.ndarray
    seconds: np.ndarray
    loaded: list[list[int]]
    loads: np.ndarray
    moves: np.ndarray
    distance: np.ndarray


def _columns(problem: Problem, server, spans: list[tuple[int, int]]) -> _Columns:
    now = set() if server.current is None else set(range(server.current[0], server.current[1]))
    loaded = [[block for block in range(start, end) if block not in now] for start, end in spans]
    stays = [server.current is not None and target == tuple(server.current) for target in spans]
    return _Columns(
        held=np.array([[start <= block < end for block in range(problem.num_blocks)] for start, end in spans]),
        rps=np.array([server.throughput[end - start] for start, end in spans]),
        seconds=np.array([math.fsum(server.load_seconds[block] for block in some) for some in loaded]),
        loaded=loaded,
        loads=np.array([len(some) for some in loaded]),
        moves=np.array([not stay for stay in stays], dtype=np.int64),
        distance=np.array([0 if server.current is None else abs(start - server.current[0]) for start, _ in spans]),
    )


class _Exact:
    """Levels in whole numbers: RPS times `rps`, seconds times `time`, the horizon times `time` too."""

    def __init__(self, problem: Problem, columns: list[_Columns]) -> None:
        self._columns = columns
        self._quarter = -(-problem.num_blocks // 4)
        speeds = [*problem.base_throughput, *(float(rps) for one in columns for rps in one.rps)]
        times = [problem.horizon, *(seconds for server in problem.servers for seconds in server.load_seconds)]
        rps = max((Fraction(value).denominator for value in speeds), default=1)
        time = max(Fraction(value).denominator for value in times)
        self._horizon = int(Fraction(problem.horizon) * time)
        base = [int(Fraction(value) * rps) for value in problem.base_throughput]
        own = [[int(Fraction(float(value)) * rps) for value in one.rps] for one in columns]
        costs = [
            [
                value * sum(int(Fraction(server.load_seconds[block]) * time) for block in some)
                for value, some in zip(values, one.loaded, strict=True)
            ]
            for server, values, one in zip(problem.servers, own, columns, strict=True)
        ]
        largest = self._horizon * (max(base) + sum(map(max, own))) + sum(map(max, costs))
        largest = max(largest, problem.num_blocks * (max(base) + sum(map(max, own))))
        kind = np.int64 if largest < 2**62 else object
        self._base = np.array(base, dtype=kind)
        self._own = [np.array(values, dtype=kind) for values in own]
        self._costs = [np.array(values, dtype=kind) for values in costs]
        self.unit, self.weak_unit = Fraction(rps * self._horizon), Fraction(rps)

    def levels(self, choices: np.ndarray, covered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Objective and sum of the weakest quarter of each row of `choices`."""
        throughput = np.repeat(self._base[None], len(choices), axis=0)
        cost = np.zeros(len(choices), dtype=self._base.dtype)
        for column, one, own, costs in zip(choices.T, self._columns, self._own, self._costs, strict=True):
            throughput = throughput + one.held[column] * own[column][:, None]
            cost = cost + costs[column]
        ordered = np.sort(throughput, axis=1)
        above = ordered[:, -1] if ordered.size else 0
        bottleneck = np.where(covered, throughput, above[:, None]).min(axis=1)
        bottleneck = np.where(covered.any(axis=1), bottleneck, 0)
        return bottleneck * self._horizon - cost, ordered[:, : self._quarter].sum(axis=1)
