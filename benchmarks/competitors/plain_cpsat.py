"""CP-SAT with its own settings on the plain integer program, scaled to integers and told nothing else."""

from __future__ import annotations

import time

import numpy as np
from ortools.sat.python import cp_model

from benchmarks.competitors.answer import Answer, DoesNotApply, Moment, Task
from benchmarks.competitors.columns import Columns, columns, least_rps
from solver import Problem

MOST_UNITS = 2.0**45
"""Units that all throughput together has at most: far from overflow, also where the penalties are added."""
FINEST = 1e6
"""Units of one RPS at most."""


def answer(task: Task) -> list[Answer]:
    """The best placement within the limit, the making of the model included."""
    began = time.monotonic()
    table = columns(task.problem)
    most = sum(max(server.throughput.values()) for server in task.problem.servers) + max(task.problem.base_throughput)
    units = min(FINEST, MOST_UNITS / most)
    model, spans = _model(task.problem, table, units, int(most * units))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = task.workers
    solver.parameters.random_seed = task.seed
    solver.parameters.max_time_in_seconds = max(0.1, task.seconds - (time.monotonic() - began))
    # Rounding down takes less than a unit from each server: on its blocks, and once more for its penalty.
    slack = (2 * len(task.problem.servers) + 1) / units
    watch = _Watch(began, units)
    status = solver.solve(model, watch)
    if status == cp_model.INFEASIBLE:
        raise DoesNotApply("no placement is without a hole")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    values = np.array([solver.value(span) for span in spans]) if found else None
    # Before it has any bound it says 0, which is none for an objective that may be above.
    bounded = found or solver.best_objective_bound > 0
    return [
        Answer(
            None if values is None else table.placement(values),
            bound=solver.best_objective_bound / units + slack if bounded else None,
            note=solver.status_name(status).lower(),
            moments=tuple(watch.moments),
        )
    ]


class _Watch(cp_model.CpSolverSolutionCallback):
    """Notes each placement that is found."""

    def __init__(self, began: float, units: float) -> None:
        super().__init__()
        self.began, self.units = began, units
        self.moments: list[Moment] = []

    def on_solution_callback(self) -> None:
        seconds = time.monotonic() - self.began
        self.moments.append(Moment(seconds, self.objective_value / self.units, self.best_objective_bound / self.units))


def _model(problem: Problem, table: Columns, units: float, most: int) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    model = cp_model.CpModel()
    spans = [model.new_bool_var("") for _ in range(table.server.size)]
    rps = np.floor(table.rps * units).astype(np.int64)
    penalty = np.ceil(table.penalty * units).astype(np.int64)
    least = int(least_rps(problem) * units)
    bottleneck = model.new_int_var(least, most, "z")
    ends = np.searchsorted(table.server, np.arange(len(problem.servers)), side="right").tolist()
    for first, end in zip([0, *ends], ends, strict=False):
        model.add_exactly_one(spans[first:end])
    holder = np.repeat(np.arange(table.server.size), table.end - table.start)
    by_block = np.argsort(table.blocks(), kind="stable")
    counts = np.bincount(table.blocks(), minlength=problem.num_blocks)
    for base, held in zip(problem.base_throughput, np.split(holder[by_block], np.cumsum(counts)[:-1]), strict=True):
        passed = cp_model.LinearExpr.weighted_sum([spans[one] for one in held.tolist()], rps[held].tolist())
        model.add(passed + int(base * units) >= bottleneck)
    model.maximize(bottleneck - cp_model.LinearExpr.weighted_sum(spans, penalty.tolist()))
    return model, spans
