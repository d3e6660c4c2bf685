"""Placements made of stages: stretches of blocks that all their servers hold whole, found by dynamic programming.

Where lengths are to be chosen, good placements of a few kinds of servers look like a pipeline: the model is cut
into stages, and each is held by servers that all have the stage as their span. Whether such a placement reaches
a threshold is a question of counts alone. Of all that is made with ``u[k]`` servers of each kind k, only how far
it reaches matters::

    reach(u) = max over v <= u of  stage(v, reach(u - v))

where ``stage(v, p)`` is the last block up to which servers v, set to one length, bring all blocks from p on to
the threshold. It grows with p, so the furthest reach is the best; constants may differ from block to block. The
counts are a grid, over which all is computed at once, in the order of the number of servers used. The threshold
is found by bisection.

The recursion is the one by which PipeDream and its successors divide layers among machines (Narayanan et al.,
"PipeDream: Generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1), with several kinds of
machines and the number of blocks, not the time, as its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.problem import Floats, Ints, Placement, Problem, Server, Span

MAX_COUNTS = 20_000
"""Most points in the grid of counts; kinds are merged until there are no more."""
MAX_KINDS = 16
"""With more kinds of servers stages of equal ones are of no use, and merging all pairs of kinds takes long."""
MAX_LEVELS = 4
"""Most different needs of blocks for which nested stages are made, the largest first."""
NESTED_PAIRS = 8_000_000
"""Pairs of a point and a stage after which no more nested stages are made for one threshold."""
ALL_PAIRS, MAX_PAIRS = 6_000_000, 1_000_000
"""Most pairs of a point and a stage for one threshold, beyond which the shortest stages for their servers are
left out, and most that are looked at in one step."""
ROUNDS = 40
"""Rounds of the bisection."""
NESTED_ROUNDS, WIDER = 12, 0.2
"""Rounds of the bisection with nested stages, and how far above the best without them it looks, as a share."""
CLOSE = 1e-7
"""Share of the threshold at which the bisection ends."""


def equal_stages(problem: Problem, keep_on: Callable[[], bool] = lambda: True) -> Placement | None:
    """The placement of the largest bottleneck among those made of stages.

    Parameters
    ----------
    problem
        Limits on moves, loads and hops and the cost of loading are left out of account.
    keep_on
        Asked often: False ends the search with the best so far.

    Returns
    -------
    Placement or None
        None where no length is to be chosen, the kinds of servers are more than `MAX_KINDS`, or nothing was found.
    """
    if all(len(server.throughput) == 1 for server in problem.servers if _is_free(server)):
        return None
    kinds = _kinds(problem)
    if not kinds:
        return None
    base = np.array(problem.base_throughput)
    for server in problem.servers:
        if server.only is not None:
            base[server.only.start : server.only.end] += server.throughput[server.only.length]
    grid = _Grid(kinds, base)
    low, high = 0.0, grid.volume() / problem.num_blocks
    high_volume = high
    best: list[_Held] | None = None
    for nested in (False, True):
        if nested:
            high = min(high_volume, low * (1 + WIDER))
        for _ in range(NESTED_ROUNDS if nested else ROUNDS):
            if high - low <= CLOSE * high or not keep_on():
                break
            middle = (low + high) / 2
            found = grid.stages(middle, keep_on, nested=nested)
            if found is None:
                high = middle
            else:
                best, low = found, max(middle, grid.bottleneck(found))
    return None if best is None else _placement(problem, kinds, best, base)


@dataclass
class _Kind:
    """Free servers taken for equal: what each of `members` passes at least, by the length of its span."""

    members: list[int]
    rps: dict[int, float]

    def merged(self, other: _Kind) -> _Kind | None:
        """Both in one, where they share a length."""
        shared = self.rps.keys() & other.rps.keys()
        if not shared:
            return None
        return _Kind(self.members + other.members, {n: min(self.rps[n], other.rps[n]) for n in sorted(shared)})

    def lost_with(self, other: _Kind) -> float:
        """Volume lost when both are taken for one."""
        both = self.merged(other)
        if both is None:
            return math.inf
        return sum(len(kind.members) * (kind.volume() - both.volume()) for kind in (self, other))

    def volume(self) -> float:
        """The most block-RPS of one server, averaged over its lengths and the best one."""
        volumes = [n * rps for n, rps in self.rps.items()]
        return max(volumes) + sum(volumes) / len(volumes)


def _kinds(problem: Problem) -> list[_Kind]:
    """The servers whose span may be any, in kinds so few that the grid of their counts is small."""
    tables: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for index, server in enumerate(problem.servers):
        if _is_free(server):
            tables.setdefault(tuple(sorted(server.throughput.items())), []).append(index)
    if len(tables) > MAX_KINDS:
        return []
    kinds = [_Kind(members, dict(table)) for table, members in tables.items()]
    while math.prod(len(kind.members) + 1 for kind in kinds) > MAX_COUNTS:
        pairs = [(a.lost_with(b), i, j) for j, b in enumerate(kinds) for i, a in enumerate(kinds[:j])]
        lost, i, j = min(pairs, default=(math.inf, 0, 0))
        both = kinds[i].merged(kinds[j])
        if lost == math.inf or both is None:
            # Nothing in common: the smallest kind is left to be placed last.
            kinds.remove(min(kinds, key=lambda kind: len(kind.members)))
            continue
        kinds = [kind for at, kind in enumerate(kinds) if at not in (i, j)] + [both]
    return kinds


def _is_free(server: Server) -> bool:
    return server.only is None and (server.may_stay or server.current is None)


@dataclass(frozen=True)
class _Held:
    """A stage: what it spans, and how many servers of each kind hold it."""

    span: Span
    counts: Ints


@dataclass(frozen=True)
class _Step:
    """A stage that may be appended: the point of its counts, and the need that it meets on `length` blocks.

    Where `outer` is given, it is the point of the server that holds all of it, the others its inner stages.
    """

    point: int
    length: int
    supply: float
    outer: int | None = None


class _Grid:
    """All counts of servers used, as points of a grid in the order of the number used."""

    def __init__(self, kinds: Sequence[_Kind], base: Floats) -> None:
        self._base = base
        self._blocks = len(base)
        self._sizes = [len(kind.members) for kind in kinds]
        longest = max((max(kind.rps) for kind in kinds), default=1)
        # rps[n - 1, k]: a stage of n blocks may as well be held by a longer span that passes more.
        self._rps = np.zeros((longest, len(kinds)))
        for k, kind in enumerate(kinds):
            for n, rps in kind.rps.items():
                self._rps[n - 1, k] = rps
        self._rps = np.maximum.accumulate(self._rps[::-1])[::-1]
        self._volume = float(base.sum()) + sum(
            len(kind.members) * max(n * rps for n, rps in kind.rps.items()) for kind in kinds
        )
        shape = [size + 1 for size in self._sizes]
        self._strides = np.cumprod([1, *shape[:0:-1]])[::-1]
        self._counts = np.indices(shape).reshape(len(kinds), -1).T
        used = self._counts.sum(axis=1)
        self._layers = [np.flatnonzero(used == total) for total in range(sum(self._sizes) + 1)]
        self._used = used
        self._pairs = 0
        self._supply: Floats = self._counts @ self._rps.T  # by point and length less 1
        self._weakest: Floats = np.where(self._counts[:, None, :] > 0, self._rps[None], np.inf).min(axis=2)

    def volume(self) -> float:
        """RPS of all blocks together at most."""
        return self._volume

    def bottleneck(self, stages: Sequence[_Held]) -> float:
        """RPS of the weakest block under these stages."""
        throughput = self._base.copy()
        for held in stages:
            throughput[held.span.start : held.span.end] += self._rps[held.span.length - 1] @ held.counts
        return float(throughput.min())

    def stages(
        self, threshold: float, keep_on: Callable[[], bool] = lambda: True, *, nested: bool = False
    ) -> list[_Held] | None:
        """Stages that bring each block to the threshold, outer and inner ones; None if there are none."""
        need = threshold - self._base
        steps = self._steps(need)
        if nested:
            steps += self._nested(need, steps, keep_on)
        reach, by = self._reach(need, steps, keep_on, self._blocks)
        last = np.flatnonzero(reach >= self._blocks)
        return self._trace(int(last[0]), reach, by, steps) if last.size else None

    def _steps(self, need: Floats) -> list[_Step]:
        """Stages without a server to spare."""
        found: dict[tuple[int, int], _Step] = {}
        for level in np.unique(need[need > 0]):
            good = (self._supply >= level) & (self._supply - self._weakest < level)
            # Of one point only its longest stage matters, where no block needs more.
            longest = good.shape[1] - good[:, ::-1].argmax(axis=1)
            for point in np.flatnonzero(good.any(axis=1)):
                length = int(longest[point])
                found[int(point), length] = _Step(int(point), length, float(self._supply[point, length - 1]))
        return sorted(found.values(), key=lambda step: (-step.length / max(1, self._used[step.point]), step.point))[
            : ALL_PAIRS // len(self._counts)
        ]

    def _nested(self, need: Floats, plain: Sequence[_Step], keep_on: Callable[[], bool]) -> list[_Step]:
        """Stages held whole by one server that is too weak for them, and below it cut into inner stages."""
        longest = {step.point: step.length for step in plain}
        self._pairs = 0
        found: list[_Step] = []
        for level in np.unique(need[need > 0])[::-1][:MAX_LEVELS]:
            for outer in np.flatnonzero(self._used == 1):
                for length in range(2, self._rps.shape[0] + 1):
                    supply = float(self._supply[outer, length - 1])
                    if not 0 < supply < level or not keep_on():
                        continue
                    if length < self._rps.shape[0] and supply == self._supply[outer, length]:
                        continue
                    if self._pairs > NESTED_PAIRS:
                        return [step for step in found if longest[step.point] == step.length]
                    inner = np.full(length, level - supply)
                    self._pairs += self._supply.size
                    reach, _ = self._reach(inner, self._steps(inner), keep_on, length)
                    for point in self._minimal(reach >= length):
                        if (self._counts[point] + self._counts[outer] <= self._sizes).all():
                            whole = int(point + outer)
                            if longest.get(whole, 0) < length:
                                longest[whole] = length
                                found.append(_Step(whole, length, float(level), int(outer)))
        return [step for step in found if longest[step.point] == step.length]

    def _minimal(self, good: NDArray[np.bool_]) -> Ints:
        """Good points of which no server can be spared."""
        spare = np.zeros_like(good)
        for k, stride in enumerate(self._strides):
            some = np.flatnonzero(good & (self._counts[:, k] > 0))
            spare[some] |= good[some - stride]
        return np.flatnonzero(good & ~spare)

    def _reach(
        self, need: Floats, steps: Sequence[_Step], keep_on: Callable[[], bool], enough: int
    ) -> tuple[Ints, Ints]:
        """How far each point reaches, -1 if nowhere, and the step that it ends with."""
        points = np.array([step.point for step in steps], dtype=np.int64)
        ends = self._ends(need, steps)
        reach: Ints = np.full(len(self._counts), -1)
        by: Ints = np.full(len(self._counts), -1)
        reach[0] = _skip(need, 0)
        sizes = self._used[points]
        for total, layer in enumerate(self._layers[1:], start=1):
            fits = np.flatnonzero(sizes <= total)
            if not fits.size:
                continue
            if not keep_on():
                break
            self._pairs += len(fits) * len(layer)
            width = max(1, MAX_PAIRS // len(fits))
            for some in (layer[first : first + width] for first in range(0, len(layer), width)):
                inside = np.ones((len(some), len(fits)), dtype=bool)
                for k in range(len(self._sizes)):
                    inside &= self._counts[points[fits], k][None] <= self._counts[some, k][:, None]
                before = reach[np.where(inside, some[:, None] - points[fits][None], 0)]
                come = np.where(inside & (before >= 0), ends[fits[None], before], -1)
                chosen = come.argmax(axis=1)
                reach[some] = come[np.arange(len(some)), chosen]
                by[some] = fits[chosen]
            if (reach[layer] >= enough).all():
                break
        return reach, by

    def _ends(self, need: Floats, steps: Sequence[_Step]) -> Ints:
        """Where each step ends, by the block where it starts."""
        blocks = len(need)
        starts = np.arange(blocks + 1)
        free = np.array([_skip(need, int(block)) for block in starts])
        ends = np.empty((len(steps), blocks + 1), dtype=np.int64)
        for row, step in enumerate(steps):
            lacking = np.flatnonzero(need > step.supply)
            stop = np.append(lacking, blocks)[np.searchsorted(lacking, starts)]
            ends[row] = free[np.minimum(np.minimum(starts + step.length, blocks), stop)]
        return ends

    def _trace(self, point: int, reach: Ints, by: Ints, steps: Sequence[_Step], offset: int = 0) -> list[_Held]:
        """The stages behind a point's reach; `offset` is the block where they begin."""
        stages: list[_Held] = []
        while by[point] >= 0:
            step = steps[by[point]]
            point -= step.point
            start = min(offset + int(reach[point]), self._blocks - step.length)
            span = Span(start, start + step.length)
            if step.outer is None:
                stages.append(_Held(span, self._counts[step.point]))
                continue
            stages.append(_Held(span, self._counts[step.outer]))
            inner = np.full(step.length, step.supply - self._supply[step.outer, step.length - 1])
            parts = self._steps(inner)
            below, how = self._reach(inner, parts, lambda: True, step.length)
            stages += self._trace(step.point - step.outer, below, how, parts, start)
        return stages


def _skip(need: Floats, block: int) -> int:
    """The first block from `block` on that needs something."""
    needy = np.flatnonzero(need[block:] > 0)
    return block + int(needy[0]) if needy.size else len(need)


def _placement(problem: Problem, kinds: Sequence[_Kind], stages: Sequence[_Held], base: Floats) -> Placement:
    """Real servers in the stages, those of a kind in the order in which they stand; the rest where it helps."""
    spans: dict[int, Span] = {}
    throughput = base.copy()

    def put(index: int, span: Span) -> None:
        spans[index] = span
        throughput[span.start : span.end] += problem.servers[index].throughput[span.length]

    for k, kind in enumerate(kinds):
        members = sorted(kind.members, key=lambda index: problem.servers[index].current or Span(0, 0))
        places = sorted(held.span for held in stages for _ in range(held.counts[k]))
        for index, span in zip(members, places, strict=False):
            table = kind.rps
            length = max((n for n in table if n >= span.length), key=lambda n: (table[n], -n))
            start = min(span.start, problem.num_blocks - length)
            put(index, Span(start, start + length))
    for index, server in enumerate(problem.servers):
        if server.only is not None:
            spans[index] = server.only
    for index, server in enumerate(problem.servers):
        if index not in spans:
            put(index, _where_it_helps(problem, server, throughput))
    return tuple(spans[index] for index in range(len(problem.servers)))


def _where_it_helps(problem: Problem, server: Server, throughput: Floats) -> Span:
    """The span that relieves the weakest blocks most, by a soft minimum."""
    starts, ends = problem.candidates(server)
    rps = np.array([server.throughput[int(length)] for length in ends - starts])
    beta = 30.0 / max(float(throughput.mean()), 1e-9)
    weight = np.exp(-beta * (throughput - throughput.min()))
    before = np.concatenate(([0.0], np.cumsum(weight)))
    best = int(np.argmax((before[ends] - before[starts]) * -np.expm1(-beta * rps)))
    return Span(int(starts[best]), int(ends[best]))
