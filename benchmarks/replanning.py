"""One server of a hundred leaves: planning again from the plan under way, beside planning from scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.competitors import OURS, Task
from benchmarks.instances import chosen
from benchmarks.runner import Row, run
from planner.planning import available_cores
from solver import Placement, Problem

INSTANCE = "churn-80x100-4"
LEAVERS = (32, 29, 41, 97)
"""Who leaves, by its place in the instance: the fastest, two of the middle and one of the slowest."""
AGAIN_SECONDS = 5.0
ENOUGH = 0.998
"""Share of the objective planned from scratch that is waited for."""
SEED = 0


def expected_seconds(seconds: float) -> float:
    """About what it takes."""
    return seconds + 2 * len(LEAVERS) * (seconds + min(seconds, AGAIN_SECONDS) + 3.0)


def measure(seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """One row a leaver and state: `seconds` from scratch, and `AGAIN_SECONDS` from the plan for the whole swarm."""
    (instance,) = (one for one in chosen(INSTANCE, quick=False) if one.name == INSTANCE)
    problem = instance.make()
    whole = _solved(problem, seconds, None)
    rows = []
    for gone in LEAVERS:
        for carried_out in (False, True):
            left, under_way = without(problem, whole["placement"], gone, carried_out=carried_out)
            scratch = _solved(left, seconds, None)
            again = _solved(left, min(seconds, AGAIN_SECONDS), under_way)
            enough = ENOUGH * scratch["objective"]
            row = {
                "leaves": gone,
                "share": _share(problem, gone),
                "carried_out": carried_out,
                "scratch": scratch["objective"],
                "again": again["objective"],
                "scratch_seconds": reached(scratch["moments"], enough),
                "again_seconds": reached(again["moments"], enough),
            }
            say(f"{INSTANCE} without {gone}: {100 * row['again'] / row['scratch']:.2f} % of the plan from scratch")
            rows.append(row)
    return {
        "instance": INSTANCE,
        "seconds": seconds,
        "again_limit": min(seconds, AGAIN_SECONDS),
        "seed": SEED,
        "workers": available_cores(),
        "rows": rows,
    }


def without(problem: Problem, placement: Placement, gone: int, *, carried_out: bool) -> tuple[Problem, Placement]:
    """The problem without one server, and what a plan for all of them says of the others.

    Parameters
    ----------
    carried_out
        Whether the others hold already what the plan says.
    """
    stay = [index for index in range(len(problem.servers)) if index != gone]
    under_way = tuple(placement[index] for index in stay)
    servers = [problem.servers[index] for index in stay]
    if carried_out:
        servers = [replace(server, current=span) for server, span in zip(servers, under_way, strict=True)]
    return replace(problem, servers=tuple(servers)), under_way


def _solved(problem: Problem, seconds: float, under_way: Placement | None) -> Row:
    (row,) = run(OURS, Task(problem, seconds, available_cores(), SEED, under_way=under_way))
    if "objective" not in row:
        raise RuntimeError(f"{INSTANCE}: {row['why_not']}")
    return row


def _share(problem: Problem, gone: int) -> float:
    """How much of the swarm's work, throughput times blocks, one server does."""
    work = [max(server.throughput.values()) * max(server.throughput) for server in problem.servers]
    return work[gone] / sum(work)


def reached(moments: list[list[float | None]], enough: float) -> float | None:
    """Seconds after which a search told of an objective that is enough; None if it never did."""
    for seconds, objective, _ in moments:
        if objective is not None and objective >= enough:
            return seconds
    return None


def table(replanning: dict[str, Any]) -> str:
    """Markdown."""
    rows = replanning["rows"]
    return "\n".join([*_head(replanning), *(_line(row) for row in rows), *_together(rows)])


def _head(replanning: dict[str, Any]) -> Iterator[str]:
    scratch, again = f"{replanning['seconds']:g} s", f"{replanning['again_limit']:g} s"
    yield from (
        "## Planning again",
        "",
        f"{replanning['instance']} is planned in {scratch}; then one server leaves, and the others are planned again in"
        f" {again} from",
        f"that plan, and in {scratch} from scratch, while nobody has moved yet (*under way*) and when all have"
        " (*carried out*).",
        "*Its work*: the share of the sum of throughput times blocks that the server has. *Reached*: when a search",
        f"told, as it does ten times a second, of {ENOUGH:.1%} of what the plan from scratch comes to.",
        f"Threads: {replanning['workers']}, seed: {replanning['seed']}.",
        "",
        "| leaves | its work, % | the plan is | from scratch, RPS | again, RPS | share, % | reached: scratch, s |"
        " again, s | times faster |",
        "|---|---|---|---|---|---|---|---|---|",
    )


def _line(row: Row) -> str:
    slow, fast = row["scratch_seconds"], row["again_seconds"]
    cells = [
        str(row["leaves"]),
        f"{100 * row['share']:.1f}",
        "carried out" if row["carried_out"] else "under way",
        f"{row['scratch']:.2f}",
        f"{row['again']:.2f}",
        f"{100 * row['again'] / row['scratch']:.2f}",
        *("–" if seconds is None else f"{seconds:.1f}" for seconds in (slow, fast)),
        "–" if slow is None or not fast else f"{slow / fast:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _together(rows: list[Row]) -> Iterator[str]:
    """The time of all rows in which both searches came so far."""
    both = [pair for row in rows if None not in (pair := (row["scratch_seconds"], row["again_seconds"]))]
    slow, fast = sum(one for one, _ in both), sum(other for _, other in both)
    if fast > 0:
        yield f"| *together* | | | | | | {slow:.1f} | {fast:.1f} | {slow / fast:.0f} |"
