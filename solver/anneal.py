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

import numpy as np

from solver import powers
from solver.choices import Choices
from solver.problem import Floats, Ints, Placement

NOISES = 2**18
"""Size of the pool that noise is drawn from."""
LOOK = 64
"""Steps between looks at whether to keep on."""
COVER = 30.0
"""How much better, as a power of two, a span is for every hole that it closes."""
REPLICA = 12.0
"""And for every replica that it supplies."""
SHARPEST = 1e280
"""The largest beta: throughput that it does not tell apart is none."""
STEP_SECONDS, CELL_SECONDS = 25e-6, 9e-9
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
    choices: Choices, start: Placement, schedule: Schedule, seed: int, keep_on: Callable[[int], bool]
) -> list[Placement]:
    """Walk from `start` and give the last placement of each walk, best first.

    Parameters
    ----------
    start
        A placement that keeps the problem's limits on moves and loads.
    keep_on
        Asked after every few steps, with their number: False ends the walks where they are.
    """
    return _Walks(choices, start, schedule, seed).run(keep_on)


class _Walks:
    """`taken[free, walk]` is the span that a server has; the sums per walk follow it."""

    def __init__(self, choices: Choices, start: Placement, schedule: Schedule, seed: int) -> None:
        self._choices, self._schedule = choices, schedule
        self._rng = np.random.Generator(np.random.PCG64(seed))
        problem, walks, blocks = choices.problem, schedule.walks, choices.problem.num_blocks
        self._single = choices.single[choices.row].tolist()
        self._rows: list[int] = choices.row.tolist()
        taken = choices.taken(start)
        self._taken: Ints = np.tile(taken[:, None], (1, walks))
        self._wanted = max(1, problem.min_replicas)
        throughput, replicas = choices.base.copy(), choices.base_replicas.copy()
        for row, span in zip(self._rows, taken.tolist(), strict=True):
            blocks_of = slice(choices.starts[row, span], choices.ends[row, span])
            throughput[blocks_of] += choices.rps[row, span]
            replicas[blocks_of] += 1
        self._throughput: Floats = np.tile(throughput, (walks, 1))
        # Blocks that lack a server are counted only where some might.
        self._counting = bool((replicas < self._wanted).any()) or problem.min_replicas > 0
        self._replicas = np.tile(replicas, (walks, 1))
        self._limits = [
            (limit - fixed, np.full(walks, of[choices.row, taken].sum(), dtype=np.int64), of)
            for limit, fixed, of in (
                (problem.max_moves, choices.fixed_moves, choices.moves),
                (problem.max_loads, choices.fixed_loads, choices.loads),
            )
            if limit is not None
        ]
        self._before = np.zeros((walks, blocks + 1))
        self._lacking_before = np.zeros((walks, blocks + 1), dtype=np.int64)
        self._cells = np.empty((walks, blocks))
        self._index = np.empty((walks, blocks), dtype=np.int64)
        self._blocks = np.arange(blocks)
        self._windows: dict[int, Floats] = {}

    def run(self, keep_on: Callable[[int], bool]) -> list[Placement]:
        schedule, choices = self._schedule, self._choices
        free = np.flatnonzero(choices.sizes[choices.row] > 1)
        mean = math.fsum(choices.rps[choices.row, self._taken[:, 0]].tolist()) / max(1, len(self._rows))
        self._noise = self._noises()
        for sweep in range(schedule.sweeps if mean > 0 else 0):
            octaves = schedule.octaves * (powers.share(sweep, max(1, schedule.sweeps - 1)) - 1.0)
            self._sharpen(min(SHARPEST, schedule.sharpest / mean) * float(powers.power(octaves)))
            for number, index in enumerate(self._rng.permutation(free).tolist()):
                self._step(index)
                if number % LOOK == LOOK - 1 and not keep_on(LOOK):
                    return self._placements()
            if not keep_on(len(free) % LOOK):
                break
        return self._placements()

    def _noises(self) -> Floats:
        return 1.0 + self._rng.random(NOISES) * (self._schedule.noise * 2.0 / max(1, len(self._rows)))

    def _sharpen(self, beta: float) -> None:
        """Set beta, and for each span the factor of its penalty and the share that it takes of its blocks' summands."""
        self._beta = beta
        self._factor = powers.power(self._choices.penalty * beta)
        rps = self._choices.rps if not self._choices.single.all() else self._choices.rps[:, :1]
        self._relief = 1.0 - powers.power(rps * -beta)

    def _step(self, index: int) -> None:
        row, before = self._rows[index], self._before
        self._put(index, row, -1)
        throughput, cells = self._throughput, self._cells
        if self._counting:
            # A hole has no throughput to raise: closing it counts by itself, below.
            holes = self._replicas < 1
            lowest = throughput.min(axis=1, keepdims=True, where=~holes, initial=np.inf)
            np.subtract(throughput, np.where(np.isinf(lowest), 0.0, lowest), out=cells)
            cells[holes] = powers.DEEPEST / self._beta
        else:
            np.subtract(throughput, throughput.min(axis=1, keepdims=True), out=cells)
        cells *= self._beta * powers.STEPS
        np.minimum(cells, powers.DEEPEST * powers.STEPS, out=cells)
        self._index[:] = cells
        np.cumsum(powers.negative()[self._index], axis=1, out=before[:, 1:])
        size, length = int(self._choices.sizes[row]), self._single[index]
        if length:
            price = before[:, length : length + size] - before[:, :size]
            price *= -self._relief[row, 0]
        else:
            starts, ends = self._choices.starts[row, :size], self._choices.ends[row, :size]
            price = before[:, ends] - before[:, starts]
            price *= -self._relief[row, :size]
        price += before[:, -1:]
        price *= self._factor[row, :size]
        offset = int(self._rng.integers(0, NOISES - min(NOISES, price.size) + 1))
        noise = self._noise[offset : offset + price.size]
        price *= noise.reshape(price.shape) if noise.size == price.size else 1.0
        if self._counting:
            price *= self._lacking(row, size)
        for limit, used, of in self._limits:
            price[used[:, None] + of[row, :size] > limit] = math.inf
        price.argmin(axis=1, out=self._taken[index])
        self._put(index, row, 1)

    def _lacking(self, row: int, size: int) -> Floats:
        """The factor by which a span's price is less for the holes that it closes and the replicas that it supplies."""
        starts, ends = self._choices.starts[row, :size], self._choices.ends[row, :size]
        gain = np.zeros((self._schedule.walks, size))
        for below, worth in ((1, COVER), (self._wanted, REPLICA)):
            np.cumsum(self._replicas < below, axis=1, out=self._lacking_before[:, 1:])
            gain += worth * (self._lacking_before[:, ends] - self._lacking_before[:, starts])
        return powers.power(-gain)

    def _put(self, index: int, row: int, sign: int) -> None:
        """Add a server's part to the sums of each walk, or take it out again."""
        choices, taken, length = self._choices, self._taken[index], self._single[index]
        if length:
            inside = self._window(length)[len(self._blocks) - taken]
            rps = choices.rps[row, 0]
        else:
            starts, ends = choices.starts[row, taken], choices.ends[row, taken]
            inside = ((self._blocks >= starts[:, None]) & (self._blocks < ends[:, None])).astype(np.float64)
            rps = choices.rps[row, taken][:, None]
        if self._counting:
            self._replicas += sign * (inside > 0)
        inside *= sign * rps
        self._throughput += inside
        for _, used, of in self._limits:
            used += sign * of[row, taken].astype(np.int64)

    def _window(self, length: int) -> Floats:
        """Row ``num_blocks - start`` is 1 in the blocks of the span of `length` from `start` on, else 0."""
        if length not in self._windows:
            blocks = len(self._blocks)
            line = np.zeros(2 * blocks + 1)
            line[blocks : blocks + length] = 1.0
            self._windows[length] = np.lib.stride_tricks.sliding_window_view(line, blocks)
        return self._windows[length]

    def _placements(self) -> list[Placement]:
        choices = self._choices
        penalty = np.add.reduce(choices.penalty[choices.row[:, None], self._taken], axis=0)
        worth = self._throughput.min(axis=1) - penalty
        order = np.argsort(-worth, kind="stable")
        return [choices.placement(self._taken[:, walk]) for walk in order.tolist()]
