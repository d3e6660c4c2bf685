"""Large neighbourhood search: a few servers around the bottleneck are placed anew by CP-SAT, all others stay.

Which few is drawn at random, those first that hold a weakest block or end beside one, or have moved. With so few the
integer program is solved to its end in a fraction of a second; how many there are follows from whether it is
(Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from solver.budget import Budget
from solver.hops import reaching
from solver.model import PlacementModel
from solver.problem import Placement, Problem, Span
from solver.search import run
from solver.validator import Evaluation, InvalidPlacement, evaluate

FIRST, FEWEST, MOST = 8, 3, 24
"""Servers that are placed anew: at first, and within which bounds."""
SLICE = 1.0
"""Seconds that one solve may take."""
BUILD_SECONDS = 0.03
"""What a solve takes beside CP-SAT's own work, on a usual machine."""
MOST_SPANS = 20_000
"""Spans of the servers that are placed anew, at most: the time to build a model grows with them."""
WEAKEST = 8
"""So many of the weakest blocks are looked at in turn."""
BESIDE = 6
"""Blocks within which a span counts as beside a block."""


class Neighbourhood:
    """The best placement so far, and the draw of whom to place anew.

    Parameters
    ----------
    problem
        What is placed.
    placement
        A valid placement without holes.
    """

    def __init__(self, problem: Problem, placement: Placement, budget: Budget) -> None:
        self.problem, self.placement = problem, placement
        self.worth: Evaluation = evaluate(problem, placement)
        self._budget = budget
        self._rng = np.random.Generator(np.random.PCG64(budget.limits.seed))
        self._free = np.array([i for i, server in enumerate(problem.servers) if server.only is None], dtype=np.int64)
        self._spans = np.array([problem.candidates(problem.servers[index])[0].size for index in self._free.tolist()])
        self._size = FIRST
        self._tries = 0

    @property
    def can_improve(self) -> bool:
        """Whether there is anybody to place anew."""
        return self._free.size > 0

    def improve(self, watch: Callable[[], None], share: float) -> bool:
        """Place some servers anew; whether that was better. `watch` is called while it searches."""
        chosen = self._chosen()
        reduced = _without(self.problem, self.placement, set(range(len(self.problem.servers))).difference(chosen))
        model = PlacementModel(reduced, 0)
        model.cover_all()
        if self.problem.min_replicas:
            model.model.add(model.missing_replicas() <= self.worth.missing_replicas)
        model.model.maximize(model.objective())
        model.hint(tuple(self.placement[index] for index in chosen))
        self._tries += 1
        outcome = run(
            model.model,
            seconds=min(SLICE, self._budget.left(share)),
            workers=self._budget.limits.workers,
            seed=self._budget.limits.seed + self._tries,
            watch=lambda _incumbent, _bound: watch(),
            stop=self._budget.stop,
            deterministic=self._budget.limits.deterministic,
            brief=True,
        )
        self._budget.spend(BUILD_SECONDS + outcome.work)
        self._size = min(MOST, self._size + 1) if outcome.proven and self._tries % 3 == 0 else self._size
        if not outcome.proven:
            self._size = max(FEWEST, self._size - 1)
        if outcome.values is None:
            return False
        spans = list(self.placement)
        for index, span in zip(chosen, model.placement(outcome.values), strict=True):
            spans[index] = span
        return self._take(tuple(spans))

    def _take(self, placement: Placement) -> bool:
        try:
            worth = evaluate(self.problem, placement)
        except InvalidPlacement:
            return False
        if not worth.better_than(self.worth):
            return False
        self.placement, self.worth = placement, worth
        return True

    def _chosen(self) -> list[int]:
        weakest = np.argsort(np.array(self.worth.throughput), kind="stable")[:WEAKEST]
        block = int(self._rng.choice(weakest))
        spans = np.array([self.placement[index] for index in self._free.tolist()])
        moved = np.array([self.placement[i] != self.problem.servers[i].current for i in self._free.tolist()])
        beside = (spans[:, 0] - BESIDE <= block) & (block < spans[:, 1] + BESIDE)
        draw = self._rng.random((2, len(self._free)))
        order = np.argsort(draw[0] - beside * 0.7 - moved * draw[1], kind="stable")
        few = order[: self._size]
        within = np.cumsum(self._spans[few]) <= MOST_SPANS
        within[:1] = True
        return sorted(self._free[few[within]].tolist())


def _without(problem: Problem, placement: Placement, settled: Iterable[int]) -> Problem:
    """The problem of placing the other servers, where the settled ones have taken their spans."""
    throughput, replicas = np.array(problem.base_throughput), np.array(problem.base_replicas)
    spans: list[Span] = list(problem.base_spans)
    moves = loads = 0
    gone = set(settled)
    for index in gone:
        server, span = problem.servers[index], placement[index]
        throughput[span.start : span.end] += server.throughput[span.length]
        replicas[span.start : span.end] += 1
        spans.append(span)
        if span != server.current:
            moves += 1
            loads += span.length - (0 if server.current is None else span.overlap(server.current))
    return replace(
        problem,
        servers=tuple(server for index, server in enumerate(problem.servers) if index not in gone),
        base_throughput=tuple(throughput.tolist()),
        base_replicas=tuple(replicas.tolist()),
        base_spans=reaching(spans, problem.num_blocks),
        max_moves=None if problem.max_moves is None else problem.max_moves - moves,
        max_loads=None if problem.max_loads is None else problem.max_loads - loads,
    )
