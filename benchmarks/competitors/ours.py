"""Our own search, `solver.solve`, with the limits that a planner gives it."""

from __future__ import annotations

from benchmarks.competitors.answer import Answer, Moment, Task
from solver import Limits, Progress, evaluate, solve

OTHER_UNITS = frozenset(
    {"holes", "missing_replicas", "loads", "moves", "changes", "weakest", "distance", "order", "ties"}
)
"""Stages whose levels are no objectives."""


def answer(task: Task) -> list[Answer]:
    """The placement, its bound, and what the search told of itself on the way."""
    moments: list[Moment] = []

    def note(progress: Progress) -> None:
        if progress.stage not in OTHER_UNITS:
            moments.append(Moment(progress.seconds, progress.incumbent, progress.bound))

    limits = Limits(seconds=task.seconds, workers=task.workers, seed=task.seed)
    solution = solve(task.problem, limits, progress=note, under_way=task.under_way)
    objective = evaluate(task.problem, solution.placement).objective
    moments.append(Moment(solution.seconds, objective, solution.bound))
    note_ = f"{solution.status.value}, bound by {solution.bound_by}"
    return [Answer(solution.placement, bound=solution.bound, note=note_, moments=tuple(moments))]
