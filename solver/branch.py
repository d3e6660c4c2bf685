"""Branch and bound on prices: what integrality costs, proven for swarms of some dozens of servers.

The bound of `solver.prices` is that of the linear relaxation, in which a server may be split between spans. So the
spans of one server are parted in two, the lower and the upper ones, and each half is bounded by itself; the larger of
the two bounds holds for both together. The half with the greatest bound is parted next, always where the servers'
choices along the descent swing the most. A span whose choice alone would bring the bound below a known placement's
objective is struck out (reduced cost fixing). Many halves are bounded side by side in numpy, each from the weights of
the one that it is a half of, in a few steps: the bound is proven by any weights, and the number of halves counts for
more than the last bit of each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.choices import Choices
from solver.prices import CELL_SECONDS, FLAT, NOISE, Prices
from solver.problem import Floats

STEPS = 30
"""Steps of the descent for each half."""
SHORTER, PATIENCE, FIRST = 0.6, 3, 0.7
STRIKE = 4
"""Steps between strikings-out."""
LEAST = 1e-7
"""Least weight of a block, so that none is lost for good."""
MOST_CELLS = 100_000
"""Spans of all halves side by side: more don't stay in the cache."""
MOST_SPANS = 60_000
"""Spans of all servers up to which branching is of use: beyond, the gap is small and the steps long."""
MOST_HALVES = 64
MOST_BYTES = 2**29
"""Memory that waiting halves may take."""


@dataclass(frozen=True)
class _Half:
    """Some of the placements: `allowed` says which spans, ``(servers, spans)`` packed to bits."""

    bound: float
    weights: Floats
    allowed: NDArray[np.uint8]
    parted: int
    cut: int


class Branching:
    """The search; `bound` is proven at any time.

    Parameters
    ----------
    choices
        Limits on moves and loads are left out of account, which keeps the bound valid.
    prices
        Where to start from.
    """

    def __init__(self, choices: Choices, prices: Prices) -> None:
        rows = choices.row
        self._choices = choices
        self._starts, self._ends = choices.starts[rows], choices.ends[rows]
        self._rps, self._penalty = choices.rps[rows], choices.penalty[rows]
        self._servers, self._spans = self._starts.shape
        # What `solver.prices` adds for spans' weights being differences of sums.
        self._rounded = 2.0 * float(self._rps.max(axis=1, initial=0.0).sum())
        self._heaviest = (self._rps * (self._ends - self._starts)).max(axis=1, initial=0.0)
        self._waiting: list[tuple[float, int, _Half]] = []
        self._given_up = -np.inf
        self._count = 0
        self._root = prices
        self.bound = prices.bound

    @staticmethod
    def pays(choices: Choices) -> bool:
        """Whether there is something to part, and it is not too much."""
        spans = len(choices.free) * choices.starts.shape[1]
        return 0 < spans <= MOST_SPANS and bool((choices.sizes > 1).any())

    def run(self, reached: Callable[[], float]) -> Iterator[float]:
        """Part and bound, giving after each round about how many seconds of work it was; ends where all is proven.

        Parameters
        ----------
        reached
            Says the objective (RPS) of the best placement known.
        """
        side_by_side = max(1, min(MOST_HALVES, MOST_CELLS // max(1, 2 * self._servers * self._spans)))
        cell = 2.0 * CELL_SECONDS * self._servers * self._spans
        everything = np.isfinite(self._penalty)[None]
        self._bound_halves(self._root.weights[None], everything, reached(), np.array([self._root.bound]))
        yield STEPS * cell
        while self._waiting and self.bound > reached():
            chosen = [heapq.heappop(self._waiting)[2] for _ in range(min(side_by_side, len(self._waiting)))]
            weights, allowed, bounds = [], [], []
            for half in chosen:
                for part in self._parted(half):
                    weights.append(half.weights)
                    allowed.append(part)
                    bounds.append(half.bound)
            if allowed:
                self._bound_halves(np.array(weights), np.array(allowed), reached(), np.array(bounds))
            self.bound = max(reached(), self._given_up, -self._waiting[0][0] if self._waiting else -np.inf)
            yield STEPS * cell * max(1, len(allowed))

    def _parted(self, half: _Half) -> list[NDArray[np.bool_]]:
        packed = np.unpackbits(half.allowed, count=self._servers * self._spans)
        allowed: NDArray[np.bool_] = packed.astype(bool).reshape(self._servers, self._spans)
        if half.parted < 0:
            self._given_up = max(self._given_up, min(half.bound, self._only_worth(allowed)))
            return []
        lower, upper = allowed.copy(), allowed
        lower[half.parted, half.cut + 1 :] = False
        upper[half.parted, : half.cut + 1] = False
        return [lower, upper]

    def _only_worth(self, allowed: NDArray[np.bool_]) -> float:
        """The objective of the one placement that is left, where nobody has a choice."""
        servers, taken = np.arange(self._servers), allowed.argmax(axis=1)
        throughput = self._choices.base.copy()
        for start, end, rps in zip(
            self._starts[servers, taken], self._ends[servers, taken], self._rps[servers, taken], strict=True
        ):
            throughput[start:end] += rps
        penalty = float(self._penalty[servers, taken].sum()) + self._choices.fixed_penalty
        return float(throughput.min()) - penalty + NOISE * (float(throughput.max()) + penalty)

    def _bound_halves(self, weights: Floats, allowed: NDArray[np.bool_], reached: float, bounds: Floats) -> None:
        bounded, weights, allowed, often = self._descend(weights, allowed, reached)
        bounded = np.minimum(bounded, bounds)
        choice = np.logical_and.reduce(np.logical_or.reduce(allowed, axis=2), axis=1)
        keep = np.flatnonzero((bounded > reached) & choice)
        size = allowed[0].size // 8 + weights[0].nbytes + 400
        for index in keep.tolist():
            if len(self._waiting) * size > MOST_BYTES:
                self._given_up = max(self._given_up, float(bounded[index]))
                continue
            parted, cut = self._where(allowed[index], often[index])
            half = _Half(float(bounded[index]), weights[index], np.packbits(allowed[index]), parted, cut)
            self._count += 1
            heapq.heappush(self._waiting, (-half.bound, self._count, half))

    def _where(self, allowed: NDArray[np.bool_], often: NDArray[Any]) -> tuple[int, int]:
        """Server and last lower span at which to part; the server is -1 if none has a choice."""
        often = often * allowed
        share = often / np.maximum(often.sum(axis=1, keepdims=True), 1e-9)
        positions = np.arange(self._spans)
        mean = share @ positions
        swing = (share * np.abs(positions - mean[:, None])).sum(axis=1)
        choice = allowed.sum(axis=1) > 1
        if not choice.any():
            return -1, 0
        reach = (self._ends - self._starts).max(axis=1)
        width = self._spans / max(1, self._choices.problem.num_blocks)
        score = np.where(
            choice, self._heaviest * np.minimum(swing / max(width, 1.0), reach) / np.maximum(reach, 1), -1.0
        )
        server = int(score.argmax())
        left = np.flatnonzero(allowed[server])
        return server, int(np.clip(np.floor(mean[server]), left[0], left[-1] - 1))

    def _descend(
        self, weights: Floats, allowed: NDArray[np.bool_], reached: float
    ) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[Any]]:
        """Bounds, their weights, the spans that are left, and how often each was chosen, for each half."""
        halves, blocks = weights.shape
        base, servers = self._choices.base, np.arange(self._servers)
        one = np.arange(halves)[:, None]
        cost = np.where(allowed, self._penalty, np.inf)
        best, best_weights = np.full(halves, np.inf), weights
        often: NDArray[Any] = np.zeros(cost.shape, dtype=np.float32)
        length, stalled = np.full(halves, FIRST), np.zeros(halves, dtype=np.int64)
        before = np.zeros((halves, blocks + 1))
        for step in range(STEPS):
            np.cumsum(weights, axis=1, out=before[:, 1:])
            worth = before[:, self._ends]
            worth -= before[:, self._starts]
            worth *= self._rps
            worth -= cost
            taken = worth.argmax(axis=2)
            highest = np.take_along_axis(worth, taken[:, :, None], 2)[:, :, 0]
            bound = weights @ base + highest.sum(axis=1) - self._choices.fixed_penalty
            empty = np.isneginf(bound)  # some server has no span left: no placement is in this half
            parts = np.abs(highest) + 2.0 * np.take_along_axis(self._penalty[None], taken[:, :, None], 2)[:, :, 0]
            sure = parts.sum(axis=1) + self._rounded + self._choices.fixed_penalty
            bound += np.where(empty, 0.0, NOISE * (np.abs(bound) + sure))
            if step % STRIKE == 0:
                slack = np.where(empty, 0.0, reached - bound)
                cost[worth < (highest + slack[:, None])[:, :, None]] = np.inf
            better = bound < best
            best = np.where(better, bound, best)
            best_weights = np.where(better[:, None], weights, best_weights)
            stalled = np.where(better, 0, stalled + 1)
            length = np.where(stalled >= PATIENCE, length * SHORTER, length)
            stalled[stalled >= PATIENCE] = 0
            often[one, servers, taken] += 1.0
            rps = self._rps[servers, taken]
            slope = np.zeros((halves, blocks + 1))
            np.add.at(slope, (one, self._starts[servers, taken]), rps)
            np.add.at(slope, (one, self._ends[servers, taken]), -rps)
            slope = np.cumsum(slope, axis=1)[:, :-1] + base
            slope -= (weights * slope).sum(axis=1, keepdims=True)
            steepness = (weights * slope * slope).sum(axis=1)
            stride = length * np.maximum(bound - reached, 0.0) / np.maximum(steepness, FLAT)
            weights = weights * np.exp(np.clip(-stride[:, None] * slope, -2.0, 2.0))
            weights = np.maximum(weights, LEAST)
            weights /= weights.sum(axis=1, keepdims=True)
        return best, best_weights, np.isfinite(cost), often
