"""Ties in large swarms: nothing is moved that need not be, and what is under way already goes on.

The tie-breaks of the objective are integer programs of their own, which large swarms leave no time for. Here each
server in turn goes back to where it is, or to where a plan under way has it go, where the objective doesn't suffer.
"""

from __future__ import annotations

import numpy as np

from solver.problem import Placement, Problem, Span
from solver.validator import InvalidPlacement, evaluate


def polish(problem: Problem, placement: Placement, under_way: Placement | None) -> Placement:
    """Return servers to their place, or to that in `under_way`, as long as the objective is not less.

    Parameters
    ----------
    placement, under_way
        Valid placements.
    """
    worth = evaluate(problem, placement)
    throughput = np.array(worth.throughput)
    spans = list(placement)
    for index, server in enumerate(problem.servers):
        wishes = [under_way[index]] if under_way is not None else []
        if server.current is not None and server.may_stay:
            wishes.append(server.current)
        for wish in wishes:
            here = spans[index]
            if wish == here:
                break
            if server.only is not None or _penalty(problem, index, wish) > _penalty(problem, index, here):
                continue
            without = throughput.copy()
            without[here.start : here.end] -= server.throughput[here.length]
            without[wish.start : wish.end] += server.throughput[wish.length]
            if without.min() >= worth.min_throughput:
                throughput, spans[index] = without, wish
                break
    found = tuple(spans)
    try:
        # What was summed up again and again may be off by a rounding, and chains and replicas were not looked at.
        return placement if worth.better_than(evaluate(problem, found)) else found
    except InvalidPlacement:
        return placement


def _penalty(problem: Problem, index: int, span: Span) -> float:
    server = problem.servers[index]
    held = range(*server.current) if server.current is not None else range(0)
    seconds = sum(server.load_seconds[block] for block in range(*span) if block not in held)
    return server.throughput[span.length] * seconds / problem.horizon
