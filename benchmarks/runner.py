"""One competitor on one problem, in a process of its own: what it comes to, in how many seconds and how much memory.

Every placement goes through `solver.evaluate`, which shares no code with any of them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.competitors import Answer, Competitor, DoesNotApply, Moment, Task
from benchmarks.live_process import peak_mib
from solver import InvalidPlacement, Placement, Problem, evaluate

GRACE = 240.0
"""Seconds that a competitor may be late before its process is ended; rules without a limit have this, and no more."""

Row = dict[str, Any]


def run(competitor: Competitor, task: Task, grace: float = GRACE) -> list[Row]:
    """Rows of one competitor: one an answer, or a single one that says why there is none."""
    context = multiprocessing.get_context("spawn")  # nothing of this process's memory is in the child's
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(there, competitor, task))
    child.start()
    there.close()
    patience = grace + (task.seconds if competitor.limited else 0.0)
    try:
        told: Row = here.recv() if here.poll(patience) else {"why_not": f"ended after {patience:g} s without an answer"}
    except EOFError:
        child.join()
        told = {"why_not": f"its process ended with {child.exitcode}"}
    finally:
        child.kill()
        child.join()
    common = {"competitor": competitor.name, "limit": task.seconds if competitor.limited else None}
    answers: list[Answer] = told.pop("answers", [])
    if not answers:
        return [{**common, "of": "", **told}]
    return [{**common, **told, **_judged(task.problem, answer)} for answer in answers]


def _work(connection: Connection, competitor: Competitor, task: Task) -> None:
    """Runs in the child: only the rule itself is timed, not imports and what hands the problem over."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the tables go there, and some solvers greet whoever listens
    told: dict[str, Any] = {"memory_before_mib": peak_mib()}
    began = time.perf_counter()
    try:
        told["answers"] = competitor.rule(task)
    except DoesNotApply as reason:
        told["why_not"] = str(reason)
    except MemoryError:
        told["why_not"] = "out of memory"
    told |= {"seconds": time.perf_counter() - began, "memory_mib": peak_mib()}
    connection.send(told)


def _judged(problem: Problem, answer: Answer) -> Row:
    """What an answer is worth: by our validator, but for what its author would load over and above."""
    row: Row = {
        "of": answer.of,
        "bound": answer.bound,
        "note": answer.note,
        "moments": [list(moment) for moment in changes(answer.moments)],
        "ends": [end._asdict() for end in answer.ends],
    }
    if answer.placement is None:
        return {**row, "why_not": "no placement in time"}
    try:
        worth = evaluate(problem, answer.placement)
    except InvalidPlacement as fault:
        return {**row, "why_not": f"invalid: {fault}"}
    charged = answer.charged
    return {
        **row,
        "bottleneck": worth.min_throughput,
        "objective": worth.objective if charged is None else charged.objective,
        "objective_if_incremental": worth.objective,
        "holes": worth.holes,
        "loads": worth.loads if charged is None else charged.loads,
        "moves": worth.moves,
        "stock_loads": _whole_spans(problem, answer.placement) if charged is None else charged.loads,
        "placement": answer.placement,
    }


def changes(moments: Sequence[Moment]) -> list[Moment]:
    """The moments at which a search told of something new, and the last one."""
    kept = [
        moment
        for before, moment in zip((None, *moments), moments, strict=False)
        if before is None or before[1:] != moment[1:]
    ]
    return kept if not moments or kept[-1] == moments[-1] else [*kept, moments[-1]]


def _whole_spans(problem: Problem, placement: Placement) -> int:
    """Blocks that the same moves would load if everybody who moves loaded its whole span, as stock servers do."""
    return sum(span.length for server, span in zip(problem.servers, placement, strict=True) if span != server.current)
