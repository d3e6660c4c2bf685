"""Who holds how much of each block, and how many servers a request passes through, under one placement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from solver.hops import shortest_chain
from solver.problem import Span


@dataclass(frozen=True)
class Coverage:
    """Throughput of every block under one placement.

    Parameters
    ----------
    min_throughput
        The bottleneck in RPS, over the covered blocks; 0 where none is covered.
    holes
        Number of blocks that nobody holds.
    bottleneck_blocks
        The covered blocks whose throughput is the bottleneck.
    throughput
        RPS, shape ``(num_blocks,)``.
    hops
        Servers on the shortest chain that covers the model, the fewest that a request passes through; None where
        there is a hole.
    """

    min_throughput: float
    holes: int
    bottleneck_blocks: tuple[int, ...]
    throughput: tuple[float, ...]
    hops: int | None


def coverage_of(num_blocks: int, holders: Iterable[tuple[Iterable[int], float]]) -> Coverage:
    """Sum up who holds what; holes are blocks without a holder, not blocks without throughput.

    Parameters
    ----------
    num_blocks
        Blocks of the model.
    holders
        Of each server the blocks that it holds, each once, and its throughput in RPS.
    """
    terms: list[list[float]] = [[] for _ in range(num_blocks)]
    runs: list[Span] = []
    for blocks, rps in holders:
        held = sorted(blocks)
        runs += runs_of(held)
        for block in held:
            terms[block].append(rps)
    throughput = tuple(math.fsum(block) for block in terms)
    covered = [block for block in range(num_blocks) if terms[block]]
    bottleneck = min((throughput[block] for block in covered), default=0.0)
    weakest = tuple(block for block in covered if math.isclose(throughput[block], bottleneck, rel_tol=1e-9))
    return Coverage(bottleneck, num_blocks - len(covered), weakest, throughput, count_hops(num_blocks, runs))


def count_hops(num_blocks: int, runs: Iterable[Span]) -> int | None:
    """Length of the shortest chain of `runs` that covers the model; None if there is none."""
    chain = shortest_chain(runs, num_blocks)
    return None if chain is None else len(chain)


def runs_of(blocks: Iterable[int]) -> list[Span]:
    """The runs of consecutive blocks in a set of them, ascending: a request can pass through each as a whole."""
    runs: list[Span] = []
    for block in sorted(blocks):
        if runs and runs[-1].end == block:
            runs[-1] = Span(runs[-1].start, block + 1)
        else:
            runs.append(Span(block, block + 1))
    return runs
