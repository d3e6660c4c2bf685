"""SWARM parallelism's equal stages and adaptive rebalancing: Ryabinin et al., ICML 2023, arXiv 2301.11913.

The model is cut into stages of one length, every peer serves one of them, and peers of the strongest stage go over
to the weakest as long as that helps. How many stages there are is given there; here all numbers are tried at which
every server can hold a stage, and the best is taken, which favours the rule. What a stage passes is the sum of its
peers' throughput, as its load is shared among them in proportion.
"""

from __future__ import annotations

from itertools import pairwise

from benchmarks.competitors.answer import Answer, DoesNotApply, Task
from solver import Placement, Problem, Span, evaluate


def answer(task: Task) -> list[Answer]:
    """The best number of stages, each with its peers rebalanced until no move helps."""
    placements = {count: _placement(task.problem, count) for count in stage_counts(task.problem)}
    if not placements:
        raise DoesNotApply("no cut into equal stages has a stage that every server may hold")
    worths = {count: evaluate(task.problem, placement) for count, placement in placements.items()}
    best = max(worths, key=lambda count: (worths[count].objective, -count))
    return [Answer(placements[best], note=f"{best} stages")]


def cut(num_blocks: int, count: int) -> list[Span]:
    """The model in `count` stages whose lengths differ by one block at most."""
    borders = [num_blocks * stage // count for stage in range(count + 1)]
    return [Span(start, end) for start, end in pairwise(borders)]


def stage_counts(problem: Problem) -> list[int]:
    """Numbers of stages at which each stage has a peer, and every server may take every stage."""
    most = min(problem.num_blocks, len(problem.servers))
    common = frozenset.intersection(*(frozenset(server.throughput) for server in problem.servers))
    return [
        count
        for count in range(1, most + 1)
        if common.issuperset(stage.length for stage in cut(problem.num_blocks, count))
    ]


def _placement(problem: Problem, count: int) -> Placement:
    stages = cut(problem.num_blocks, count)
    rates = [[server.throughput[stage.length] for stage in stages] for server in problem.servers]
    base = [min(problem.base_throughput[stage.start : stage.end]) for stage in stages]
    return tuple(stages[stage] for stage in balanced(rates, base))


def balanced(rates: list[list[float]], base: list[float]) -> list[int]:
    """The stage of each peer.

    Parameters
    ----------
    rates
        RPS of each peer in each stage, shape ``(peers, stages)``.
    base
        RPS that each stage has without them, shape ``(stages,)``.
    """
    totals, chosen = list(base), []
    for rate in rates:  # a peer that joins goes where the load is highest
        weakest = totals.index(min(totals))
        chosen.append(weakest)
        totals[weakest] += rate[weakest]
    while True:
        weakest, strongest = totals.index(min(totals)), totals.index(max(totals))
        after = {
            peer: min(totals[weakest] + rate[weakest], totals[strongest] - rate[strongest])
            for peer, rate in enumerate(rates)
            if chosen[peer] == strongest != weakest
        }
        peer = max(after, key=lambda one: after[one], default=None)
        if peer is None or after[peer] <= totals[weakest]:
            return chosen
        totals[weakest] += rates[peer][weakest]
        totals[strongest] -= rates[peer][strongest]
        chosen[peer] = weakest
