"""A chain of few servers to start from, where their number is limited: who holds which blocks, at the least cost."""

from __future__ import annotations

import threading

import numpy as np
from ortools.sat.python import cp_model

from solver.problem import Problem, Span
from solver.search import run

SPARE = 20
"""Servers looked at beside those that a chain of the longest would have; all are, where these do not suffice."""
SECONDS = 5.0
UNITS = 2**20
"""Steps into which the largest penalty is cut."""


def cheap_chain(problem: Problem, seconds: float, seed: int, stop: threading.Event) -> dict[int, Span] | None:
    """Spans for some servers that together with the constants make a chain of at most `Problem.max_hops`.

    None where there is none, or none was found in time.
    """
    free = [index for index, server in enumerate(problem.servers) if server.only is None]
    free.sort(key=lambda index: (-max(problem.servers[index].throughput), index))
    assert problem.max_hops is not None
    for servers in (free[: 3 * problem.max_hops + SPARE], free):
        found = _solve(problem, servers, seconds, seed, stop)
        if found is not None or len(servers) == len(free):
            return found
    return None


def _solve(
    problem: Problem, servers: list[int], seconds: float, seed: int, stop: threading.Event
) -> dict[int, Span] | None:
    model = cp_model.CpModel()
    holding: list[list[cp_model.IntVar]] = [[] for _ in range(problem.num_blocks)]
    links: list[cp_model.IntVar] = []
    spans: list[tuple[int, Span, cp_model.IntVar]] = []
    costs: list[float] = []

    def link(span: Span) -> cp_model.IntVar:
        variable = model.new_bool_var("")
        links.append(variable)
        for block in range(*span):
            holding[block].append(variable)
        return variable

    settled = [server.only for server in problem.servers if server.only is not None]
    for span in (*problem.base_spans, *settled):
        link(span)
    moves, loads = [], []
    for index in servers:
        server = problem.servers[index]
        starts, ends = problem.candidates(server)
        own = []
        for span in map(Span, starts.tolist(), ends.tolist()):
            variable = link(span)
            own.append(variable)
            spans.append((index, span, variable))
            held = range(*server.current) if server.current is not None else range(0)
            loaded = [block for block in range(*span) if block not in held]
            costs.append(
                server.throughput[span.length] * sum(server.load_seconds[block] for block in loaded) / problem.horizon
            )
            moves.append(int(span != server.current))
            loads.append(len(loaded))
        model.add_at_most_one(own)
    variables = [variable for _, _, variable in spans]
    for block in holding:
        model.add_bool_or(block)
    model.add(cp_model.LinearExpr.sum(links) <= (problem.max_hops or 0))
    if problem.max_moves is not None:
        model.add(cp_model.LinearExpr.weighted_sum(variables, moves) <= problem.max_moves)
    if problem.max_loads is not None:
        model.add(cp_model.LinearExpr.weighted_sum(variables, loads) <= problem.max_loads)
    largest = max(costs, default=0.0)
    units = np.ceil(np.array(costs) / largest * UNITS).astype(int).tolist() if largest > 0 else loads
    model.minimize(cp_model.LinearExpr.weighted_sum(variables, units))
    outcome = run(
        model,
        seconds=min(seconds, SECONDS),
        workers=1,
        seed=seed,
        watch=lambda _incumbent, _bound: None,
        stop=stop,
        deterministic=True,
    )
    if outcome.values is None:
        return None
    return {index: span for index, span, variable in spans if outcome.values[variable.index]}
