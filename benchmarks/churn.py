"""Synthetic swarms that have seen churn, of any size: the instances `churn-BLOCKSxSERVERS-SEED`.

Servers join one after another where Petals' joining rule puts them, a quarter more of them than are left in the
end; then a random fifth leaves. The same numbers of blocks and servers and the same seed give the same swarm as in
`benchmarks/data`, to the last bit: chance is asked the same questions in the same order.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

from planner.policy import DEFAULT_HORIZON, DEFAULT_SECONDS_PER_BLOCK
from solver import Problem, Server, Span, best_start

LEAVE = 0.25
"""Servers that leave in the end, as a share of those that stay."""


class Churned(NamedTuple):
    """A server that has stayed: its span, and its RPS through each block."""

    span: Span
    throughput: float


def swarm(num_blocks: int, num_servers: int, seed: int) -> list[Churned]:
    """The servers that are left, in the order in which they joined.

    Parameters
    ----------
    num_blocks
        Blocks of the model; one of fewer than 40 has no span longer than itself.
    num_servers
        Servers that are left.
    seed
        Seed of all chance.
    """
    rng = random.Random(seed)
    joined: list[Churned] = []
    totals = np.zeros(num_blocks)
    for _ in range(int(num_servers * (1 + LEAVE))):
        low, high = rng.choice([(2, 8), (8, 20), (16, 40), (30, num_blocks)])
        length = min(num_blocks, rng.randint(low, max(low, high)))  # 30 to 24 is no range
        throughput = round(rng.lognormvariate(6.5, 0.7), 2)
        start = best_start(totals, length)
        totals[start : start + length] += throughput
        joined.append(Churned(Span(start, start + length), throughput))
    return [joined[index] for index in sorted(rng.sample(range(len(joined)), num_servers))]


def problem(num_blocks: int, num_servers: int, seed: int) -> Problem:
    """The problem that a planner poses of that swarm by default: everybody may move, and keeps its length."""
    load_seconds = (DEFAULT_SECONDS_PER_BLOCK,) * num_blocks  # one tuple for all: a swarm of 100,000 fits in memory
    return Problem(
        num_blocks=num_blocks,
        servers=tuple(
            Server(span, {span.length: throughput}, load_seconds)
            for span, throughput in swarm(num_blocks, num_servers, seed)
        ),
        base_throughput=(0.0,) * num_blocks,
        base_replicas=(0,) * num_blocks,
        horizon=DEFAULT_HORIZON,
    )
