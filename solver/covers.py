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
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]  # it has no stubs

from solver.problem import Floats, Ints

NOISE = 1e-12
"""Share of a sum within which floats are taken to be equal; the rounding slack covers it."""
MARGIN = 1e-7
"""Share by which a refutation must be clear of the linear program's own tolerances and of noise."""
FEW_SETS, MAX_SETS = 250, 4_000
"""Most sets of servers that are kept while the cheapest covers are made, at first and in the end; beyond, their
RPS are rounded up."""
MAX_ROUNDS = 200
"""Rounds of the linear program."""
MAX_KINDS, MAX_ITEMS = 12, 150
"""Most kinds of servers, and of their lengths together; of more kinds hardly any lump is lost, and averaging is
close."""
WORK_A_LOOK, MAX_WORK = 3_000_000, 20_000_000
"""Sets made for one threshold, and for all together; up to a few seconds."""


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
        if len(self._kinds) > MAX_KINDS or len(program.items) > MAX_ITEMS:
            return False, None
        worth, closest = program.averaging(), _Look(math.inf, None)
        few = True
        enough = min(MAX_WORK, self._work + WORK_A_LOOK)
        for _ in range(MAX_ROUNDS):
            if self._work >= enough or not keep_on():
                break
            found = program.sums.cheapest(worth, FEW_SETS if few else MAX_SETS)
            self._work += program.sums.work
            if found.supply[-1] < levels[-1]:
                return True, None
            closest = min(closest, program.weigh(worth, found), key=lambda look: look.share)
            if closest.share < 1 - MARGIN:
                return True, closest.worths
            better = program.improve(found)
            if better is not None:
                worth = better
            elif few and program.sums.rounded:
                # Some sets cover only because they are rounded up: begin anew without them.
                few, program = False, _Program(self._kinds, levels, blocks)
            else:
                break
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
        self._known: set[tuple[object, ...]] = set()
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
        """Better worths, now that these sets are known; None where none refute the threshold, or no set is new."""
        known = len(self._known)
        for level, row in enumerate(np.searchsorted(found.supply, self._levels)):
            used = found.used(int(row))
            key = (level, *sorted(used.items()))
            if key not in self._known:
                self._known.add(key)
                total = self._solver.Sum([n * self._worth[i] for i, n in used.items()])
                self._solver.Add(self._price[level] <= total)
        if len(self._known) == known:
            return None
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL or self._solver.Objective().Value() >= 1 - MARGIN:
            return None
        return np.maximum(0.0, [variable.solution_value() for variable in self._worth])


@dataclass(frozen=True)
class _Cheapest:
    """Sets of servers, of which none has both more supply and less cost than another; ascending in both.

    Each is the one in `row` of `sources[source]`, and one server of `item` more unless that is -1.
    """

    supply: Floats
    cost: Floats
    sources: tuple[_Cheapest, ...]
    source: Ints
    row: Ints
    item: Ints

    def used(self, row: int) -> dict[int, int]:
        """How many servers of each item are in one set."""
        counts: dict[int, int] = {}
        at = self
        while at.sources:
            item = int(at.item[row])
            if item >= 0:
                counts[item] = counts.get(item, 0) + 1
            at, row = at.sources[at.source[row]], int(at.row[row])
        return counts


class _Sums:
    """The cheapest sets of servers for every supply."""

    def __init__(self, counts: Sequence[int], items: Sequence[tuple[int, int, float]], most: float) -> None:
        self._items = items
        self._most = most
        self.work = 0
        self.rounded = False
        self._mine = [np.array([i for i, (j, _, _) in enumerate(items) if j == k]) for k in range(len(counts))]
        self._rps = [np.array([items[i][2] for i in mine]) for mine in self._mine]
        # More servers than alone bring everything to its need are of no use.
        self._counts = [
            min(count, math.ceil(most / rps.min())) if rps.size else 0
            for count, rps in zip(counts, self._rps, strict=True)
        ]

    def cheapest(self, worth: Floats, most_sets: int) -> _Cheapest:
        """By the worth of each item; the last set supplies as much as is ever needed, if any does."""
        nothing = np.zeros(1, dtype=np.int64)
        done = _Cheapest(np.zeros(1), np.zeros(1), (), nothing, nothing, nothing)
        self.work, self.rounded = 0, False
        for mine, rps, count in zip(self._mine, self._rps, self._counts, strict=True):
            layers = [done]
            for _ in range(count):
                layers.append(self._with_one_more(layers[-1], mine, rps, worth, most_sets))
            if count:
                done = self._merged(tuple(layers), most_sets)
        return done

    def _with_one_more(self, sets: _Cheapest, mine: Ints, rps: Floats, worth: Floats, most_sets: int) -> _Cheapest:
        size = len(sets.supply)
        return self._pruned(
            np.add.outer(rps, sets.supply).ravel(),
            np.add.outer(worth[mine], sets.cost).ravel(),
            (sets,),
            np.zeros(size * len(mine), dtype=np.int64),
            np.tile(np.arange(size), len(mine)),
            np.repeat(mine, size),
            most_sets,
        )

    def _merged(self, layers: tuple[_Cheapest, ...], most_sets: int) -> _Cheapest:
        sizes = [len(layer.supply) for layer in layers]
        return self._pruned(
            np.concatenate([layer.supply for layer in layers]),
            np.concatenate([layer.cost for layer in layers]),
            layers,
            np.repeat(np.arange(len(layers)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
            np.full(sum(sizes), -1),
            most_sets,
        )

    def _pruned(
        self,
        supply: Floats,
        cost: Floats,
        sources: tuple[_Cheapest, ...],
        source: Ints,
        row: Ints,
        item: Ints,
        most_sets: int,
    ) -> _Cheapest:
        self.work += len(supply)
        supply = np.minimum(supply, self._most)
        order = np.lexsort((cost, -supply))
        supply, cost = supply[order], cost[order]
        least = np.minimum.accumulate(cost)
        keep: Ints = np.flatnonzero(np.append(True, cost[1:] < least[:-1]))[::-1]
        raised = supply[keep]
        if len(keep) > most_sets:
            # Up to the next of a coarse grid: more supply for the same cost, which keeps the bound valid.
            self.rounded = True
            grid = self._most / (most_sets / 2)
            raised = np.minimum(self._most, np.maximum(raised, np.ceil(raised / grid) * grid))
            first = np.flatnonzero(np.append(True, raised[1:] > raised[:-1]))
            keep, raised = keep[first], raised[first]
        chosen = order[keep]
        return _Cheapest(raised, cost[keep], sources, source[chosen], row[chosen], item[chosen])
