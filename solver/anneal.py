"""A local search over soft minima: good placements in a fraction of a second, from which the proof starts.

The bottleneck is flat nearly everywhere: most moves leave it as it is. Its soft minimum
``-log(sum_b exp(-beta * throughput[b])) / beta`` is not, and comes to the bottleneck as beta grows. One server
after another is taken out and put back where the soft minimum less the reload penalty is best, up to a little
noise; all its spans are priced at once by prefix sums, as adding the server divides the summands of its blocks
by ``exp(beta * rps)``. Beta grows over the sweeps, the noise fades with it, and many walks go side by side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.problem import Floats, Ints, Placement, Problem, Span

WALKS = 32
"""Walks side by side; a step costs little more for 32 than for one."""
SWEEPS = 60
FIRST_BETA, LAST_BETA = 3.0, 300.0
"""Beta in units of one over the mean throughput of a block. A sharper end only freezes the walks earlier."""
NOISE = 0.2
"""Noise on a span's price in units of one over beta, divided by the number of servers: a single server
changes the soft minimum by about that share."""


def anneal(problem: Problem, start: Placement, seed: int, keep_on: Callable[[], bool]) -> list[Placement]:
    """Walk from `start` and give the last placement of each walk, without repetitions.

    Parameters
    ----------
    start
        A valid placement.
    keep_on
        Asked before every step: False ends the walks where they are.
    """
    return _Walks(problem, start, seed).run(keep_on)


class _Walks:
    """`taken[server, walk]` is the index of the span that a server has; the sums per walk follow it."""

    def __init__(self, problem: Problem, start: Placement, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng(seed)
        self._servers = [_Choices(problem, index) for index in range(len(problem.servers))]
        self._taken: Ints = np.array(
            [[choices.index(span)] * WALKS for choices, span in zip(self._servers, start, strict=True)]
        )
        self._throughput: Floats = np.tile(np.array(problem.base_throughput), (WALKS, 1))
        self._moves, self._loads = np.zeros(WALKS, dtype=np.int64), np.zeros(WALKS, dtype=np.int64)
        for index in range(len(self._servers)):
            self._put(index, 1)

    def run(self, keep_on: Callable[[], bool]) -> list[Placement]:
        scale = max(float(self._throughput.mean()), 1e-9)
        free = [index for index, choices in enumerate(self._servers) if choices.starts.size > 1]
        for beta in np.geomspace(FIRST_BETA, LAST_BETA, SWEEPS) / scale:
            for index in self._rng.permutation(free):
                if not keep_on():
                    return self._placements()
                self._put(index, -1)
                self._taken[index] = self._best(self._servers[index], beta)
                self._put(index, 1)
        return self._placements()

    def _put(self, index: int, sign: int) -> None:
        """Add a server's part to the sums of each walk, or take it out again."""
        choices, taken = self._servers[index], self._taken[index]
        blocks = np.arange(self._problem.num_blocks)
        inside = (blocks >= choices.starts[taken][:, None]) & (blocks < choices.ends[taken][:, None])
        self._throughput += inside * (sign * choices.rps[taken])[:, None]
        self._moves += sign * choices.moves[taken]
        self._loads += sign * choices.loads[taken]

    def _best(self, choices: _Choices, beta: float) -> Ints:
        """The span to take in each walk, shape ``(walks,)``."""
        weight = np.exp(-beta * (self._throughput - self._throughput.min(axis=1, keepdims=True)))
        before = np.zeros((WALKS, self._problem.num_blocks + 1))
        np.cumsum(weight, axis=1, out=before[:, 1:])
        relieved = (before[:, choices.ends] - before[:, choices.starts]) * -np.expm1(-beta * choices.rps)
        price = -np.log(np.maximum(before[:, -1:] - relieved, 1e-300)) / beta - choices.penalty
        price += self._rng.gumbel(size=price.shape) * (NOISE / (beta * len(self._servers)))
        for limit, used, needs in (
            (self._problem.max_moves, self._moves, choices.moves),
            (self._problem.max_loads, self._loads, choices.loads),
        ):
            if limit is not None:
                price[used[:, None] + needs > limit] = -np.inf
        best: Ints = np.argmax(price, axis=1)
        return best

    def _placements(self) -> list[Placement]:
        return [
            tuple(Span(int(c.starts[k]), int(c.ends[k])) for c, k in zip(self._servers, walk, strict=True))
            for walk in np.unique(self._taken.T, axis=0)
        ]


class _Choices:
    """The spans of one server: all arrays have shape ``(number of spans,)``; throughput and penalty in RPS."""

    def __init__(self, problem: Problem, index: int) -> None:
        server = problem.servers[index]
        self.starts, self.ends = problem.candidates(server)
        lengths = self.ends - self.starts
        self.rps: Floats = np.array([server.throughput[int(length)] for length in lengths])
        seconds = np.array(server.load_seconds)
        self.moves: Ints = np.ones_like(self.starts)
        self.loads: Ints = lengths
        if server.current is not None:
            start, end = server.current
            seconds[start:end] = 0.0
            self.moves = ((self.starts != start) | (self.ends != end)).astype(np.int64)
            self.loads = lengths - np.maximum(0, np.minimum(self.ends, end) - np.maximum(self.starts, start))
        before = np.concatenate(([0.0], np.cumsum(seconds)))
        self.penalty: Floats = self.rps * (before[self.ends] - before[self.starts]) / problem.horizon

    def index(self, span: Span) -> int:
        """Where `span` stands among the choices."""
        return int(np.flatnonzero((self.starts == span.start) & (self.ends == span.end))[0])
