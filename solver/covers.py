"""A bound on the bottleneck from how blocks can be covered: an area bound that knows of lumps.

Averaging spreads all throughput evenly. But a block that is to reach a threshold is held by whole servers, and
what they pass in excess of it is lost. Give each server that holds n blocks a worth ``w(r)`` a block, by its RPS
r, such that every set of servers that brings a block to what it needs has a worth of at least 1::

    sum over i in S of w(r_i) >= pi(need)       for all sets S with  sum over i in S of r_i >= need

Then a placement that reaches the threshold spends on each block at least the block's ``pi``, and all servers
together have at most ``sum_s max_n n * w(r_s(n))``. Where the latter is less than the sum of the former, the
threshold is refuted. ``w(r) = r`` is averaging; the best worths are the optimum of a linear program, whose rows
are made as they are violated (column generation on the dual side: Gilmore and Gomory, "A linear programming
approach to the cutting-stock problem", Operations Research 9, 1961; for covering, such worths are known as dual
feasible functions: Clautiaux, Alves and Valerio de Carvalho, "A survey of dual-feasible and superadditive
functions", Annals of Operations Research 179, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver import pywraplp

from solver.problem import Floats, Ints

NOISE = 1e-12
"""Share of a sum within which floats are taken to be equal; the rounding slack covers it."""
MARGIN = 1e-7
"""Share by which a refutation must be clear of the linear program's own tolerances and of noise."""
MAX_SETS = 4_000
"""Most sets of servers that are kept while the cheapest covers are made; beyond, RPS are rounded up."""
MAX_ROUNDS = 200
"""Rounds of the linear program."""
MAX_ITEMS = 200
"""Most pairs of a kind and a length; with more, servers differ so much that averaging is close."""
MAX_WORK = 300_000_000
"""Entries of the sets made for all thresholds together; up to a few seconds."""


@dataclass(frozen=True)
class Kind:
    """`count` interchangeable servers: what each passes, by the length of its span."""

    count: int
    rps: tuple[tuple[int, float], ...]

    def useful(self, most: float) -> list[tuple[int, float]]:
        """Lengths longest first, without those that pass no more than a longer one; RPS above `most` are of no use."""
        kept: list[tuple[int, float]] = []
        best = 0.0
        for length, rps in sorted(self.rps, reverse=True):
            if min(rps, most) > best:
                best = min(rps, most)
                kept.append((length, best))
        return kept


@dataclass(frozen=True)
class Worths:
    """What servers are worth a block, by kind and length, and the sets of servers that cover for the least.

    ``supply`` ascends, and so does ``cost``: a need of r costs ``cost[first supply >= r]``.
    """

    worth: tuple[dict[int, float], ...]
    supply: Floats
    cost: Floats

    def of_need(self, need: float) -> float:
        """The least worth that meets a need."""
        return float(self.cost[min(len(self.cost) - 1, int(np.searchsorted(self.supply, need)))])

    def of_server(self, kind: int) -> float:
        """The most that a server of a kind can be worth, on all its blocks."""
        return max((length * worth for length, worth in self.worth[kind].items()), default=0.0)


class CoverBound:
    """The bound for one set of servers, at any threshold.

    Parameters
    ----------
    base
        RPS per block of all that does not move.
    kinds
        The servers that may take any span.
    """

    def __init__(self, base: Sequence[float], kinds: Sequence[Kind]) -> None:
        self._base = np.array(base)
        self._kinds = list(kinds)
        self._work = 0

    def refutes(self, threshold: float, keep_on: Callable[[], bool] = lambda: True) -> bool:
        """Whether it is proven that no placement reaches the threshold."""
        return self.look(threshold, keep_on)[0]

    def look(self, threshold: float, keep_on: Callable[[], bool] = lambda: True) -> tuple[bool, Worths | None]:
        """Whether the threshold is refuted, and the worths that come closest to that."""
        need = threshold * (1 - NOISE) - self._base
        need = need[need > 0]
        if not need.size:
            return False, None
        levels, blocks = np.unique(need, return_counts=True)
        program = _Program(self._kinds, levels, blocks)
        if not program.items:
            return True, None
        if len(program.items) > MAX_ITEMS:
            return False, None
        worth, closest = program.averaging(), _Look(math.inf, None)
        for _ in range(MAX_ROUNDS):
            if self._work > MAX_WORK or not keep_on():
                break
            found = program.sums.cheapest(worth)
            self._work += program.sums.work
            if found.supply[-1] < levels[-1]:
                return True, None
            closest = min(closest, program.weigh(worth, found), key=lambda look: look.share)
            if closest.share < 1 - MARGIN:
                return True, closest.worths
            better = program.improve(found)
            if better is None:
                break
            worth = better
        return False, closest.worths


@dataclass(frozen=True)
class _Look:
    """What all servers are worth as a share of what must be spent, and the worths, by which that is 1."""

    share: float
    worths: Worths | None


class _Program:
    """The linear program of the worths for one threshold.

    `items` are the kinds, lengths and RPS that may be of use; `levels` are the different needs above 0, and
    `blocks` how many have them.
    """

    def __init__(self, kinds: Sequence[Kind], levels: Floats, blocks: Ints) -> None:
        self._kinds, self._levels, self._blocks = kinds, levels, blocks
        most = float(levels[-1])
        self.items = [(k, length, rps) for k, kind in enumerate(kinds) for length, rps in kind.useful(most)]
        self.sums = _Sums([kind.count for kind in kinds], self.items, most)
        self._solver = solver = pywraplp.Solver.CreateSolver("GLOP")
        self._worth = [solver.NumVar(0.0, solver.infinity(), "") for _ in self.items]
        self._price = [solver.NumVar(0.0, solver.infinity(), "") for _ in levels]
        whole = [solver.NumVar(0.0, solver.infinity(), "") for _ in kinds]
        for (k, length, _), variable in zip(self.items, self._worth, strict=True):
            solver.Add(whole[k] >= length * variable)
        solver.Add(solver.Sum([int(n) * price for n, price in zip(blocks, self._price, strict=True)]) == 1.0)
        solver.Minimize(solver.Sum([kind.count * one for kind, one in zip(kinds, whole, strict=True)]))

    def averaging(self) -> Floats:
        """The worths to begin with."""
        return np.array([rps for _, _, rps in self.items])

    def weigh(self, worth: Floats, found: _Cheapest) -> _Look:
        """What these worths prove, given the cheapest sets by them."""
        spent = math.fsum(self._blocks * found.cost[np.searchsorted(found.supply, self._levels)])
        if not spent > 0:
            return _Look(math.inf, None)
        tables: tuple[dict[int, float], ...] = tuple({} for _ in self._kinds)
        for (k, length, _), one in zip(self.items, worth, strict=True):
            tables[k][length] = float(one) / spent
        worths = Worths(tables, found.supply, found.cost / spent)
        return _Look(math.fsum(kind.count * worths.of_server(k) for k, kind in enumerate(self._kinds)), worths)

    def improve(self, found: _Cheapest) -> Floats | None:
        """Better worths, now that these sets are known; None where no worths refute the threshold."""
        for level, row in enumerate(np.searchsorted(found.supply, self._levels)):
            used = np.flatnonzero(found.used[row])
            total = self._solver.Sum([int(found.used[row, i]) * self._worth[i] for i in used])
            self._solver.Add(self._price[level] <= total)
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL or self._solver.Objective().Value() >= 1 - MARGIN:
            return None
        return np.maximum(0.0, [variable.solution_value() for variable in self._worth])


@dataclass(frozen=True)
class _Cheapest:
    """Sets of servers, of which none has both more supply and less cost than another; ascending in both."""

    supply: Floats
    cost: Floats
    used: NDArray[np.int16]


class _Sums:
    """The cheapest sets of servers for every supply."""

    def __init__(self, counts: Sequence[int], items: Sequence[tuple[int, int, float]], most: float) -> None:
        self._items = items
        self._most = most
        self.work = 0
        self._counts = [
            min(count, self._enough([rps for j, _, rps in items if j == k])) for k, count in enumerate(counts)
        ]

    def _enough(self, rps: Sequence[float]) -> int:
        return math.ceil(self._most / min(rps)) if rps else 0

    def cheapest(self, worth: Floats) -> _Cheapest:
        """By the worth of each item; the last set supplies as much as is ever needed, if any does."""
        none = _Cheapest(np.zeros(1), np.zeros(1), np.zeros((1, len(self._items)), dtype=np.int16))
        done = none
        self.work = 0
        for k, count in enumerate(self._counts):
            mine = [i for i, (j, _, _) in enumerate(self._items) if j == k]
            rps = np.array([self._items[i][2] for i in mine])
            step = np.zeros((len(mine), len(self._items)), dtype=np.int16)
            step[np.arange(len(mine)), mine] = 1
            layer, every = done, [done]
            for _ in range(count if mine else 0):
                layer = self._pruned(
                    np.add.outer(layer.supply, rps).ravel(),
                    np.add.outer(layer.cost, worth[mine]).ravel(),
                    (layer.used[:, None] + step[None]).reshape(-1, len(self._items)),
                )
                every.append(layer)
            done = self._pruned(
                np.concatenate([some.supply for some in every]),
                np.concatenate([some.cost for some in every]),
                np.concatenate([some.used for some in every]),
            )
        return done

    def _pruned(self, supply: Floats, cost: Floats, used: NDArray[np.int16]) -> _Cheapest:
        self.work += used.size
        supply = np.minimum(supply, self._most)
        order = np.lexsort((cost, -supply))
        supply, cost = supply[order], cost[order]
        least = np.minimum.accumulate(cost)
        keep: Ints = np.flatnonzero(np.append(True, cost[1:] < least[:-1]))[::-1]
        if len(keep) > MAX_SETS:
            # Up to the next of a coarse grid: more supply for the same cost, which keeps the bound valid.
            grid = self._most / (MAX_SETS / 2)
            raised = np.minimum(self._most, np.ceil(supply[keep] / grid) * grid)
            first = np.flatnonzero(np.append(True, raised[1:] > raised[:-1]))
            keep, raised = keep[first], raised[first]
            return _Cheapest(raised, cost[keep], used[order[keep]])
        return _Cheapest(supply[keep], cost[keep], used[order[keep]])
