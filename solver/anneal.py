"""A local search over soft minima: good placements in seconds, whatever the number of servers.

The bottleneck is flat nearly everywhere: most moves leave it as it is. Its soft minimum
``-log2(sum_b 2 ** (-beta * throughput[b])) / beta`` is not, and comes to the bottleneck as beta grows. One server
after another is taken out and put back where the soft minimum less the reload penalty is best, up to a little
noise; all its spans are priced at once by prefix sums, as adding the server divides the summands of its blocks
by ``2 ** (beta * rps)``. Beta grows over the sweeps, the noise fades with it, and many walks go side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver import powers
from solver.choices import Choices
from solver.problem import Floats, Ints, Placement

NOISES, NOISES_A_PRICE = 2**18, 16
"""Size of the pool that noise is drawn from, at most and for each price of a step."""
LOOK = 64
"""Steps between looks at whether to keep on."""
COVER = 30.0
"""How much better, as a power of two, a span is for every hole that it closes."""
REPLICA = 12.0
"""And for every replica that it supplies."""
REFRESH = 256
"""Steps after which the summands are made afresh."""
STEEPEST, HIGHEST, DEAREST, FULLEST = 250.0, 100.0, 200.0, 300.0
"""Powers of two: the most that a server may change a summand by, a summand may be and may have grown by, a penalty may
count, and what a span closes may count less than what another does. All of them together are within range of floats.
A fresh summand may be as low as twice `STEEPEST` below 1, so that who leaves its block does not make that the weakest.
"""
SHARPEST = 1e280
"""The largest beta: throughput that it does not tell apart is none."""
STEP_SECONDS, CELL_SECONDS = 18e-6, 4e-9
"""What a step takes on a usual machine, and more for each walk and block."""


@dataclass(frozen=True)
class Schedule:
    """How to anneal.

    Parameters
    ----------
    walks
        Walks side by side; a step costs little more for 32 than for one.
    sweeps
        How often each server is moved.
    sharpest
        The last beta, in units of one over the mean throughput of a server.
    octaves
        How many times beta doubles on the way there.
    noise
        Noise on a span's price: a share of what a single server changes the soft minimum by.
    """

    walks: int
    sweeps: int
    sharpest: float = 12.0
    octaves: float = 7.0
    noise: float = 0.2

    def seconds(self, choices: Choices) -> float:
        """About how long it takes."""
        return self.sweeps * len(choices.free) * step_seconds(choices, self.walks)


def step_seconds(choices: Choices, walks: int) -> float:
    """About how long a step takes: one server, in all walks."""
    return STEP_SECONDS + CELL_SECONDS * walks * float(choices.problem.num_blocks + choices.starts.shape[1])


def anneal(
    choices: Choices,
    start: Placement,
    schedule: Schedule,
    seed: int,
    keep_on: Callable[[int], bool],
    *,
    most: int | None = None,
    above: float = -math.inf,
) -> list[Placement]:
    """Walk from `start` and give where the walks end, best first.

    Parameters
    ----------
    start
        A placement that keeps the problem's limits on moves and loads.
    keep_on
        Asked after every few steps, with their number: False ends the walks where they are.
    most
        So many of the walks' ends at most; None: all.
    above
        Only those with a greater objective (RPS), or that lack servers on some block.
    """
    walks = _Walks(choices, start, schedule, seed)
    walks.run(keep_on)
    return walks.ends(most, above)


class _Walks:
    """`taken[free, walk]` is the span that a server has; the summands of the blocks, of each walk, follow it.

    Summands are multiplied and divided as servers come and go, which is less work than taking powers anew; now and then
    they are made afresh, so that no rounding grows and none leaves the range of floats for long.
    """

    def __init__(self, choices: Choices, start: Placement, schedule: Schedule, seed: int) -> None:
        self._choices, self._schedule = choices, schedule
        self._rng = np.random.Generator(np.random.PCG64(seed))
        problem, walks, blocks = choices.problem, schedule.walks, choices.problem.num_blocks
        self._single = choices.single[choices.row].tolist()
        self._rows: list[int] = choices.row.tolist()
        self._sizes: list[int] = choices.sizes.tolist()
        self._taken: Ints = np.tile(choices.taken(start)[:, None], (1, walks))
        self._wanted = max(1, problem.min_replicas)
        self._blocks = np.arange(blocks)
        self._replicas: Ints = self._sums(None)
        # Blocks that lack a server are counted only where some might.
        self._counting = problem.min_replicas > 0 or bool((self._replicas < 1).any())
        self._limits = [
            (limit - fixed, np.full(walks, of[choices.row, self._taken[:, 0]].sum(), dtype=np.int64), of)
            for limit, fixed, of in (
                (problem.max_moves, choices.fixed_moves, choices.moves),
                (problem.max_loads, choices.fixed_loads, choices.loads),
            )
            if limit is not None
        ]
        self._before = np.zeros((walks, blocks + 1))
        self._lacking_before = np.zeros((walks, blocks + 1), dtype=np.int64)
        self._lines: dict[int, tuple[Floats, Floats]] = {}

    def run(self, keep_on: Callable[[int], bool]) -> None:
        schedule, choices = self._schedule, self._choices
        free = np.flatnonzero(choices.sizes[choices.row] > 1)
        mean = math.fsum(choices.rps[choices.row, self._taken[:, 0]].tolist()) / max(1, len(self._rows))
        prices = int(choices.sizes.max()) * schedule.walks
        self._noise = self._noises(min(NOISES, NOISES_A_PRICE * prices))
        last_offset = max(0, self._noise.size - prices)
        for sweep in range(schedule.sweeps if mean > 0 else 0):
            octaves = schedule.octaves * (powers.share(sweep, max(1, schedule.sweeps - 1)) - 1.0)
            self._sharpen(min(SHARPEST, schedule.sharpest / mean) * float(powers.power(octaves)))
            order = self._rng.permutation(free).tolist()
            offsets = self._rng.integers(0, last_offset + 1, len(order)).tolist()
            for number, (index, offset) in enumerate(zip(order, offsets, strict=True)):
                if number % REFRESH == 0:
                    self._refresh()
                self._step(index, offset)
                if number % LOOK == LOOK - 1 and not keep_on(LOOK):
                    return
            if not keep_on(len(free) % LOOK):
                return

    def _noises(self, size: int) -> Floats:
        return 1.0 + self._rng.random(size) * (self._schedule.noise * 2.0 / max(1, len(self._rows)))

    def _sharpen(self, beta: float) -> None:
        """Set beta, and for each span the factor of its penalty and what it multiplies its blocks' summands by."""
        self._beta = beta
        self._penalty = powers.power(np.minimum(self._choices.penalty * beta, DEAREST))
        rps = self._choices.rps if not self._choices.single.all() else self._choices.rps[:, :1]
        exponents = np.minimum(rps * beta, STEEPEST)
        self._factor = powers.power(-exponents)
        self._exponent: list[float] = exponents.max(axis=1).tolist()

    def _refresh(self) -> None:
        """The summands, from the spans that are taken: those of the weakest blocks are 1."""
        throughput = self._sums(self._choices.rps)
        lowest = throughput
        if self._counting:
            # Holes have none as yet: theirs would be larger by far.
            self._replicas = self._sums(None)
            lowest = np.where(self._replicas < 1, np.inf, throughput)
        lowest = lowest.min(axis=1, keepdims=True)
        above = throughput - np.where(np.isinf(lowest), 0.0, lowest)
        self._summands: Floats = powers.power(np.clip(above * -self._beta, -2 * STEEPEST, HIGHEST))
        self._grown = 0.0

    def _step(self, index: int, offset: int) -> None:
        row, before = self._rows[index], self._before
        self._put(index, row, taking_out=True)
        np.cumsum(self._counted(), axis=1, out=before[:, 1:])
        size, length = self._sizes[row], self._single[index]
        if length:
            price = before[:, length : length + size] - before[:, :size]
            price *= self._factor[row, 0] - 1.0
        else:
            starts, ends = self._choices.starts[row, :size], self._choices.ends[row, :size]
            price = before[:, ends] - before[:, starts]
            price *= self._factor[row, :size] - 1.0
        price += before[:, -1:]
        price *= self._penalty[row, :size]
        noise = self._noise[offset : offset + price.size]
        price *= noise.reshape(price.shape) if noise.size == price.size else 1.0
        if self._counting:
            price *= self._lacking(row, size)
        for limit, used, of in self._limits:
            price[used[:, None] + of[row, :size] > limit] = math.inf
        price.argmin(axis=1, out=self._taken[index])
        self._put(index, row, taking_out=False)
        self._grown += self._exponent[row]
        if self._grown > HIGHEST:  # it may have, at most; has it?
            self._grown = float(math.frexp(max(1.0, self._counted().max()))[1])
            if self._grown > HIGHEST / 2:
                self._refresh()

    def _counted(self) -> Floats:
        """The summands but for holes: these have no throughput to raise, and closing them counts in `_lacking`."""
        return np.where(self._replicas < 1, 0.0, self._summands) if self._counting else self._summands

    def _lacking(self, row: int, size: int) -> Floats:
        """The factor by which a span's price is more than that of the span that closes and supplies the most."""
        starts, ends = self._choices.starts[row, :size], self._choices.ends[row, :size]
        gain = np.zeros((self._schedule.walks, size))
        for below, worth in ((1, COVER), (self._wanted, REPLICA)):
            np.cumsum(self._replicas < below, axis=1, out=self._lacking_before[:, 1:])
            gain += worth * (self._lacking_before[:, ends] - self._lacking_before[:, starts])
        return powers.power(np.minimum(gain.max(axis=1, keepdims=True) - gain, FULLEST))

    def _put(self, index: int, row: int, *, taking_out: bool) -> None:
        """Multiply the summands of a server's blocks by its factor, or divide them again, in each walk."""
        taken, length = self._taken[index], self._single[index]
        if length:
            factor = float(self._factor[row, 0])
            line, windows = self._line(length)
            line[len(self._blocks) : len(self._blocks) + length] = 1.0 / factor if taking_out else factor
            self._summands *= windows[len(self._blocks) - taken]
        else:
            factors = self._factor[row, taken][:, None]
            inside = self._inside(row, taken)
            self._summands *= np.where(inside, 1.0 / factors if taking_out else factors, 1.0)
        if self._counting:
            self._replicas += np.where(self._inside(row, taken), -1 if taking_out else 1, 0)
        for _, used, of in self._limits:
            used += (-1 if taking_out else 1) * of[row, taken].astype(np.int64)

    def _inside(self, row: int, taken: Ints) -> NDArray[np.bool_]:
        """Which blocks are in the span that is taken in each walk."""
        starts, ends = self._choices.starts[row, taken], self._choices.ends[row, taken]
        inside: NDArray[np.bool_] = (self._blocks >= starts[:, None]) & (self._blocks < ends[:, None])
        return inside

    def _line(self, length: int) -> tuple[Floats, Floats]:
        """A line with room for `length` factors between ones, and its windows.

        Window ``num_blocks - start`` has the factors in the blocks of the span from `start` on.
        """
        if length not in self._lines:
            blocks = len(self._blocks)
            line = np.ones(2 * blocks + 1)
            self._lines[length] = line, np.lib.stride_tricks.sliding_window_view(line, blocks)
        return self._lines[length]

    def _sums(self, rps: Floats | None) -> NDArray[Any]:
        """Throughput of all blocks in all walks, or with None how many servers hold each."""
        choices, rows = self._choices, self._choices.row[:, None]
        walks, blocks = self._schedule.walks, len(self._blocks)
        each = np.ones(self._taken.shape) if rps is None else rps[rows, self._taken]
        first = np.arange(walks) * (blocks + 1)
        steps = np.zeros(walks * (blocks + 1))
        for at, sign in ((choices.starts, 1.0), (choices.ends, -1.0)):
            where = (at[rows, self._taken] + first).ravel()
            steps += sign * np.bincount(where, each.ravel(), steps.size)
        sums = np.cumsum(steps.reshape(walks, blocks + 1)[:, :-1], axis=1)
        if rps is None:
            return np.rint(sums).astype(np.int64) + choices.base_replicas
        return sums + choices.base

    def ends(self, most: int | None, above: float) -> list[Placement]:
        choices = self._choices
        throughput, replicas = self._sums(choices.rps), self._sums(None)
        holes, lacking = (np.maximum(0, wanted - replicas).sum(axis=1) for wanted in (1, self._wanted))
        penalty = np.add.reduce(choices.penalty[choices.row[:, None], self._taken], axis=0) + choices.fixed_penalty
        objective = np.where(replicas > 0, throughput, np.inf).min(axis=1) - penalty
        order = np.lexsort((-objective, lacking, holes))[:most]
        wanted = order[(objective[order] > above) | (lacking[order] > 0)]
        return [choices.placement(self._taken[:, walk]) for walk in wanted.tolist()]
