"""The integer program, straight: one column a server and span.

    maximize   z - sum of penalty[c] * x[c]
    with       sum of x[c] over the columns of a server = 1,                  for each server
               base[b] + sum of rps[c] * x[c] over the columns that hold b >= z,  for each block b
               x binary, z at least the least RPS of all

The last says that no block is a hole, without a row for it. This is how one would write the problem down at first;
what a search gains by knowing more of it shows beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.competitors.answer import DoesNotApply
from solver import Placement, Problem, Server, Span
from solver.problem import Floats, Ints

MAX_ENTRIES = 6_000_000
"""Entries of the matrix above which the program is not built: its model and its relaxation take several GB."""


@dataclass(frozen=True)
class Columns:
    """The columns, in order of server, start and end; each array has one entry a column."""

    server: Ints
    start: Ints
    end: Ints
    rps: Floats
    penalty: Floats

    @property
    def entries(self) -> int:
        """Entries of the rows of blocks: a column has one for each block that it holds."""
        return int((self.end - self.start).sum())

    def blocks(self) -> Ints:
        """The blocks of all columns, one column after another, shape ``(entries,)``."""
        lengths = self.end - self.start
        first = np.cumsum(lengths) - lengths
        blocks: Ints = np.arange(self.entries) - np.repeat(first - self.start, lengths)
        return blocks

    def placement(self, values: Floats) -> Placement:
        """The span of each server whose column is (nearest to) 1."""
        chosen: dict[int, int] = {}
        for column in np.flatnonzero(values > 0.5).tolist():
            chosen[int(self.server[column])] = column
        return tuple(Span(int(self.start[chosen[s]]), int(self.end[chosen[s]])) for s in range(len(chosen)))


def columns(problem: Problem) -> Columns:
    """The columns of a problem.

    Raises
    ------
    DoesNotApply
        If the problem has demands that the program above has no row for, or is too large.
    """
    if problem.min_replicas or not problem.max_moves == problem.max_loads == problem.max_hops is None:
        raise DoesNotApply("the plain program has no rows for replicas, limits and hops")
    if min(min(server.throughput.values()) for server in problem.servers) <= 0:
        raise DoesNotApply("with a server of 0 RPS the plain program cannot tell a hole")
    entries = count_entries(problem)
    if entries > MAX_ENTRIES:
        raise DoesNotApply(f"the plain program has {entries:,} entries, more than {MAX_ENTRIES:,}")
    spans = [problem.candidates(server) for server in problem.servers]
    return Columns(
        server=np.repeat(np.arange(len(spans)), [starts.size for starts, _ in spans]),
        start=np.concatenate([starts for starts, _ in spans]),
        end=np.concatenate([ends for _, ends in spans]),
        rps=np.concatenate([_rps(one, *some) for one, some in zip(problem.servers, spans, strict=True)]),
        penalty=np.concatenate(
            [_penalty(problem, one, *some) for one, some in zip(problem.servers, spans, strict=True)]
        ),
    )


def count_columns(problem: Problem) -> int:
    """Columns of the program, without making them (pins are taken as free)."""
    return sum(problem.num_blocks - length + 1 for server in problem.servers for length in server.throughput)


def count_entries(problem: Problem) -> int:
    """Entries of the program's rows of blocks, without making them (pins are taken as free)."""
    return sum((problem.num_blocks - length + 1) * length for server in problem.servers for length in server.throughput)


def least_rps(problem: Problem) -> float:
    """A lower limit on `z` that holds just where no block is a hole."""
    held = [rps for rps, count in zip(problem.base_throughput, problem.base_replicas, strict=True) if count]
    return min([*held, *(rps for server in problem.servers for rps in server.throughput.values())])


def _rps(server: Server, starts: Ints, ends: Ints) -> Floats:
    table = np.zeros(max(server.throughput) + 1)
    for length, rps in server.throughput.items():
        table[length] = rps
    found: Floats = table[ends - starts]
    return found


def _penalty(problem: Problem, server: Server, starts: Ints, ends: Ints) -> Floats:
    """RPS that each span costs: what is held costs nothing."""
    seconds = np.array(server.load_seconds)
    if server.current is not None:
        seconds[server.current.start : server.current.end] = 0.0
    until = np.concatenate([[0.0], np.cumsum(seconds)])
    penalty: Floats = _rps(server, starts, ends) * (until[ends] - until[starts]) / problem.horizon
    return penalty
