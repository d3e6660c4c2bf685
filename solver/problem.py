"""The placement problem in numbers only: what the solver is given and what it answers.

Nothing here knows of Petals, of a DHT or of peer ids. Servers are told apart by their index in
`Problem.servers`; whoever builds the problem keeps them in a fixed order (ours: by peer id), because the
last tie-break of the objective prefers the lexicographically smallest targets in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Span(NamedTuple):
    """The half-open range ``[start, end)`` of consecutive blocks that a server holds, 0-based."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of blocks in the span."""
        return self.end - self.start

    def __contains__(self, block: object) -> bool:
        return isinstance(block, int) and self.start <= block < self.end

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"

    def overlap(self, other: Span) -> int:
        """Number of blocks that both spans hold."""
        return max(0, min(self.end, other.end) - max(self.start, other.start))


@dataclass(frozen=True)
class Server:
    """A server whose span the solver chooses.

    Parameters
    ----------
    current
        The span that it holds now; None for a newcomer, which must be given one.
    throughput
        RPS that it passes through each block it holds, by the length of its span: the keys are the lengths
        that it may take, the values are finite and not negative.
    load_seconds
        Seconds that it needs to load each block of the model, shape ``(num_blocks,)``. What it holds now
        costs nothing, whatever stands here.
    only
        The one span that it may take (a pin); None leaves it free.
    may_stay
        False where its current span is forbidden to it.
    """

    current: Span | None
    throughput: dict[int, float]
    load_seconds: tuple[float, ...]
    only: Span | None = None
    may_stay: bool = True

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """All that the solver can see of it: servers with equal identities are interchangeable."""
        return (self.current, tuple(sorted(self.throughput.items())), self.load_seconds, self.only, self.may_stay)


@dataclass(frozen=True)
class Problem:
    """What is to be placed, and under which demands.

    Parameters
    ----------
    num_blocks
        Number of blocks of the model, at least 1.
    servers
        The servers that may move, or must be placed.
    base_throughput
        RPS per block of the servers that are constants, shape ``(num_blocks,)``.
    base_replicas
        Number of constant servers that hold each block, shape ``(num_blocks,)``.
    horizon
        Seconds over which the throughput lost to reloading is averaged, above 0.
    min_replicas
        Wanted number of servers that hold each block.
    max_moves, max_loads
        At most so many servers change their span (newcomers are counted), and so many blocks are loaded;
        None sets no limit.
    base_spans
        The spans of the constant servers that a request may pass through whole, for `max_hops`.
    max_hops
        At most so many servers on the shortest chain that covers the model, where it has no hole; None sets no
        limit.

    Raises
    ------
    ValueError
        If the numbers contradict each other; the message names the first that does.
    """

    num_blocks: int
    servers: tuple[Server, ...]
    base_throughput: tuple[float, ...]
    base_replicas: tuple[int, ...]
    horizon: float
    min_replicas: int = 0
    max_moves: int | None = None
    max_loads: int | None = None
    base_spans: tuple[Span, ...] = ()
    max_hops: int | None = None

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, not {self.num_blocks}")
        if not self.horizon > 0:
            raise ValueError(f"horizon must be above 0, not {self.horizon}")
        if len(self.base_throughput) != self.num_blocks or len(self.base_replicas) != self.num_blocks:
            raise ValueError("base_throughput and base_replicas need one number a block")
        if not all(math.isfinite(rps) and rps >= 0 for rps in self.base_throughput):
            raise ValueError("base_throughput must be finite and not negative")
        if self.max_hops is not None and self.max_hops < 1:
            raise ValueError(f"max_hops must be at least 1, not {self.max_hops}")
        for span in self.base_spans:
            if not 0 <= span.start < span.end <= self.num_blocks:
                raise ValueError(f"base span {span} is outside the model's 0:{self.num_blocks}")
        for index, server in enumerate(self.servers):
            self._check_server(index, server)

    def _check_server(self, index: int, server: Server) -> None:
        where = f"server {index}"
        if not server.throughput:
            raise ValueError(f"{where} has no length that it may take")
        for length, rps in server.throughput.items():
            if not 1 <= length <= self.num_blocks:
                raise ValueError(f"{where}: length {length} is outside 1 to {self.num_blocks}")
            if not (math.isfinite(rps) and rps >= 0):
                raise ValueError(f"{where}: throughput {rps} is not finite and not negative")
        if len(server.load_seconds) != self.num_blocks:
            raise ValueError(f"{where}: load_seconds needs one number a block")
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in server.load_seconds):
            raise ValueError(f"{where}: load_seconds must be finite and not negative")
        for name, span in (("current", server.current), ("only", server.only)):
            if span is not None and not 0 <= span.start < span.end <= self.num_blocks:
                raise ValueError(f"{where}: {name} span {span} is outside the model's 0:{self.num_blocks}")
        if server.only is not None and server.only.length not in server.throughput:
            raise ValueError(f"{where}: no throughput is known for its only span {server.only}")
        if server.may_stay and server.current is not None and server.current.length not in server.throughput:
            raise ValueError(f"{where}: no throughput is known for its current span {server.current}")
        if self.candidates(server)[0].size == 0:
            raise ValueError(f"{where} has no span that it may take")

    def candidates(self, server: Server) -> tuple[Ints, Ints]:
        """Starts and ends of all spans that `server` may take, in ascending order; equal shapes."""
        if server.only is not None:
            starts, ends = np.array([server.only.start]), np.array([server.only.end])
        else:
            by_length = [np.arange(self.num_blocks - length + 1) for length in sorted(server.throughput)]
            starts = np.concatenate(by_length)
            ends = np.concatenate([s + n for s, n in zip(by_length, sorted(server.throughput), strict=True)])
            order = np.lexsort((ends, starts))
            starts, ends = starts[order], ends[order]
        if not server.may_stay and server.current is not None:
            moves = (starts != server.current.start) | (ends != server.current.end)
            starts, ends = starts[moves], ends[moves]
        return starts, ends

    def replace_server(self, index: int, **changes: object) -> Problem:
        """The same problem with some fields of one server changed."""
        servers = list(self.servers)
        servers[index] = replace(servers[index], **changes)  # type: ignore[arg-type]  # fields vary
        return replace(self, servers=tuple(servers))


Placement = tuple[Span, ...]
"""One span for each server of a problem, in the order of `Problem.servers`."""


class Status(str, Enum):
    """How far a search came."""

    OPTIMAL = "optimal"
    """The objective is proven best, up to the rounding slack."""
    FEASIBLE = "feasible"
    """The placement keeps all demands; a better one may exist, at most as good as the bound."""


@dataclass(frozen=True)
class Stage:
    """One priority of the objective, as it was solved.

    `proven` says that its level is the best one given the levels before; `value` is that level in the
    stage's own unit (blocks, replicas, RPS, servers), None where it was not reached in time or has no number.
    """

    name: str
    value: float | None
    proven: bool
    seconds: float


@dataclass(frozen=True)
class Solution:
    """A placement with its proof.

    Parameters
    ----------
    placement
        One span a server.
    status
        Whether the objective is proven best.
    bound
        Proven upper bound on the objective (RPS) of all placements that reach the same levels of the
        priorities before it, the rounding slack included.
    bound_by
        What proved it: ``"averaging"``, ``"sweep"`` (`solver.ceiling`), ``"prices"``, ``"branching"``, ``"CP-SAT"``, or
        ``"only placement"``.
    rounding_slack
        RPS by which scaling to integers may have understated the best objective.
    stages
        What was solved, in order; tie-breaks are missing where the objective leaves no tie.
    seconds
        Wall time of the whole search.
    scale
        Units of the integer program in one RPS.
    interrupted
        Whether it was asked to stop.
    """

    placement: Placement
    status: Status
    bound: float
    rounding_slack: float
    stages: tuple[Stage, ...]
    seconds: float
    scale: float
    interrupted: bool = False
    bound_by: str = "CP-SAT"


@dataclass(frozen=True)
class Progress:
    """What a search says of itself a few times a second."""

    stage: str
    seconds: float
    incumbent: float | None
    bound: float | None


@dataclass(frozen=True)
class Limits:
    """How long and how hard to search.

    Parameters
    ----------
    seconds
        The time that it may take.
    workers
        Threads.
    seed
        Seed of all that is random.
    deterministic
        Search by an amount of work instead of by the clock, so that the same problem and seed give the same
        placement on any machine: as much as a usual core does in `seconds`, with one thread whatever `workers` says.
    """

    seconds: float = 10.0
    workers: int = 1
    seed: int = 0
    deterministic: bool = False


def servers_by_identity(servers: Sequence[Server]) -> list[list[int]]:
    """Group the indices of interchangeable servers, in order of first appearance."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, server in enumerate(servers):
        groups.setdefault(server.identity, []).append(index)
    return list(groups.values())
