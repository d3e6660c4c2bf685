"""The integer program of the placement, on CP-SAT.

One integer variable says how many of a group of interchangeable servers take a span::

    count[g, x] in 0..size(g),      sum_x count[g, x] = size(g)

so that the symmetry of equal servers is gone from the start, and every quantity is a plain sum over groups and
spans: the throughput of a block, the replicas on it, the penalty, the loads, the moves. For each block b

    bottleneck <= base[b] + sum over g, x with b in x of throughput[g, |x|] * count[g, x]

which has consecutive ones in every column and hence a strong linear relaxation. While holes are unavoidable a
block that is not covered is let off by a big-M term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.hops import reaching, shortest_chain
from solver.problem import Ints, Placement, Problem, Server, Span, servers_by_identity
from solver.scaling import choose_scale

MAX_LUMPS = 2**13
"""Most values that the bottleneck is restricted to."""
MAX_LEVELS = 2**14
"""Most values of the level below which blocks count as weakest."""

Expr = Any
"""A linear expression of CP-SAT, whose classes differ between versions of OR-Tools."""


@dataclass(frozen=True)
class Group:
    """Interchangeable servers and the spans that each may take.

    All arrays have shape ``(number of spans,)``: `throughput` and `penalty` in RPS, `loads` in blocks, `moves`
    0 or 1, `distance` in blocks. `penalty` is less the group's least penalty, which `fixed_penalty` sums up
    over the group's servers.
    """

    members: tuple[int, ...]
    starts: Ints
    ends: Ints
    throughput: np.ndarray[Any, np.dtype[np.float64]]
    penalty: np.ndarray[Any, np.dtype[np.float64]]
    loads: Ints
    moves: Ints
    distance: Ints
    fixed_penalty: float

    def index(self, span: Span) -> int:
        """Where `span` stands among the group's spans."""
        return int(np.flatnonzero((self.starts == span.start) & (self.ends == span.end))[0])


def _group(problem: Problem, members: Sequence[int]) -> Group:
    server: Server = problem.servers[members[0]]
    starts, ends = problem.candidates(server)
    throughput = np.array([server.throughput[int(length)] for length in ends - starts])
    seconds = list(server.load_seconds)
    if server.current is not None:
        seconds[server.current.start : server.current.end] = [0.0] * server.current.length
        kept = np.maximum(0, np.minimum(ends, server.current.end) - np.maximum(starts, server.current.start))
        moves = ((starts != server.current.start) | (ends != server.current.end)).astype(np.int64)
        distance = np.abs(starts - server.current.start)
    else:
        kept, moves, distance = np.zeros_like(starts), np.ones_like(starts), np.zeros_like(starts)
    penalty = throughput * _sums(seconds, starts, ends) / problem.horizon
    least = float(penalty.min())
    return Group(
        tuple(members),
        starts,
        ends,
        throughput,
        penalty - least,
        ends - starts - kept,
        moves,
        distance,
        least * len(members),
    )


def _sums(values: Sequence[float], starts: Ints, ends: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sum of ``values[start:end]`` for each pair, rounded once: spans that cost the same cost exactly the same.

    Differences of cumulated floats would not: rounded up to units, their noise would decide ties.
    """
    exact = [Fraction(value) for value in values]
    unit = max(value.denominator for value in exact)
    before = list(accumulate((value.numerator * (unit // value.denominator) for value in exact), initial=0))
    return np.array([(before[end] - before[start]) / unit for start, end in zip(starts, ends, strict=True)])


class PlacementModel:
    """Variables, constraints and the expressions of all priorities.

    Parameters
    ----------
    problem
        What to place; it must have at least one server.
    holes
        A number of holes that is known to suffice.
    ceiling
        A proven upper bound on the bottleneck in RPS, where one is known.
    reached
        The objective (RPS) of a placement without holes or missing replicas, where one is known.

    Attributes
    ----------
    model
        The `cp_model.CpModel`.
    scale
        What turns RPS into units.
    rounding_slack
        RPS by which the scaled objective may understate the real one, over all placements.
    bottleneck_limit
        Upper bound on the bottleneck in RPS: the ceiling, or averaging alone, that is all throughput spread
        evenly over the blocks that are sure to be covered.
    """

    def __init__(
        self, problem: Problem, holes: int, ceiling: float | None = None, reached: float | None = None
    ) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.groups = [_group(problem, members) for members in servers_by_identity(problem.servers)]
        self._covering = [
            [(g, int(k)) for g, group in enumerate(self.groups) for k in _covering(group, block)]
            for block in range(problem.num_blocks)
        ]
        self._total = math.fsum(problem.base_throughput) + math.fsum(
            len(group.members) * float(np.max(group.throughput * (group.ends - group.starts))) for group in self.groups
        )
        self.bottleneck_limit = self._total / max(1, problem.num_blocks - holes)
        # Not from the ceiling, which a short time limit may leave higher: the same problem has the same scale.
        self._choose_scale(reached)
        if ceiling is not None:
            self.bottleneck_limit = min(self.bottleneck_limit, ceiling)
        self._variables()
        self._constraints()

    # Scaling ---------------------------------------------------------------------------------------------

    def _choose_scale(self, reached: float | None) -> None:
        # A move whose penalty alone brings every bottleneck below what is reached is never worth it, however
        # far below: capped, such penalties don't eat up the resolution of all others. Where holes or replicas
        # may force moves nothing is known to be reached, and every penalty counts in full.
        cap = math.inf if reached is None else 2.0 * (self.bottleneck_limit - reached - self.fixed_penalty)
        cap = max(cap, 2.0 * self.bottleneck_limit)
        capped = [np.minimum(group.penalty, cap) for group in self.groups]
        sizes = [len(group.members) for group in self.groups]
        rows = [
            base + math.fsum(sizes[g] * float(self.groups[g].throughput[k]) for g, k in covering)
            for base, covering in zip(self.problem.base_throughput, self._covering, strict=True)
        ]
        penalties = math.fsum(size * float(penalty.sum()) for size, penalty in zip(sizes, capped, strict=True))
        self.scale = choose_scale(max(*rows, penalties, self.bottleneck_limit))
        self.base_units = self.scale.down(np.array(self.problem.base_throughput))
        self.throughput_units = [self.scale.down(group.throughput) for group in self.groups]
        self.penalty_units = [self.scale.up(penalty) for penalty in capped]
        lost = float(np.max(np.array(self.problem.base_throughput) - self.base_units * self.scale.rps))
        for g, size in enumerate(sizes):
            down = np.max(self.groups[g].throughput - self.throughput_units[g] * self.scale.rps)
            up = np.max(self.penalty_units[g] * self.scale.rps - capped[g])
            lost += size * float(down + up)
        # The last term covers the rounding of the floats themselves.
        self.rounding_slack = lost + 1e-12 * self._total

    @property
    def fixed_penalty(self) -> float:
        """RPS of penalty that every placement has."""
        return math.fsum(group.fixed_penalty for group in self.groups)

    # Variables -------------------------------------------------------------------------------------------

    def _variables(self) -> None:
        self.count = [
            [self.model.new_int_var(0, len(group.members), "") for _ in range(group.starts.size)]
            for group in self.groups
        ]
        self._limit = int(self.scale.down(self.bottleneck_limit)) + 1
        self.bottleneck = self.model.new_int_var(0, self._limit, "bottleneck")
        self._covered: list[cp_model.IntVar] = []
        self._whole: cp_model.IntVar | None = None
        self._links: list[tuple[Span, cp_model.IntVar]] = []
        self._replicas = [
            cp_model.LinearExpr.sum([self.count[g][k] for g, k in covering]) + self.problem.base_replicas[block]
            for block, covering in enumerate(self._covering)
        ]

    # Constraints -----------------------------------------------------------------------------------------

    def _constraints(self) -> None:
        for group, counts in zip(self.groups, self.count, strict=True):
            if len(group.members) == 1:
                self.model.add_exactly_one(counts)
            else:
                self.model.add(cp_model.LinearExpr.sum(counts) == len(group.members))
        if self.problem.max_moves is not None:
            self.model.add(self.moves() <= self.problem.max_moves)
        if self.problem.max_loads is not None:
            self.model.add(self.loads() <= self.problem.max_loads)

    def cover_all(self) -> None:
        """Demand that no block is a hole, and that the bottleneck is that of all blocks."""
        for block, replicas in enumerate(self._replicas):
            if not self.problem.base_replicas[block]:
                self.model.add(replicas >= 1)
            self.model.add(self.bottleneck <= self.throughput(block))
        self._limit_hops(1)

    def count_holes(self) -> Expr:
        """Let blocks be holes, and give their number; the bottleneck is that of the others."""
        self._covered = [self.model.new_bool_var("") for _ in self._replicas]
        for block, (replicas, covered) in enumerate(zip(self._replicas, self._covered, strict=True)):
            self.model.add(covered <= replicas)
            self.model.add(self.bottleneck <= self.throughput(block) + self._limit * (1 - covered))
        if self.problem.max_hops is not None:
            self._whole = self.model.new_bool_var("whole")  # no hole: only then there is a chain
            self.model.add(cp_model.LinearExpr.sum(self._covered) <= len(self._covered) - 1 + self._whole)
            for block, (replicas, covered) in enumerate(zip(self._replicas, self._covered, strict=True)):
                most = self.problem.base_replicas[block] + len(self.problem.servers)
                self.model.add(replicas <= most * covered)
            self._limit_hops(self._whole)
        return len(self._covered) - cp_model.LinearExpr.sum(self._covered)

    def _limit_hops(self, whole: Expr) -> None:
        """Where `whole` is 1, let at most `Problem.max_hops` spans that are held cover all blocks."""
        if self.problem.max_hops is None:
            return
        holding: list[list[cp_model.IntVar]] = [[] for _ in self._replicas]
        for span in reaching(self.problem.base_spans, self.problem.num_blocks):
            link = self.model.new_bool_var("")
            self._links.append((span, link))
            for block in range(*span):
                holding[block].append(link)
        for group, counts in zip(self.groups, self.count, strict=True):
            for start, end, count in zip(group.starts.tolist(), group.ends.tolist(), counts, strict=True):
                link = self.model.new_bool_var("")
                self.model.add(link <= count)
                self._links.append((Span(start, end), link))
                for block in range(start, end):
                    holding[block].append(link)
        for links in holding:
            self.model.add(cp_model.LinearExpr.sum(links) >= whole)
        self.model.add(cp_model.LinearExpr.sum([link for _, link in self._links]) <= self.problem.max_hops)

    def restrict_bottleneck(self, objective: float) -> None:
        """Leave the bottleneck only values that some set of servers sums up to, from `objective` (RPS) on.

        The throughput of a block comes in lumps, which linear relaxations don't see. Told so, CP-SAT proves in
        a fraction of a second what it otherwise does not in minutes; with too many lumps it would not pay.

        Parameters
        ----------
        objective
            Reached by a placement that keeps all levels fixed before: the bottleneck need not be lower.
        """
        lumps = self._lumps
        if lumps is not None:
            least = math.floor((objective + self.fixed_penalty - self.rounding_slack) / self.scale.rps) - 1
            values = lumps[(lumps >= least) & (lumps <= self._limit)]
            if 0 < values.size <= MAX_LUMPS:
                domain = cp_model.Domain.from_values(values.tolist())
                self.model.add_linear_expression_in_domain(self.bottleneck, domain)

    @cached_property
    def _lumps(self) -> Ints | None:
        """All sums of servers on top of the constants, in units; None if there are too many."""
        lumps = {0}
        for group, units in zip(self.groups, self.throughput_units, strict=True):
            for _ in group.members:
                lumps |= {one + value for one in lumps for value in set(units.tolist())}
                if len(lumps) > MAX_LUMPS:
                    return None
        return np.unique(np.add.outer(np.unique(self.base_units), np.array(sorted(lumps), dtype=np.int64)))

    # Expressions of the priorities -----------------------------------------------------------------------

    def throughput(self, block: int) -> Expr:
        """Throughput of a block, in units."""
        counts = [self.count[g][k] for g, k in self._covering[block]]
        units = [int(self.throughput_units[g][k]) for g, k in self._covering[block]]
        return cp_model.LinearExpr.weighted_sum(counts, units) + int(self.base_units[block])

    def missing_replicas(self) -> Expr:
        """Sum over the blocks of what lacks to `Problem.min_replicas`."""
        missing = []
        for block, replicas in enumerate(self._replicas):
            lacks = max(0, self.problem.min_replicas - self.problem.base_replicas[block])
            if lacks:
                variable = self.model.new_int_var(0, lacks, "")
                self.model.add(replicas + variable >= self.problem.min_replicas)
                missing.append(variable)
        return cp_model.LinearExpr.sum(missing)

    def objective(self) -> Expr:
        """Bottleneck less reload penalty in units, without `fixed_penalty`."""
        return self.bottleneck - self._weighted(self.penalty_units)

    def loads(self) -> Expr:
        """Blocks loaded."""
        return self._weighted([group.loads for group in self.groups])

    def moves(self) -> Expr:
        """Servers that change their span."""
        return self._weighted([group.moves for group in self.groups])

    def weakest(self) -> Expr:
        """A lower bound, tight at its maximum, on the sum of the ``ceil(num_blocks / 4)`` smallest throughputs.

        The sum of the k smallest of some numbers c is ``max over u of k * u - sum(max(0, u - c))``
        (Ogryczak and Tamir, "Minimizing the sum of the k largest functions in linear time", 2003).

        The level u only takes the values that a block's throughput can take, or where these are too many, those
        of a fine grid, which can cost a step of it for each of the k. While just k blocks are below the level,
        raising it changes nothing, and CP-SAT's propagation would do so unit by unit, deaf to its time limit.
        """
        blocks = self.problem.num_blocks
        weakest = -(-blocks // 4)
        if weakest == blocks:
            return self.throughput(0)
        # The next larger throughput is at most the mean of all those that are not among the weakest.
        limit = int(self.scale.down(self._total / (blocks - weakest))) + 1
        values = self._lumps
        if values is None or values.size > MAX_LEVELS:
            values = np.arange(0, limit + 1, -(-limit // MAX_LEVELS), dtype=np.int64)
        domain = cp_model.Domain.from_values(values[values <= limit].tolist())
        level = self.model.new_int_var_from_domain(domain, "level")
        below = [self.model.new_int_var(0, limit, "") for _ in range(blocks)]
        for block, shortfall in enumerate(below):
            self.model.add(shortfall >= level - self.throughput(block))
        return weakest * level - cp_model.LinearExpr.sum(below)

    def distance(self) -> Expr:
        """Sum of the distances between present and target starts, in blocks."""
        return self._weighted([group.distance for group in self.groups])

    def changes(self, placement: Placement) -> Expr:
        """Servers that do not take their span in `placement`; equal ones may take each other's."""
        same = []
        for group, counts, taken in zip(self.groups, self.count, self._taken(placement), strict=True):
            for k, wanted in taken.items():
                if len(group.members) == 1:
                    same.append(counts[k])
                else:
                    kept = self.model.new_int_var(0, wanted, "")
                    self.model.add(kept <= counts[k])
                    same.append(kept)
        return len(self.problem.servers) - cp_model.LinearExpr.sum(same)

    def positions(self) -> list[Expr]:
        """For each server, where its target stands among its spans; members of a group in ascending order."""
        positions: dict[int, Expr] = {}
        for group, counts in zip(self.groups, self.count, strict=True):
            order = list(range(len(counts)))
            if len(group.members) == 1:
                positions[group.members[0]] = cp_model.LinearExpr.weighted_sum(counts, order)
                continue
            takes = [[self.model.new_bool_var("") for _ in order] for _ in group.members]
            for k in order:
                self.model.add(cp_model.LinearExpr.sum([member[k] for member in takes]) == counts[k])
            for server, member in zip(group.members, takes, strict=True):
                self.model.add_exactly_one(member)
                positions[server] = cp_model.LinearExpr.weighted_sum(member, order)
            for one, next_one in zip(group.members, group.members[1:], strict=False):
                self.model.add(positions[one] <= positions[next_one])
        return [positions[server] for server in range(len(self.problem.servers))]

    def differs_from(self, placement: Placement) -> Expr:
        """At least 1 in every placement but `placement`."""
        same = []
        for g, taken in enumerate(self._taken(placement)):
            for k, count in taken.items():
                if len(self.groups[g].members) == 1:
                    same.append(self.count[g][k])
                else:
                    as_many = self.model.new_bool_var("")
                    self.model.add(self.count[g][k] <= count - 1 + len(self.groups[g].members) * as_many)
                    same.append(as_many)
        return len(same) - cp_model.LinearExpr.sum(same)

    def _weighted(self, per_span: Sequence[Ints]) -> Expr:
        pairs = [
            (count, int(weight))
            for counts, weights in zip(self.count, per_span, strict=True)
            for count, weight in zip(counts, weights, strict=True)
            if weight
        ]
        return cp_model.LinearExpr.weighted_sum([count for count, _ in pairs], [weight for _, weight in pairs])

    # In and out ------------------------------------------------------------------------------------------

    def hint(self, placement: Placement) -> None:
        """Start the next search from `placement`."""
        self.model.clear_hints()
        throughput, replicas = self.base_units.copy(), np.array(self.problem.base_replicas)
        for g, taken in enumerate(self._taken(placement)):
            for k, count in enumerate(self.count[g]):
                self.model.add_hint(count, taken.get(k, 0))
            for k, size in taken.items():
                blocks = slice(self.groups[g].starts[k], self.groups[g].ends[k])
                throughput[blocks] += size * self.throughput_units[g][k]
                replicas[blocks] += size
        self.model.add_hint(self.bottleneck, int(throughput[replicas > 0].min(initial=self._limit)))
        for covered, number in zip(self._covered, replicas, strict=False):
            self.model.add_hint(covered, int(number > 0))
        self._hint_chain(placement, whole=bool((replicas > 0).all()))

    def _hint_chain(self, placement: Placement, *, whole: bool) -> None:
        chain = shortest_chain([*self.problem.base_spans, *placement], self.problem.num_blocks) if self._links else None
        wanted = list(chain or ())
        for span, link in self._links:
            self.model.add_hint(link, int(span in wanted))
            if span in wanted:
                wanted.remove(span)
        if self._whole is not None:
            self.model.add_hint(self._whole, int(whole))

    def placement(self, values: Sequence[int]) -> Placement:
        """The spans that the variables' values say, ascending among interchangeable servers."""
        spans: dict[int, Span] = {}
        for group, counts in zip(self.groups, self.count, strict=True):
            targets = [
                Span(int(group.starts[k]), int(group.ends[k]))
                for k, count in enumerate(counts)
                for _ in range(values[count.index])
            ]
            spans.update(zip(group.members, sorted(targets), strict=True))
        return tuple(spans[server] for server in range(len(spans)))

    def _taken(self, placement: Placement) -> list[dict[int, int]]:
        taken: list[dict[int, int]] = []
        for group in self.groups:
            counts: dict[int, int] = {}
            for server in group.members:
                index = group.index(placement[server])
                counts[index] = counts.get(index, 0) + 1
            taken.append(counts)
        return taken


def _covering(group: Group, block: int) -> Ints:
    return np.flatnonzero((group.starts <= block) & (block < group.ends))
