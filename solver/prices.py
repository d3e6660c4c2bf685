"""A proven bound at any size: prices on the blocks, under which every server chooses its span alone.

For weights ``w`` on the blocks, not negative and summing to one, the bottleneck is at most ``w @ throughput``. So no
placement's objective exceeds

    base @ w  +  sum over servers of  max over its spans x of  rps[x] * w(x) - penalty[x]

where ``w(x)`` is the weight of the span's blocks: the Lagrangian relaxation of the rows that tie servers together.
Limits on moves and loads have a price each of their own. The best weights give the value of the linear relaxation
(Geoffrion, "Lagrangean relaxation for integer programming", 1974). They are found by mirror descent, each step as
long as a known placement's objective says (Polyak's rule), as the gradient by ``w`` is the throughput of the blocks
that the servers' choices give: blocks with little of it become dearer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.choices import Choices
from solver.problem import Floats, Ints

STEPS = 3000
"""Most steps of the descent."""
PATIENCE = 20
"""Steps without a better bound after which steps become shorter."""
SHORTER = 0.7
SHORTEST = 1e-4
"""Steps shorter than that share of Polyak's change nothing any more."""
BOLDEST = 2.0
"""Most that the logarithm of a weight changes in a step."""
FLAT = 1e-150
NOISE = 1e-12
"""Share by which the floats of a bound may be wrong; it is added to each."""
CELL_SECONDS = 12e-9
"""What a span costs in a step, on a usual machine."""


@dataclass(frozen=True)
class Prices:
    """Weights and what they prove.

    Parameters
    ----------
    bound
        No placement has a greater objective, RPS.
    weights
        Shape ``(num_blocks,)``, not negative, their sum 1.
    dues
        RPS for each move, and for each block loaded.
    """

    bound: float
    weights: Floats
    dues: tuple[float, float]


def best_prices(choices: Choices, reached: float, keep_on: Callable[[float], bool]) -> Prices:
    """Find good weights.

    Parameters
    ----------
    reached
        The objective (RPS) of a known placement.
    keep_on
        Asked after every step with about how many seconds of work it was: False ends the descent.
    """
    blocks = choices.problem.num_blocks
    weights, dues = np.full(blocks, 1.0 / blocks), np.zeros(2)
    limits = _Limits(choices)
    best = Prices(np.inf, weights, (0.0, 0.0))
    length, stalled = 1.0, 0
    for _ in range(STEPS):
        bound, slope, excess = _answer(choices, weights, dues, limits)
        if bound < best.bound:
            best, stalled = Prices(bound, weights, (float(dues[0]), float(dues[1]))), 0
        else:
            stalled += 1
        if stalled >= PATIENCE:
            length, stalled = length * SHORTER, 0
        if length < SHORTEST or bound - reached <= NOISE * abs(bound) or not keep_on(CELL_SECONDS * choices.rps.size):
            break
        slope = slope - weights @ slope
        steepness = float(weights @ (slope * slope) + (limits.scale**2) @ (excess * excess))
        step = length * (bound - reached) / max(steepness, FLAT)
        if step * FLAT > 1.0:  # there is no slope: these prices are the best
            break
        weights = weights * np.exp(np.clip(-step * slope, -BOLDEST, BOLDEST))
        weights = weights / weights.sum()
        dues = np.maximum(0.0, dues + step * limits.scale**2 * excess)
    return best


class _Limits:
    """The limits on moves and loads: `most` of each, infinite where there is none, and the scale of their prices."""

    def __init__(self, choices: Choices) -> None:
        problem = choices.problem
        given = (
            (problem.max_moves, choices.fixed_moves, choices.moves),
            (problem.max_loads, choices.fixed_loads, choices.loads),
        )
        self.most = np.array([np.inf if limit is None else limit - fixed for limit, fixed, _ in given])
        self.set = np.isfinite(self.most)
        self.of = [of for _, _, of in given]
        # A price is worth about the throughput of a server, for each that it has use for.
        rps = float(choices.rps.max(initial=0.0))
        self.scale = np.where(self.set, rps / np.array([1.0, problem.num_blocks]), 0.0) / np.sqrt(len(choices.free) + 1)


def _answer(choices: Choices, weights: Floats, dues: Floats, limits: _Limits) -> tuple[float, Floats, Floats]:
    """The bound, the throughput of the blocks under the servers' own choices, and by how much these exceed limits."""
    before = np.concatenate(([0.0], np.cumsum(weights)))
    worth = before[choices.ends]
    worth -= before[choices.starts]
    worth *= choices.rps
    worth -= choices.penalty
    for due, of in zip(dues, limits.of, strict=True):
        if due > 0:
            worth -= due * of
    rows = np.arange(len(worth))
    taken: Ints = worth.argmax(axis=1)
    bound = float(choices.base @ weights + choices.counts @ worth[rows, taken]) - choices.fixed_penalty
    used = np.array([float(choices.counts @ of[rows, taken].astype(np.float64)) for of in limits.of])
    excess = np.where(limits.set, used - limits.most, 0.0)
    bound += float(dues @ np.where(limits.set, limits.most, 0.0))
    # Every part that is summed up, taken as positive: what rounding may be wrong by is a share of that. A span's
    # weight is the difference of two sums up to one, whose rounding is a share of one, however small the weight.
    parts = np.abs(worth[rows, taken]) + 2.0 * choices.penalty[rows, taken] + 2.0 * choices.rps.max(axis=1)
    for due, of in zip(dues, limits.of, strict=True):
        parts += 2.0 * due * of[rows, taken]
    bound += NOISE * float(choices.base @ weights + choices.counts @ parts + abs(bound) + choices.fixed_penalty)
    bound += NOISE * float(dues @ np.where(limits.set, limits.most, 0.0))
    rps = choices.rps[rows, taken] * choices.counts
    steps = np.bincount(choices.starts[rows, taken], rps, weights.size + 1)
    steps -= np.bincount(choices.ends[rows, taken], rps, weights.size + 1)
    return bound, choices.base + np.cumsum(steps)[:-1], excess
