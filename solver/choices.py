"""All spans that the free servers of a problem may take, as arrays: what the searches in numpy work on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.problem import Floats, Ints, Placement, Problem, Server, Span, servers_by_identity


@dataclass(frozen=True)
class Choices:
    """The free servers of a problem in rows, one a kind of interchangeable servers; all others are constants.

    Arrays of shape ``(rows, spans)`` are filled up, where a row has fewer spans, with empty ones whose penalty is
    infinite.

    Parameters
    ----------
    problem
        Whose servers these are.
    free
        Indices of the free servers, ascending, shape ``(free,)``.
    row
        The row of each free server, shape ``(free,)``.
    counts, sizes
        Servers and spans of each row, shape ``(rows,)``.
    starts, ends
        Spans, ascending in each row.
    rps, penalty
        Throughput through each block, and the reload penalty, both in RPS.
    loads, moves
        Blocks loaded, and 0 or 1.
    fixed
        The spans of the servers that are not free, by index.
    base
        RPS of each block without the free servers, shape ``(num_blocks,)``.
    base_replicas
        Servers on each block, likewise.
    fixed_penalty, fixed_loads, fixed_moves
        What the servers that are not free add.
    """

    problem: Problem
    free: Ints
    row: Ints
    counts: Ints
    sizes: Ints
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    rps: Floats
    penalty: Floats
    loads: NDArray[np.int32]
    moves: NDArray[np.int8]
    fixed: dict[int, Span]
    base: Floats
    base_replicas: Ints
    fixed_penalty: float
    fixed_loads: int
    fixed_moves: int

    @cached_property
    def single(self) -> Ints:
        """The one length of each row whose spans are all starts from the first on, else 0; shape ``(rows,)``."""
        lengths = self.ends - self.starts
        inside = np.arange(self.starts.shape[1]) < self.sizes[:, None]
        regular = (self.starts == np.arange(self.starts.shape[1])) & (lengths == lengths[:, :1])
        single: Ints = np.where((regular | ~inside).all(axis=1), lengths[:, 0], 0)
        return single

    def taken(self, placement: Placement) -> Ints:
        """Where each free server's span stands in its row, shape ``(free,)``."""
        spans = np.array([placement[index] for index in self.free], dtype=np.int32).reshape(-1, 2)
        found = np.empty(len(self.free), dtype=np.int64)
        for first in range(0, len(found), 1024):
            part = slice(first, first + 1024)
            rows = self.row[part]
            same = (self.starts[rows] == spans[part, :1]) & (self.ends[rows] == spans[part, 1:])
            found[part] = np.argmax(same, axis=1)
        return found

    def placement(self, taken: Ints) -> Placement:
        """The placement of all servers in which the free ones take these spans."""
        starts, ends = self.starts[self.row, taken].tolist(), self.ends[self.row, taken].tolist()
        spans = {
            **self.fixed,
            **{index: Span(*pair) for index, *pair in zip(self.free.tolist(), starts, ends, strict=True)},
        }
        return tuple(spans[index] for index in range(len(spans)))


def choices_of(problem: Problem) -> Choices:
    """The choices of all servers that are not pinned."""
    base = [[rps] for rps in problem.base_throughput]
    replicas = list(problem.base_replicas)
    fixed: dict[int, Span] = {}
    penalties: list[float] = []
    loads_fixed = moves_fixed = 0
    for index, server in enumerate(problem.servers):
        if server.only is None:
            continue
        fixed[index] = span = server.only
        passed = server.throughput[span.length]
        for block in range(*span):
            base[block].append(passed)
            replicas[block] += 1
        if span != server.current:
            held = range(*server.current) if server.current is not None else range(0)
            loaded = [block for block in range(*span) if block not in held]
            penalties.append(passed * math.fsum(server.load_seconds[block] for block in loaded) / problem.horizon)
            loads_fixed, moves_fixed = loads_fixed + len(loaded), moves_fixed + 1
    kinds = [kind for kind in servers_by_identity(problem.servers) if problem.servers[kind[0]].only is None]
    rows = [_row(problem, problem.servers[kind[0]]) for kind in kinds]
    sizes = np.array([starts.size for starts, *_ in rows], dtype=np.int64)
    shape = (len(rows), int(sizes.max(initial=1)))
    starts, ends, loads = (np.zeros(shape, dtype=np.int32) for _ in range(3))
    moves = np.zeros(shape, dtype=np.int8)
    rps, penalty = np.zeros(shape), np.full(shape, np.inf)
    arrays: tuple[NDArray[Any], ...] = (starts, ends, rps, penalty, loads, moves)
    for index, row in enumerate(rows):
        for array, values in zip(arrays, row, strict=True):
            array[index, : values.size] = values
    row_of = {index: number for number, kind in enumerate(kinds) for index in kind}
    free = np.array(sorted(row_of), dtype=np.int64)
    return Choices(
        problem=problem,
        free=free,
        row=np.array([row_of[index] for index in free.tolist()], dtype=np.int64),
        counts=np.array([len(kind) for kind in kinds], dtype=np.int64),
        sizes=sizes,
        starts=starts,
        ends=ends,
        rps=rps,
        penalty=penalty,
        loads=loads,
        moves=moves,
        fixed=fixed,
        base=np.array([math.fsum(block) for block in base]),
        base_replicas=np.array(replicas, dtype=np.int64),
        fixed_penalty=math.fsum(penalties),
        fixed_loads=loads_fixed,
        fixed_moves=moves_fixed,
    )


def _row(problem: Problem, server: Server) -> tuple[NDArray[Any], ...]:
    starts, ends = problem.candidates(server)
    lengths = ends - starts
    rps = np.array([server.throughput.get(length, 0.0) for length in range(problem.num_blocks + 1)])[lengths]
    seconds = np.array(server.load_seconds)
    loads, moves = lengths, np.ones_like(starts)
    if server.current is not None:
        start, end = server.current
        seconds[start:end] = 0.0
        moves = (starts != start) | (ends != end)
        loads = lengths - np.maximum(0, np.minimum(ends, end) - np.maximum(starts, start))
    before = np.concatenate(([0.0], np.cumsum(seconds)))
    # Of what stays nothing is to be loaded; elsewhere rounding must not make a penalty of nothing.
    penalty = np.where(loads > 0, rps * (before[ends] - before[starts]) / problem.horizon, 0.0)
    return starts, ends, rps, penalty, loads, moves
