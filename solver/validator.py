"""What a placement is worth, recomputed in floats from the problem alone.

Written independently of the integer program, so that neither can hide the other's fault: nothing here uses
`Problem.candidates`, scaled numbers or the model. Every placement passes through here before anyone sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from solver.hops import shortest_chain
from solver.problem import Problem, Server, Span


class InvalidPlacement(ValueError):
    """A placement breaks a demand of its problem; the message names server and demand."""


@dataclass(frozen=True)
class Evaluation:
    """The worth of a placement, in the order of the priorities.

    Parameters
    ----------
    holes
        Blocks that nobody holds.
    missing_replicas
        Sum over the blocks of what lacks to `Problem.min_replicas`.
    min_throughput, reload_penalty
        The two terms of the objective, RPS; the bottleneck is taken over the covered blocks.
    loads, moves
        Blocks loaded, servers that change their span.
    weakest
        Sum of the ``ceil(num_blocks / 4)`` smallest per-block throughputs, RPS.
    distance
        Sum of the distances between present and target starts, in blocks.
    throughput
        RPS of each block, shape ``(num_blocks,)``.
    hops
        Servers on the shortest chain that covers the model; None where there is a hole.
    """

    holes: int
    missing_replicas: int
    min_throughput: float
    reload_penalty: float
    loads: int
    moves: int
    weakest: float
    distance: int
    throughput: tuple[float, ...]
    hops: int | None

    @property
    def objective(self) -> float:
        """Bottleneck less reload penalty, RPS."""
        return self.min_throughput - self.reload_penalty

    @property
    def lacks_servers(self) -> bool:
        """Whether a block is a hole or has too few replicas: that comes before any objective."""
        return self.holes > 0 or self.missing_replicas > 0

    def better_than(self, other: Evaluation) -> bool:
        """Whether this one is strictly better in holes, missing replicas and objective, in that order."""
        return (self.holes, self.missing_replicas, -self.objective) < (
            other.holes,
            other.missing_replicas,
            -other.objective,
        )


def evaluate(problem: Problem, placement: Sequence[Span]) -> Evaluation:
    """Recompute all that a placement is worth.

    Parameters
    ----------
    placement
        One span a server, in the order of `problem.servers`.

    Raises
    ------
    InvalidPlacement
        If a span is outside the model, of a length that its server may not take, not the one it is pinned to
        or the one forbidden to it, or if there are too many moves, loads or hops.
    """
    if len(placement) != len(problem.servers):
        raise InvalidPlacement(f"{len(placement)} spans for {len(problem.servers)} servers")
    terms: list[list[float]] = [[rps] for rps in problem.base_throughput]
    replicas = list(problem.base_replicas)
    penalties: list[float] = []
    loads = moves = distance = 0
    for index, (server, span) in enumerate(zip(problem.servers, placement, strict=True)):
        _check_span(problem, index, server, span)
        rps = server.throughput[span.length]
        for block in range(span.start, span.end):
            terms[block].append(rps)
            replicas[block] += 1
        if span == server.current:
            continue
        held = set(range(*server.current)) if server.current is not None else set()
        loaded = [block for block in range(*span) if block not in held]
        penalties.append(rps * math.fsum(server.load_seconds[block] for block in loaded) / problem.horizon)
        moves += 1
        loads += len(loaded)
        if server.current is not None:
            distance += abs(span.start - server.current.start)
    if problem.max_moves is not None and moves > problem.max_moves:
        raise InvalidPlacement(f"{moves} moves, at most {problem.max_moves} are allowed")
    if problem.max_loads is not None and loads > problem.max_loads:
        raise InvalidPlacement(f"{loads} blocks loaded, at most {problem.max_loads} are allowed")
    chain = shortest_chain([*problem.base_spans, *placement], problem.num_blocks)
    hops = None if chain is None else len(chain)
    if problem.max_hops is not None and hops is not None and hops > problem.max_hops:
        raise InvalidPlacement(f"{hops} servers on the shortest chain, at most {problem.max_hops} are allowed")
    # fsum rounds once, whatever the order of its terms: equal placements give equal floats.
    throughput = tuple(math.fsum(block) for block in terms)
    covered = [rps for rps, count in zip(throughput, replicas, strict=True) if count > 0]
    return Evaluation(
        holes=sum(count == 0 for count in replicas),
        missing_replicas=sum(max(0, problem.min_replicas - count) for count in replicas),
        min_throughput=min(covered, default=0.0),
        reload_penalty=math.fsum(penalties),
        loads=loads,
        moves=moves,
        weakest=math.fsum(sorted(throughput)[: -(-problem.num_blocks // 4)]),
        distance=distance,
        throughput=throughput,
        hops=hops,
    )


def _check_span(problem: Problem, index: int, server: Server, span: Span) -> None:
    if not 0 <= span.start < span.end <= problem.num_blocks:
        raise InvalidPlacement(f"server {index}: span {span} is outside the model's 0:{problem.num_blocks}")
    if span.length not in server.throughput:
        raise InvalidPlacement(f"server {index}: it may not take a span of {span.length} blocks")
    if server.only is not None and span != server.only:
        raise InvalidPlacement(f"server {index}: pinned to {server.only}, not {span}")
    if not server.may_stay and span == server.current:
        raise InvalidPlacement(f"server {index}: it may not stay at {span}")
