"""exo's one pipeline through all devices, blocks in proportion to their memory.

From exo-explore/exo, `exo/topology/ring_memory_weighted_partitioning_strategy.py` (the order: most memory first) and
`src/exo/master/placement_utils.py` (`allocate_layers_proportionally`: largest remainders, and at least one block
each). Memory is a server's capacity here. exo has one pipeline, so every block has one holder; where it may choose, it
takes the fewest devices that hold the model, but here no server may stay without a span, so it takes all.
"""

from __future__ import annotations

from benchmarks.competitors.answer import Answer, DoesNotApply, Task
from solver import Span


def answer(task: Task) -> list[Answer]:
    """One ring of all servers."""
    problem = task.problem
    capacities = [max(server.throughput) for server in problem.servers]
    order = sorted(range(len(capacities)), key=lambda index: (-capacities[index], index))
    if all(len(server.throughput) == 1 for server in problem.servers):
        raise DoesNotApply("the lengths are all that it chooses, and here they are fixed")
    if len(order) > problem.num_blocks:
        raise DoesNotApply("it needs a block for every server, and there are more servers")
    shares = proportional(problem.num_blocks, [capacities[index] for index in order])
    spans, start = {}, 0
    for index, share in zip(order, shares, strict=True):
        if share not in problem.servers[index].throughput:
            raise DoesNotApply("a server's share is of a length that it may not take")
        spans[index] = Span(start, start + share)
        start += share
    return [Answer(tuple(spans[index] for index in range(len(order))))]


def proportional(num_blocks: int, memory: list[int]) -> list[int]:
    """Blocks of each device: proportional to memory by largest remainders, then one for each that has none."""
    exact = [num_blocks * one / sum(memory) for one in memory]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(memory)), key=lambda index: shares[index] - exact[index])
    for index in by_remainder[: num_blocks - sum(shares)]:
        shares[index] += 1
    for index, share in enumerate(shares):
        if share == 0:
            shares[shares.index(max(shares))] -= 1
            shares[index] = 1
    return shares
