"""A chain of few servers to start from, where their number is limited: who holds which blocks, at little cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from solver.budget import Budget
from solver.choices import Choices
from solver.problem import Ints, Span
from solver.search import run

SPARE = 20
"""Servers looked at beside those that a chain of the longest would have; all are, where these do not suffice."""
SECONDS = 5.0
"""What a try may take, at most: without a chain there is no placement at all, so it comes before all else."""
CELL_SECONDS = 0.5e-6
"""What a block of a span takes to be written into the program, on a usual machine."""
MOST_CELLS = 3_000_000
"""Blocks of all spans together, in the largest program that is tried."""
UNITS = 2**20
"""Steps into which the largest penalty is cut."""


def cheap_chain(choices: Choices, budget: Budget) -> dict[int, Span] | None:
    """Spans for some servers that together with the constants make a chain of at most `Problem.max_hops`.

    None where there is none, or none was found in time.
    """
    for servers, spans in _tries(choices):
        cells = np.where(spans, (choices.ends - choices.starts)[choices.row[servers]], 0).sum()
        if cells <= MOST_CELLS and budget.left() > 0:
            budget.spend(CELL_SECONDS * float(cells))
            found = _solve(choices, servers, spans, budget)
            if found is not None:
                return found
    return None


def _tries(choices: Choices) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """Servers by their place in `Choices.free`, and which spans of theirs are looked at, the smallest try first.

    A longer span covers all that a shorter one does; so only what is held and the longest ones are looked at first. The
    others matter where there is a limit on what may be loaded, or the longer one is forbidden.
    """
    assert choices.problem.max_hops is not None
    lengths = choices.ends - choices.starts
    inside = np.isfinite(choices.penalty)
    longest = lengths == np.where(inside, lengths, 0).max(axis=1, keepdims=True, initial=0)
    most = np.where(inside, lengths, 0).max(axis=1, initial=0)[choices.row]
    servers: Ints = np.lexsort((np.arange(most.size), -most))
    few = servers[: 3 * choices.problem.max_hops + SPARE]
    problem = choices.problem
    limited = problem.max_loads is not None or not all(server.may_stay for server in problem.servers)
    shorter_matter = limited and bool((inside & ~longest & (choices.moves != 0)).any())
    for some in (few, servers) if few.size < servers.size else (servers,):
        row = choices.row[some]
        yield some, (inside & (longest | (choices.moves == 0)))[row]
        if shorter_matter:
            yield some, inside[row]


def _solve(choices: Choices, servers: Ints, wanted: NDArray[np.bool_], budget: Budget) -> dict[int, Span] | None:
    problem, limits = choices.problem, budget.limits
    model = cp_model.CpModel()
    holding: list[list[cp_model.IntVar]] = [[] for _ in range(problem.num_blocks)]
    links: list[cp_model.IntVar] = []
    spans: list[tuple[int, Span, cp_model.IntVar]] = []

    def link(span: Span) -> cp_model.IntVar:
        variable = model.new_bool_var("")
        links.append(variable)
        for block in range(*span):
            holding[block].append(variable)
        return variable

    for span in (*problem.base_spans, *choices.fixed.values()):
        link(span)
    number, column = np.nonzero(wanted)
    server, row = servers[number], choices.row[servers[number]]
    indices, starts, ends = choices.free[server], choices.starts[row, column], choices.ends[row, column]
    own: dict[int, list[cp_model.IntVar]] = {}
    for index, span in zip(indices.tolist(), map(Span, starts.tolist(), ends.tolist()), strict=True):
        variable = link(span)
        spans.append((index, span, variable))
        own.setdefault(index, []).append(variable)
    for several in own.values():
        model.add_at_most_one(several)
    variables = [variable for _, _, variable in spans]
    for block in holding:
        model.add_bool_or(block)
    model.add(cp_model.LinearExpr.sum(links) <= (problem.max_hops or 0))
    costs, loads, moves = (of[row, column] for of in (choices.penalty, choices.loads, choices.moves))
    if problem.max_moves is not None:
        most = problem.max_moves - choices.fixed_moves
        model.add(cp_model.LinearExpr.weighted_sum(variables, moves.tolist()) <= most)
    if problem.max_loads is not None:
        most = problem.max_loads - choices.fixed_loads
        model.add(cp_model.LinearExpr.weighted_sum(variables, loads.tolist()) <= most)
    largest = float(costs.max(initial=0.0))
    units = np.ceil(costs / largest * UNITS).astype(int) if largest > 0 else loads
    model.minimize(cp_model.LinearExpr.weighted_sum(variables, units.tolist()))
    outcome = run(
        model,
        seconds=min(SECONDS, budget.left()),
        workers=1,
        seed=limits.seed,
        watch=lambda _incumbent, _bound: None,
        stop=budget.stop,
        deterministic=limits.deterministic,
    )
    budget.spend(outcome.work)
    if outcome.values is None:
        return None
    return {index: span for index, span, variable in spans if outcome.values[variable.index]}
