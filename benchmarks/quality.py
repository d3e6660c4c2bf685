"""What every competitor reaches on every instance, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.competitors import COMPETITORS, OURS, Competitor, Task
from benchmarks.competitors.answer import End
from benchmarks.competitors.columns import count_columns
from benchmarks.competitors.petals_rule import SHUFFLES
from benchmarks.instances import Instance, Stock
from benchmarks.runner import Row, run
from planner.planning import available_cores
from solver import Placement, Problem, evaluate
from solver.start import nobody_moves

SEED = 0
SHORTER = (1.0, 10.0)
"""Limits under which ours is run as well, where they are below the one asked for."""


def limits(competitor: Competitor, seconds: float) -> list[float]:
    """The time limits under which a competitor is run."""
    return [*(limit for limit in SHORTER if limit < seconds and competitor is OURS), seconds]


def expected_seconds(instances: Sequence[Instance], seconds: float) -> float:
    """About what a run takes at most: all limits used up, and a little for rules, problems and processes."""
    return sum(
        sum(sum(limits(one, seconds)) if one.limited else 3.0 for one in _competitors(instance)) + 10.0
        for instance in instances
    )


def measure(instances: Sequence[Instance], seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """All competitors on all instances, under time limits up to `seconds`; `say` is told of each."""
    workers = available_cores()
    facts, rows = [], []
    for instance in instances:
        began = time.perf_counter()
        problem = instance.make()
        stock = Stock(problem, ()) if instance.make_stock is None else instance.make_stock()
        made = time.perf_counter() - began
        facts.append(
            {
                "instance": instance.name,
                "servers": len(problem.servers),
                "blocks": problem.num_blocks,
                "columns": count_columns(problem),
                "staying": _end(problem, nobody_moves(problem)),
                "make_seconds": made,
            }
        )
        for competitor in _competitors(instance):
            for limit in limits(competitor, seconds):
                given = stock if competitor.stock else Stock(problem, ())
                task = Task(given.problem, limit, workers, SEED, given.seen)
                found = run(competitor, task)
                for row in found:
                    row.pop("placement", None)  # a hundred thousand spans are no figure
                rows += [{"instance": instance.name, **row} for row in found]
                for row in found:
                    say(f"{instance.name}: {label(row)}: {_outcome(row)}")
    return {
        "seconds": seconds,
        "workers": workers,
        "seed": SEED,
        "shuffles": list(SHUFFLES),
        "sources": {competitor.name: competitor.source for competitor in COMPETITORS},
        "instances": facts,
        "rows": rows,
    }


def _end(problem: Problem, placement: Placement) -> dict[str, float]:
    worth = evaluate(problem, placement)
    return End(worth.min_throughput, worth.holes, worth.loads)._asdict()


def _competitors(instance: Instance) -> Sequence[Competitor]:
    return [OURS] if instance.ours_alone else COMPETITORS


def label(row: Row) -> str:
    """A competitor's name, with what tells its answers apart."""
    limit = f"{row['limit']:g} s" if row["limit"] is not None else ""
    return ", ".join(part for part in (row["competitor"], row["of"], limit) if part)


def _outcome(row: Row) -> str:
    return row.get("why_not") or f"{row['objective']:.2f} RPS in {row['seconds']:.1f} s"


def proven(rows: Sequence[Row]) -> float | None:
    """The lowest bound that anybody has proven on one instance."""
    return min((row["bound"] for row in rows if row.get("bound") is not None), default=None)


def below(row: Row, bound: float | None) -> float | None:
    """How far an objective is below the lowest bound, as a share of it; None where one of them is missing.

    Never below 0: searches work in integers, and stock servers may move some that a plan takes as given.
    """
    if bound is None or "objective" not in row:
        return None
    return max(0.0, bound - row["objective"]) / abs(bound) if bound else 0.0
