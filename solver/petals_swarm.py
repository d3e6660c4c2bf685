"""The arithmetic of Petals' rule: throughputs, windows and the simulation, in Petals' order of operations.

What it is good for, and its source, is told in `solver.petals_rule`, through which it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

BALANCE_QUALITY = 0.75
"""Petals' default: a server restarts where the swarm's bottleneck is below this share of what it could be."""
WAITING = -1
"""The start of a newcomer that holds no blocks yet."""
MAX_SWEEPS = 1000
"""Sweeps after which a simulation is broken off; see the notes of `solver.petals_rule.simulate`."""

_EPS = 1e-3
_MARGIN = 1e-6
"""More than what floats add to a throughput in all sweeps together, relative to the largest."""


class Shuffler(Protocol):
    """What the rule needs of a source of chance; `numpy.random.RandomState` is one."""

    def shuffle(self, x: list[int], /) -> None:
        """Shuffle `x` in place."""


@dataclass(frozen=True)
class Verdict:
    """What the rule says to one server.

    Parameters
    ----------
    restart
        Whether it should choose other blocks.
    balance_quality
        The swarm's bottleneck as a share of what the simulation reached; None where the rule decided without,
        or the simulation reached less than there is.
    best_start
        First block of the span that the rule holds to be best for this server.
    """

    restart: bool
    balance_quality: float | None
    best_start: int


class Load(NamedTuple):
    """One server loading its whole span anew: a newcomer's join (`old` is `WAITING`) or a restart.

    `old` and `new` are first blocks; they are equal where a restart led back to the same place.
    """

    server: int
    old: int
    new: int


@dataclass
class Swarm:
    """Where everybody stands; plain lists, as single numbers are read from them all the time.

    `looks` counts how often simulations looked at some server.
    """

    starts: list[int]
    lengths: list[int]
    rps: list[float]
    base: NDArray[np.float64]
    looks: int = 0

    @classmethod
    def checked(
        cls, starts: ArrayLike, lengths: ArrayLike, rps: ArrayLike, num_blocks: int, base: ArrayLike | None
    ) -> Swarm:
        """A swarm of these servers; `ValueError` if the numbers contradict each other."""
        first, length = np.asarray(starts, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        speed = np.asarray(rps, dtype=np.float64)
        if not (first.ndim == 1 and first.shape == length.shape == speed.shape):
            raise ValueError("starts, lengths and rps need one entry for each server")
        if not (np.isfinite(speed).all() and (speed >= 0).all()):
            raise ValueError("rps must be finite and not negative")
        if not ((first >= WAITING) & (length >= 1) & (np.maximum(first, 0) + length <= num_blocks)).all():
            raise ValueError(f"every span must have a block and lie inside the model's 0:{num_blocks}")
        constant = np.zeros(num_blocks) if base is None else np.array(base, dtype=np.float64)
        if constant.shape != (num_blocks,) or not np.isfinite(constant).all():
            raise ValueError(f"base needs a finite number for each of the {num_blocks} blocks")
        return cls(first.tolist(), length.tolist(), speed.tolist(), constant)

    def throughputs(self, without: int | None = None) -> NDArray[np.float64]:
        """RPS of every block, summed in order of index."""
        total = self.base.copy()
        for server, (start, length, rps) in enumerate(zip(self.starts, self.lengths, self.rps, strict=True)):
            if start != WAITING and server != without:
                total[start : start + length] += rps
        return total

    def present(self) -> list[tuple[int, int]]:
        """Servers and starts in the order in which Petals comes upon them: along the blocks, then by peer id."""
        held = [(server, start) for server, start in enumerate(self.starts) if start != WAITING]
        return sorted(held, key=lambda item: (item[1], item[0]))

    def settle(self, server: int) -> Load:
        """Let a server that nobody sees now take the best start."""
        old = self.starts[server]
        self.starts[server] = lowest_window(self.throughputs(without=server), self.lengths[server])
        return Load(server, old, self.starts[server])

    def balanced(self, throughputs: NDArray[np.float64]) -> bool:
        """Whether no verdict can call for a restart, as no placement lifts the bottleneck above the mean."""
        highest = float(throughputs.mean()) + _MARGIN * float(throughputs.max())
        return float(throughputs.min()) >= (BALANCE_QUALITY - _EPS) * highest

    def verdict(
        self,
        server: int,
        before: NDArray[np.float64],
        rng: Shuffler,
        balance_quality: float,
        *,
        early: bool = False,
    ) -> Verdict:
        """Judge one server in the swarm whose throughputs are `before`.

        With `early` the simulation ends once it is certain that it calls for a restart; the quality is then
        not the final one.
        """
        initial = float(before.min())
        start, length, rps = self.starts[server], self.lengths[server], self.rps[server]
        blocks = before.copy()
        # Taking away a little more than the server brings makes its present place win among near equals.
        blocks[start : start + length] -= rps * (1 + _EPS)
        best = lowest_window(blocks, length)
        if balance_quality > 1:
            return Verdict(True, None, best)
        disjoint = initial > _EPS and float(blocks.min()) <= 0
        if disjoint or best == start:
            return Verdict(False, None, best)
        blocks[start : start + length] += rps * _EPS
        blocks[best : best + length] += rps
        enough = max(initial / (balance_quality - _EPS), _EPS) + _MARGIN * sum(self.rps) if early else math.inf
        self.simulate(blocks, {**dict(self.present()), server: best}, rng, enough)
        reached = float(blocks.min())
        if reached < initial or reached < _EPS:
            return Verdict(False, None, best)
        quality = initial / reached
        return Verdict(quality < balance_quality - _EPS, quality, best)

    def simulate(
        self, blocks: NDArray[np.float64], places: dict[int, int], rng: Shuffler, enough: float = math.inf
    ) -> None:
        """Let all in `places` take the best place, in shuffled sweeps until nobody moves.

        Updates `places`, and the throughputs in `blocks`; ends early where the bottleneck is above `enough`.
        """
        for _ in range(MAX_SWEEPS):
            order = list(places)
            rng.shuffle(order)
            self.looks += len(order)
            moved = False
            for server in order:
                start, length, rps = places[server], self.lengths[server], self.rps[server]
                window = blocks[start : start + length]
                window -= rps * (1 + _EPS)
                best = lowest_window(blocks, length)
                window += rps * _EPS
                if best != start:
                    places[server] = best
                    window = blocks[best : best + length]
                    moved = True
                window += rps
            if not moved or blocks.min() > enough:
                return


def lowest_window(blocks: NDArray[np.float64], length: int) -> int:
    """First block of the window whose sorted throughputs are lexicographically smallest; ties to the smallest.

    Notes
    -----
    Neighbouring windows share all blocks but one at each side, and what they share cancels in the
    comparison: window s + 1 is below window s just where block s + length is below block s. So only windows
    that are below the one before and not above the one after can be smallest, and of these only such as can
    hold a lowest block: a few on the staircases that spans make, where Petals sorts them all.
    """
    # One byte a window, and one more: 1 where it is below the window before. "\1\0" ends a descent.
    falls = b"\1" + (blocks[length:] < blocks[: blocks.size - length]).tobytes() + b"\0"
    earliest, latest = int(blocks.argmin()) - length + 1, blocks.size - 1 - int(blocks[::-1].argmin())
    best = falls.find(b"\1\0", max(earliest, 0))
    start = falls.find(b"\1\0", best + 1, latest + 2)
    if start < 0:
        return best
    values = blocks.tolist()
    best_window = sorted(values[best : best + length])
    while start >= 0:
        window = sorted(values[start : start + length])
        if window < best_window:
            best, best_window = start, window
        start = falls.find(b"\1\0", start + 1, latest + 2)
    return best
