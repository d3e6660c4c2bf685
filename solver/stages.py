"""Solve a problem: which search suits it, what it starts from, and what is never solved at all."""

from __future__ import annotations

import threading
from collections.abc import Callable

from solver.budget import Budget
from solver.choices import Choices, choices_of
from solver.exact import TIE_BREAKS, ExactSearch, Infeasible
from solver.problem import Limits, Placement, Problem, Progress, Solution, Status
from solver.start import StartingPoint, nobody_moves
from solver.validator import InvalidPlacement, evaluate
from solver.wide import WideSearch

__all__ = ["TIE_BREAKS", "Infeasible", "solve"]

FEW_SERVERS, FEW_SPANS = 12, 600
"""So few free servers, or spans of theirs, are placed by one integer program in all its stages."""
ALIKE, ALIKE_SPANS = 3, 8000
"""Likewise where each kind of server has so many of them, and the kinds together so few spans."""
MOST_SPANS = 60_000
"""Spans up to which there is an integer program of all servers at all."""


def solve(
    problem: Problem,
    limits: Limits,
    *,
    hints: tuple[Placement, ...] = (),
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    under_way: Placement | None = None,
) -> Solution:
    """Find the best placement within the limits, and a bound on what could be better.

    Parameters
    ----------
    hints
        Placements worth starting from; invalid ones are passed over.
    progress
        Called about ten times a second, from this thread.
    stop
        Once set, the best placement so far is returned soon.
    under_way
        A placement that is being carried out: a start too, and ties go to it.

    Returns
    -------
    Solution
        Its placement keeps all demands (`solver.validator.evaluate` has seen it) and is never worse than the
        hints and staying. What chance and time limit found on the way never sways a proven result.

    Raises
    ------
    Infeasible
        If no placement keeps all demands, or none was found in time.
    """
    pinned = tuple(server.only for server in problem.servers if server.only is not None)
    if len(pinned) == len(problem.servers):
        worth = _only_worth(problem, pinned)
        return Solution(pinned, Status.OPTIMAL, worth, 0.0, (), 0.0, 1.0, bound_by="only placement")
    budget = Budget(limits, stop or threading.Event())
    report = progress or (lambda _: None)
    given = StartingPoint(problem)
    if under_way is not None and not given.offer([under_way]):
        under_way = None
    given.offer([*hints, nobody_moves(problem)])
    choices = choices_of(problem)
    spans = int(choices.sizes.sum())
    if spans <= FEW_SPANS or (len(choices.free) <= FEW_SERVERS and spans <= MOST_SPANS) or _alike(choices):
        return ExactSearch(problem, budget, report, under_way).solve(given, given)
    wide = WideSearch(problem, choices, budget, given, under_way, report)
    whole = wide.begin()
    if not whole and spans <= MOST_SPANS:
        return ExactSearch(problem, budget, report, under_way).solve(given, wide.best)
    found = wide.finish()
    if found is None:
        raise Infeasible("no placement that keeps all demands was found in time")
    return found


def _alike(choices: Choices) -> bool:
    return len(choices.counts) * ALIKE <= len(choices.free) and choices.sizes.sum() <= ALIKE_SPANS


def _only_worth(problem: Problem, placement: Placement) -> float:
    try:
        return evaluate(problem, placement).objective
    except InvalidPlacement as error:
        raise Infeasible(str(error)) from error
