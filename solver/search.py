"""One CP-SAT solve that can be watched and stopped.

CP-SAT blocks its thread, and Python runs signal handlers in the main thread only. So the search runs in a
thread of its own while the caller's waits, reports and looks whether it is asked to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ortools.sat.python import cp_model

SUBSOLVERS = ("max_lp", "core")
"""CP-SAT's own choice for two workers hardly uses the linear relaxation, which is this program's strength."""
GRACE_SECONDS = 0.2
"""How long CP-SAT may take to see by itself that its time is over."""
STOP_SECONDS = 2.0
"""How long a search that is broken off is waited for."""
REPORT_SECONDS = 0.1
"""How often a running search is looked at."""


@dataclass(frozen=True)
class Outcome:
    """What a solve gave: the values of all variables (None if none were found), objective and bound in units.

    `work` is CP-SAT's own measure of the work done, which is about seconds.
    """

    values: list[int] | None
    objective: float | None
    bound: float | None
    proven: bool
    infeasible: bool
    work: float = 0.0


class ModelInvalid(RuntimeError):
    """CP-SAT refused the model: a bug of ours, with CP-SAT's own words."""


class _Incumbents(cp_model.CpSolverSolutionCallback):
    """Keeps the objective of the last incumbent; rendering is the watcher's business."""

    def __init__(self) -> None:
        super().__init__()
        self.objective: float | None = None

    def on_solution_callback(self) -> None:
        self.objective = self.objective_value


def run(
    model: cp_model.CpModel,
    *,
    seconds: float,
    workers: int,
    seed: int,
    watch: Callable[[float | None, float | None], None],
    stop: threading.Event,
    deterministic: bool = False,
    brief: bool = False,
) -> Outcome:
    """Solve `model` for at most `seconds`, or until `stop` is set.

    `watch` is called with incumbent and bound (in units, None while unknown) about ten times a second. A
    `deterministic` solve has one worker, and `seconds` of CP-SAT's own measure of work instead of the clock's. For a
    `brief` one, of a fraction of a second, probing takes longer than it saves.

    Raises
    ------
    ModelInvalid
        If CP-SAT finds the model malformed.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    if deterministic:
        parameters.max_deterministic_time = max(seconds, 0.0)
        parameters.num_workers = 1
    else:
        parameters.max_time_in_seconds = max(seconds, 0.0)
        parameters.num_workers = workers
        parameters.subsolvers.extend(SUBSOLVERS)
    if brief:
        parameters.cp_model_probing_level = 0
        parameters.linearization_level = 2
    parameters.random_seed = seed
    parameters.catch_sigint_signal = False
    incumbents, bounds = _Incumbents(), [None]
    solver.best_bound_callback = lambda bound: bounds.__setitem__(0, bound)  # type: ignore[call-overload]
    result: list[cp_model.CpSolverStatus] = []
    failure: list[BaseException] = []

    def solve() -> None:
        try:
            result.append(solver.solve(model, incumbents))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=solve, name="cp-sat", daemon=True)
    thread.start()
    reported = began = time.monotonic()
    try:
        while thread.is_alive():
            thread.join(REPORT_SECONDS / 2)
            # CP-SAT has been seen to search on for long after its own limit.
            late = not deterministic and time.monotonic() - began > seconds + GRACE_SECONDS
            if stop.is_set() or late:
                solver.stop_search()
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                watch(incumbents.objective, bounds[0])
    except BaseException:
        # Until it heeds: a search that has only just begun does not hear the first call.
        give_up = time.monotonic() + STOP_SECONDS
        while thread.is_alive() and time.monotonic() < give_up:
            solver.stop_search()
            thread.join(REPORT_SECONDS / 2)
        raise
    if failure:
        raise failure[0]
    return _outcome(model, solver, result[0], bounds[0])


def _outcome(
    model: cp_model.CpModel, solver: cp_model.CpSolver, status: cp_model.CpSolverStatus, bound: float | None
) -> Outcome:
    if status == cp_model.MODEL_INVALID:
        raise ModelInvalid(model.validate() or "CP-SAT calls the model invalid")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Outcome(
        values=list(solver.response_proto.solution) if found else None,
        objective=solver.objective_value if found else None,
        # Where nothing was found CP-SAT's own word is 0, whether it knows a bound or not.
        bound=solver.best_objective_bound if found else bound,
        proven=status in (cp_model.OPTIMAL, cp_model.INFEASIBLE),
        infeasible=status == cp_model.INFEASIBLE,
        work=solver.response_proto.deterministic_time,
    )
