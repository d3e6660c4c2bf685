"""Who holds how much of each block: the throughput per block of one placement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


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
    """

    min_throughput: float
    holes: int
    bottleneck_blocks: tuple[int, ...]
    throughput: tuple[float, ...]


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
    for blocks, rps in holders:
        for block in blocks:
            terms[block].append(rps)
    throughput = tuple(math.fsum(block) for block in terms)
    covered = [block for block in range(num_blocks) if terms[block]]
    bottleneck = min((throughput[block] for block in covered), default=0.0)
    weakest = tuple(block for block in covered if math.isclose(throughput[block], bottleneck, rel_tol=1e-9))
    return Coverage(bottleneck, num_blocks - len(covered), weakest, throughput)
