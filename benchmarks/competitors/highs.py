"""HiGHS, a branch-and-cut solver, on the plain integer program: highspy (https://highs.dev), told nothing else."""

from __future__ import annotations

import time
from typing import Any

import highspy
import numpy as np

from benchmarks.competitors.answer import Answer, DoesNotApply, Moment, Task
from benchmarks.competitors.columns import Columns, columns, least_rps
from solver import Problem


def answer(task: Task) -> list[Answer]:
    """The best placement within the limit, the making of the model included."""
    began = time.monotonic()
    table = columns(task.problem)
    highs = highspy.Highs()
    highs.silent()
    for option, value in {
        "threads": task.workers,
        "random_seed": task.seed,
        "mip_rel_gap": 0.0,  # its default, 0.01 %, would end before others have their proof
    }.items():
        highs.setOptionValue(option, value)
    highs.passModel(_model(task.problem, table))
    moments: list[Moment] = []

    def note(event: Any) -> None:
        figures = event.data_out
        bound = figures.mip_dual_bound if abs(figures.mip_dual_bound) < highspy.kHighsInf else None
        moments.append(Moment(time.monotonic() - began, figures.mip_primal_bound, bound))

    highs.cbMipImprovingSolution.subscribe(note)
    highs.setOptionValue("time_limit", max(0.1, task.seconds - (time.monotonic() - began)))
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        raise DoesNotApply("no placement is without a hole")
    info = highs.getInfo()
    bound = info.mip_dual_bound if abs(info.mip_dual_bound) < highspy.kHighsInf else None
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(highs.getSolution().col_value) if found else None
    return [
        Answer(
            None if values is None else table.placement(values[: table.server.size]),
            bound=bound,
            note="" if status == highspy.HighsModelStatus.kOptimal else highs.modelStatusToString(status).lower(),
            moments=tuple(moments),
        )
    ]


def _model(problem: Problem, table: Columns) -> highspy.HighsLp:
    """Rows: one a server, then one a block; columns: those of the table, then z."""
    count, servers, blocks = table.server.size, len(problem.servers), problem.num_blocks
    lengths = table.end - table.start
    # Column by column: the row of its server, then the rows of its blocks.
    begins = np.concatenate([[0], np.cumsum(lengths + 1)])
    rows = np.empty(begins[-1] + blocks, dtype=np.int32)
    values = np.empty(rows.size)
    of_block = np.ones(begins[-1], dtype=bool)
    of_block[begins[:-1]] = False
    rows[begins[:-1]], values[begins[:-1]] = table.server, 1.0
    rows[: begins[-1]][of_block] = servers + table.blocks()
    values[: begins[-1]][of_block] = np.repeat(table.rps, lengths)
    rows[begins[-1] :], values[begins[-1] :] = servers + np.arange(blocks), -1.0
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count + 1, servers + blocks
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.append(-table.penalty, 1.0)
    model.col_lower_ = np.append(np.zeros(count), least_rps(problem))
    model.col_upper_ = np.append(np.ones(count), highspy.kHighsInf)
    model.integrality_ = [*[highspy.HighsVarType.kInteger] * count, highspy.HighsVarType.kContinuous]
    model.row_lower_ = np.concatenate([np.ones(servers), -np.array(problem.base_throughput)])
    model.row_upper_ = np.concatenate([np.ones(servers), np.full(blocks, highspy.kHighsInf)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.append(begins, rows.size)
    model.a_matrix_.index_ = rows
    model.a_matrix_.value_ = values
    return model
