"""An exact upper bound on the bottleneck of small problems, by a sweep over normal forms.

Linear relaxations know only the volume: all throughput spread evenly. With few servers much of it cannot be
used, as throughput comes in lumps. So ask directly whether any placement reaches a threshold.

If one does, one does in normal form: shift every server to the right as long as the threshold holds. In the
end each server stands at the right end of the model, or at a block that falls below the threshold without it.
Sweeping the blocks from the left, servers hence start only where the ones before leave a block short, and
every server that starts there is needed there. That leaves few branches, which are cut off where the volume
left does not suffice, or where the same rest was tried before.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from solver.problem import Problem

MAX_SERVERS = 12
"""With more servers there are too many thresholds, and the sweep rarely ends within its nodes."""
MAX_NODES = 60_000
"""Nodes of one sweep; up to about a second."""
NODES_A_LOOK = 100
"""Nodes between looks at whether to keep on."""
NOISE = 1e-12
"""Share of a sum within which floats are taken to be equal; the rounding slack covers it."""


def bottleneck_ceiling(problem: Problem, reached: float, keep_on: Callable[[], bool] = lambda: True) -> float | None:
    """The largest bottleneck (RPS) that any placement without holes may have.

    Parameters
    ----------
    problem
        Move and load limits and forbidden spans are left out of account, which keeps the bound valid.
    reached
        The bottleneck (RPS) of a known placement.
    keep_on
        Asked often: False ends the sweeps, with what is proven so far.

    Returns
    -------
    float or None
        None where the problem is too large, or lengths are to be chosen. The bound is valid even where some
        sweeps ran out of nodes or time: these count as if a placement existed. It is exact but for the noise
        of the floats, a share of `NOISE`.
    """
    free = [server for server in problem.servers if server.only is None]
    if len(free) > MAX_SERVERS or any(len(server.throughput) > 1 for server in free):
        return None
    base = list(problem.base_throughput)
    for server in problem.servers:
        if server.only is not None:
            for block in range(*server.only):
                base[block] += server.throughput[server.only.length]
    movers = [(rps, length) for server in free for length, rps in server.throughput.items()]
    thresholds = _thresholds(base, [rps for rps, _ in movers], reached)
    # Thresholds are met from some point on by nobody: find that point by bisection.
    low, high = 0, len(thresholds)
    while low < high:
        middle = (low + high) // 2
        if _Sweep(base, movers, thresholds[middle], keep_on).may_succeed():
            low = middle + 1
        else:
            high = middle
    return thresholds[low - 1] if low else reached


def _thresholds(base: Sequence[float], rps: Sequence[float], reached: float) -> list[float]:
    """All values above `reached` that the throughput of a block can take, ascending."""
    sums = {0.0}
    for value in rps:
        sums |= {one + value for one in sums}
    values = sorted({level + one for level in set(base) for one in sums})
    return values[bisect_right(values, reached * (1 + NOISE)) :]


class _Sweep:
    """Whether these movers can bring every block to the threshold."""

    def __init__(
        self,
        base: Sequence[float],
        movers: Sequence[tuple[float, int]],
        threshold: float,
        keep_on: Callable[[], bool] = lambda: True,
    ) -> None:
        blocks = len(base)
        threshold *= 1 - NOISE
        self._keep_on = keep_on
        self._blocks = blocks
        self._need = [max(0.0, threshold - rps) for rps in base]
        self._rest = [0.0] * (blocks + 1)
        for block in reversed(range(blocks)):
            self._rest[block] = self._rest[block + 1] + self._need[block]
        # What exceeds the largest need is never of use.
        largest = max(self._need)
        self._movers = sorted(((min(rps, largest), length) for rps, length in movers), reverse=True)
        self._nodes = 0
        self._failed: set[tuple[int, tuple[int, ...], tuple[tuple[int, float], ...]]] = set()

    def may_succeed(self) -> bool:
        """False only if it is proven that they cannot."""
        return self._from(0, tuple(range(len(self._movers))), ())

    def _from(self, block: int, unused: tuple[int, ...], active: tuple[tuple[int, float], ...]) -> bool:
        """Whether the blocks from `block` on can be supplied; `active` holds ends and RPS, sorted."""
        self._nodes += 1
        if self._nodes % NODES_A_LOOK == 0 and not self._keep_on():
            self._nodes = MAX_NODES
        if self._nodes > MAX_NODES:
            return True
        while block < self._blocks:
            active = tuple(pair for pair in active if pair[0] > block)
            late = [i for i in unused if self._blocks - self._movers[i][1] <= block]
            if late:
                unused = tuple(i for i in unused if i not in late)
                active = tuple(sorted((*active, *((self._blocks, self._movers[i][0]) for i in late))))
            lacking = self._need[block] - math.fsum(rps for _, rps in active)
            if lacking > 0:
                break
            block += 1
        else:
            return True
        volume = math.fsum(rps * (end - block) for end, rps in active)
        volume += math.fsum(self._movers[i][0] * self._movers[i][1] for i in unused)
        if volume < self._rest[block] * (1 - NOISE):
            return False
        key = (block, unused, active)
        if key in self._failed:
            return False
        for chosen in self._needed(lacking, unused):
            starts = ((block + self._movers[i][1], self._movers[i][0]) for i in chosen)
            left = tuple(i for i in unused if i not in chosen)
            if self._from(block, left, tuple(sorted((*active, *starts)))):
                return True
        self._failed.add(key)
        return False

    def _needed(self, lacking: float, unused: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Sets of movers that supply what lacks, where none can be spared; equal movers stand for each other."""
        found: list[tuple[int, ...]] = []

        def extend(chosen: tuple[int, ...], total: float, smallest: float, rest: tuple[int, ...]) -> None:
            if total >= lacking:
                # Movers come in descending order of RPS: the last is the one most easily spared.
                if total - smallest < lacking:
                    found.append(chosen)
                return
            for position, i in enumerate(rest):
                if position and self._movers[rest[position - 1]] == self._movers[i]:
                    continue
                rps = self._movers[i][0]
                extend((*chosen, i), total + rps, rps, rest[position + 1 :])

        extend((), 0.0, 0.0, unused)
        return found
