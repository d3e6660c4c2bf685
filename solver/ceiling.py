"""An upper bound on the bottleneck, exact for small problems: how blocks can be covered, and a sweep.

Linear relaxations know only the volume: all throughput spread evenly. Much of it cannot be used, as throughput
comes in lumps. So ask directly whether any placement reaches a threshold, first by `solver.covers`, at any
size; and what that leaves open for few servers by a sweep over the blocks from the left.

At the first block that falls short, some servers that do not stand yet must hold it: take those that do so in
the placement sought, less the ones that can be spared there. Let each start at this very block: what stands
before it does without them, and from here on they hold at least what they held. So servers start only where
the ones before leave a block short, and every server that starts there is needed there. A span that would end
behind the model is cut off there. Lengths that pass no more than a longer one are never needed. That leaves few
branches, which are cut off where the servers left are not worth enough, or where the same rest was tried before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from solver.covers import NOISE, CoverBound, Kind, Worths
from solver.problem import Floats, Problem

MAX_SERVERS = 12
"""With more servers the sweep rarely ends within its nodes."""
MAX_NODES, ALL_NODES = 60_000, 240_000
"""Nodes of one sweep, and of all; up to some seconds."""
NODES_A_LOOK = 100
"""Nodes between looks at whether to keep on."""
FEW_LUMPS, MAX_LUMPS = 1_000, 300_000
"""Most values that the throughput of a block can take, for these to be told apart: at first, and once the covers
have brought down the bound."""
MAX_ROUNDS = 50
"""Rounds of the bisection without lumps."""
FAR = 1e-3
"""Thresholds below this share of what averaging says are then not tried."""
CLOSE = 1e-4
"""Where there are more, the share of the bound up to which thresholds are told apart."""


def bottleneck_ceiling(problem: Problem, reached: float, keep_on: Callable[[], bool] = lambda: True) -> float | None:
    """The largest bottleneck (RPS) that any placement without holes may have, or a bound on it.

    Parameters
    ----------
    problem
        Move and load limits and forbidden spans are left out of account, which keeps the bound valid.
    reached
        The bottleneck (RPS) of a known placement.
    keep_on
        Asked often: False ends the search, with what is proven so far.

    Returns
    -------
    float or None
        None where nothing was proven but what averaging says. The bound is valid even where something ran out
        of nodes or time: that counts as if a placement existed. Up to `MAX_SERVERS` free servers it otherwise
        is exact but for the noise of the floats, a share of `NOISE`, or of `CLOSE` where lengths are to be
        chosen among so many that the sums of their RPS are too many to try.
    """
    base = list(problem.base_throughput)
    tables: dict[tuple[tuple[int, float], ...], int] = {}
    for server in problem.servers:
        if server.only is not None:
            for block in range(*server.only):
                base[block] += server.throughput[server.only.length]
        else:
            table = tuple(sorted(server.throughput.items()))
            tables[table] = tables.get(table, 0) + 1
    kinds = [Kind(count, table) for table, count in tables.items()]
    return _Ceiling(base, kinds, reached, keep_on).bound()


class _Ceiling:
    """The search for the smallest threshold that is refuted."""

    def __init__(
        self, base: Sequence[float], kinds: Sequence[Kind], reached: float, keep_on: Callable[[], bool]
    ) -> None:
        self._base = base
        self._kinds = kinds
        self._reached = reached
        self._keep_on = keep_on
        self._covers = CoverBound(base, kinds)
        self._nodes = 0

    def bound(self) -> float | None:
        volume = math.fsum(self._base) + math.fsum(
            kind.count * max(length * rps for length, rps in kind.rps) for kind in self._kinds
        )
        average = max(self._reached, volume / len(self._base) * (1 + NOISE))
        high = average
        lumps = _lumps(self._base, self._kinds, self._reached, high, FEW_LUMPS)
        if lumps is None:
            high = self._bisect(high)
            lumps = _lumps(self._base, self._kinds, self._reached, high, MAX_LUMPS)
        few = sum(kind.count for kind in self._kinds) <= MAX_SERVERS
        if lumps is not None:
            left = self._first_refuted(lumps, self._covers.refutes)
            if few:
                left = self._first_refuted(lumps[:left], self._sweep)
            return lumps[left - 1] if left else self._reached
        if few:
            lowest = max(self._reached, high * FAR)
            steps = max(1, math.ceil(math.log(high / lowest) / CLOSE)) if high > 0 else 0
            thresholds = [float(value) for value in lowest * np.exp(np.arange(1, steps + 1) * CLOSE)]
            left = self._first_refuted(thresholds, self._sweep)
            high = min(high, thresholds[left]) if left < len(thresholds) else high
        return high if high < average else None

    def _bisect(self, high: float) -> float:
        """A threshold that is refuted by the covers, or `high`."""
        low = self._reached
        for _ in range(MAX_ROUNDS):
            if high - low <= CLOSE * high:
                break
            middle = (low + high) / 2
            if self._covers.refutes(middle, self._keep_on):
                high = middle
            else:
                low = middle
        return high

    def _first_refuted(self, thresholds: Sequence[float], refutes: Callable[[float, Callable[[], bool]], bool]) -> int:
        """Thresholds are met from some point on by nobody: find that point by bisection."""
        low, high = 0, len(thresholds)
        while low < high:
            middle = (low + high) // 2
            if refutes(thresholds[middle], self._keep_on):
                high = middle
            else:
                low = middle + 1
        return low

    def _sweep(self, threshold: float, keep_on: Callable[[], bool]) -> bool:
        if not keep_on() or self._nodes >= ALL_NODES:
            return False
        refuted, worths = self._covers.look(threshold, keep_on)
        if refuted:
            return True
        sweep = _Sweep(self._base, self._kinds, threshold, worths, keep_on, min(MAX_NODES, ALL_NODES - self._nodes))
        succeeds = sweep.may_succeed()
        self._nodes += sweep.nodes
        return not succeeds


def _lumps(base: Sequence[float], kinds: Sequence[Kind], reached: float, high: float, most: int) -> list[float] | None:
    """All values above `reached`, up to `high`, that the throughput of a block can take, ascending.

    None where they are more than `most`, or nearly so.
    """
    high *= 1 + NOISE
    sums: Floats = np.zeros(1)
    for kind in kinds:
        rps = np.unique([0.0, *(value for _, value in kind.rps)])
        for _ in range(kind.count):
            before = len(sums)
            sums = np.unique(np.add.outer(sums, rps))
            sums = sums[sums <= high]
            if len(sums) > most:
                return None
            if len(sums) == before and rps[-1] == 0.0:
                break
    levels = np.unique(np.array(base))
    if len(sums) * len(levels) > 10 * most:
        return None
    values = np.unique(np.add.outer(sums, levels))
    values = values[(values > reached * (1 + NOISE)) & (values <= high)]
    return [float(value) for value in values] if len(values) <= most else None


class _Sweep:
    """Whether servers of these kinds can bring every block to the threshold."""

    def __init__(
        self,
        base: Sequence[float],
        kinds: Sequence[Kind],
        threshold: float,
        worths: Worths | None = None,
        keep_on: Callable[[], bool] = lambda: True,
        max_nodes: int | None = None,
    ) -> None:
        self._max_nodes = MAX_NODES if max_nodes is None else max_nodes
        threshold *= 1 - NOISE
        self._keep_on = keep_on
        self._blocks = len(base)
        self._need = [max(0.0, threshold - rps) for rps in base]
        # What exceeds the largest need is never of use.
        self._largest = max(self._need)
        self._counts = tuple(kind.count for kind in kinds)
        self._lengths = [kind.useful(self._largest) for kind in kinds]
        self._prices = [
            _Prices(
                self._need,
                [[(length, rps) for length, rps in lengths] for lengths in self._lengths],
                lambda need: max(0.0, need),
            )
        ]
        if worths is not None:
            self._prices.append(_Prices(self._need, [sorted(one.items()) for one in worths.worth], worths.of_need))
        self.nodes = 0
        self._failed: set[tuple[int, tuple[int, ...], tuple[tuple[int, float], ...]]] = set()

    def may_succeed(self) -> bool:
        """False only if it is proven that they cannot."""
        return self._from(0, self._counts, ())

    def _from(self, block: int, unused: tuple[int, ...], active: tuple[tuple[int, float], ...]) -> bool:
        """Whether the blocks from `block` on can be supplied.

        `active` holds ends, descending, and the RPS from all servers that stand up to there.
        """
        self.nodes += 1
        if self.nodes % NODES_A_LOOK == 0 and not self._keep_on():
            self.nodes = self._max_nodes
        if self.nodes > self._max_nodes:
            return True
        while block < self._blocks:
            while active and active[-1][0] <= block:
                active = active[:-1]
            lacking = self._need[block] - (active[-1][1] if active else 0.0)
            if lacking > 0:
                break
            block += 1
        else:
            return True
        if not all(prices.suffice(block, unused, active) for prices in self._prices):
            return False
        key = (block, unused, active)
        if key in self._failed:
            return False
        for left, starts in self._needed(block, lacking, unused):
            if self._from(block, left, self._with(active, starts)):
                return True
        self._failed.add(key)
        return False

    def _with(
        self, active: tuple[tuple[int, float], ...], starts: Sequence[tuple[int, float]]
    ) -> tuple[tuple[int, float], ...]:
        """The steps of `active` with servers added that stand up to their ends; levels of no use are cut off."""
        ends = sorted({end for end, _ in active} | {end for end, _ in starts}, reverse=True)
        steps: list[tuple[int, float]] = []
        for end in ends:
            level = next((rps for stop, rps in reversed(active) if stop >= end), 0.0)
            level = min(self._largest, level + math.fsum(rps for stop, rps in starts if stop >= end))
            if not steps or level > steps[-1][1]:
                steps.append((end, level))
        return tuple(steps)

    def _needed(
        self, block: int, lacking: float, unused: tuple[int, ...]
    ) -> list[tuple[tuple[int, ...], tuple[tuple[int, float], ...]]]:
        """Servers that supply what lacks, where none can be spared: how many are then left, and what starts."""
        options: list[tuple[float, int, int]] = []
        for kind, count in enumerate(unused):
            if not count:
                continue
            for length, rps in self._lengths[kind]:
                end = min(self._blocks, block + length)
                # Of the lengths that reach the end the one that passes most comes last.
                if options and options[-1][1:] == (end, kind):
                    options.pop()
                options.append((rps, end, kind))
        options.sort(reverse=True)
        found: list[tuple[tuple[int, ...], tuple[tuple[int, float], ...]]] = []
        chosen: list[tuple[int, float]] = []
        left = list(unused)
        spare = sum(unused)

        def extend(first: int, total: float) -> None:
            if total >= lacking:
                # They come in descending order of RPS: the last is the one most easily spared.
                if total - chosen[-1][1] < lacking:
                    found.append((tuple(left), tuple(chosen)))
                return
            for position in range(first, len(options)):
                rps, end, kind = options[position]
                if total + rps * (spare - len(chosen)) < lacking:
                    return
                if left[kind]:
                    left[kind] -= 1
                    chosen.append((end, rps))
                    extend(position, total + rps)
                    chosen.pop()
                    left[kind] += 1

        extend(0, 0.0)
        return found


class _Prices:
    """Whether what is left is worth as much as what is to be supplied, by one way to value both."""

    def __init__(
        self,
        need: Sequence[float],
        worth: Sequence[Sequence[tuple[int, float]]],
        of_need: Callable[[float], float],
    ) -> None:
        self._need = need
        self._of_need = of_need
        blocks = len(need)
        self._server = [
            [max((min(length, blocks - block) * w for length, w in one), default=0.0) for block in range(blocks)]
            for one in worth
        ]
        self._rest: dict[float, list[float]] = {}

    def suffice(self, block: int, unused: tuple[int, ...], active: tuple[tuple[int, float], ...]) -> bool:
        had = sum(count * self._server[kind][block] for kind, count in enumerate(unused) if count)
        spent, at = 0.0, block
        for end, rps in reversed(active):
            rest = self._rest.get(rps) or self._after(rps)
            spent += rest[at] - rest[end]
            at = end
        rest = self._rest.get(0.0) or self._after(0.0)
        spent += rest[at]
        return had >= spent - 1e-9 * self._rest[0.0][0]

    def _after(self, rps: float) -> list[float]:
        """Worth of what the blocks from each on need beyond `rps`."""
        rest = [0.0] * (len(self._need) + 1)
        for block in reversed(range(len(self._need))):
            need = self._need[block] - rps
            rest[block] = rest[block + 1] + (self._of_need(need) if need > 0 else 0.0)
        self._rest[rps] = rest
        return rest
