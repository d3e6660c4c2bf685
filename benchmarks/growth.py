"""How the cost of our search grows with the servers and with the blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import churn
from benchmarks.competitors import OURS, Task
from benchmarks.competitors.columns import count_columns
from benchmarks.runner import Row, run
from planner.planning import available_cores
from solver import Problem

SEED = 11
AT_BLOCKS, AT_SERVERS = 80, 100
SERVERS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
BLOCKS = (24, 48, 80, 126, 250, 500, 1_000)
QUICK_SERVERS, QUICK_BLOCKS = (10, 100, 1_000), (24, 80, 250)
CLOSE = 0.01
"""A plan is close once it is this share below the one that the search ends with."""
TOLD = 0.15
"""Seconds up to which a moment is no measurement: a search tells of itself about ten times a second."""
REASON = """\
Why: to place one server anew, the search prices every start of its span by running sums along the model, so that one
pass over all servers costs servers x blocks; how many passes it takes depends on the swarm more than on its size. In
the blocks the slope is lower while they are few, as a step then costs what it costs to call numpy, whatever the length
of its arrays. The memory is that of the problem, a server each, and of what is known of each server and start: servers
x blocks again. *In all* is the time limit wherever nothing is proven before it, and what lies above the limit is the
step that was being taken."""


def sizes(*, quick: bool) -> list[tuple[str, int, int]]:
    """What grows, and the servers and blocks of each swarm."""
    servers, blocks = (QUICK_SERVERS, QUICK_BLOCKS) if quick else (SERVERS, BLOCKS)
    return [
        *(("servers", count, AT_BLOCKS) for count in servers),
        *(("blocks", AT_SERVERS, count) for count in blocks),
    ]


def measure(seconds: float, say: Callable[[str], None], *, quick: bool = False) -> dict[str, Any]:
    """One row a size: ours, with `seconds` each."""
    rows = []
    for grows, servers, blocks in sizes(quick=quick):
        row = _row(partial(churn.problem, blocks, servers, SEED), seconds)
        rows.append({"grows": grows, "servers": servers, "blocks": blocks, **row})
        say(f"{servers:,} servers x {blocks:,} blocks: {row['seconds']:.1f} s")
    return {"seconds": seconds, "seed": SEED, "workers": available_cores(), "rows": rows}


def _row(make: Callable[[], Problem], seconds: float) -> Row:
    problem = make()
    (row,) = run(OURS, Task(problem, seconds, available_cores()))
    moments = row.pop("moments", [])
    row = {name: row.get(name) for name in ("objective", "bound", "seconds", "memory_before_mib", "memory_mib")}
    first = next((moment[0] for moment in moments if moment[1] is not None), None)
    enough = -math.inf if row["objective"] is None else row["objective"] - CLOSE * abs(row["objective"])
    close = next((moment[0] for moment in moments if moment[1] is not None and moment[1] >= enough), None)
    return {"columns": count_columns(problem), "first_seconds": first, "close_seconds": close, **row}


def slope(rows: Sequence[Row], grows: str, figure: str) -> float | None:
    """Power with which a figure grows, by least squares on logarithms; None with fewer than three sizes.

    Moments that come too early to be measured do not count.
    """
    least = TOLD if figure.endswith("_seconds") else 0.0
    points = [(row[grows], row[figure]) for row in rows if row["grows"] == grows and (row[figure] or 0.0) > least]
    if len(points) < 3:
        return None
    x, y = np.log(np.array(points, dtype=float)).T
    return round(float(np.polyfit(x, y, 1)[0]), 6) + 0.0  # no -0.00 in a table


def table(growth: dict[str, Any]) -> str:
    """Markdown, with the slopes below what grows."""
    rows = [{**row, "own_mib": own_mib(row)} for row in growth["rows"]]
    lines = [
        "## How cost grows",
        "",
        f"Churned swarms of seed {growth['seed']}, planned by ours in {growth['seconds']:g} s with"
        f" {growth['workers']} threads.",
        f"*First plan*: as soon as the search tells of one, which it does ten times a second: what is below {TOLD:g} s",
        f"is no measurement, and not in a slope. *Close*: at most {CLOSE:.0%} below its last one. *MiB*: over what its"
        " process had before.",
        "",
        "| servers | blocks | columns | first plan, s | close, s | in all, s | gap, % | MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for grows in ("servers", "blocks"):
        for row in rows:
            if row["grows"] == grows:
                cells = [_cell(row[name]) for name in ("first_seconds", "close_seconds", "seconds")]
                lines.append(
                    f"| {row['servers']:,} | {row['blocks']:,} | {row['columns']:,} | {' | '.join(cells)} |"
                    f" {_gap(row)} | {_cell(row['own_mib'], '.0f')} |"
                )
        slopes = [_cell(slope(rows, grows, name)) for name in ("first_seconds", "close_seconds", "seconds")]
        memory = _cell(slope(rows, grows, "own_mib"))
        lines.append(f"| *slope in {grows}* | | | {' | '.join(slopes)} | | {memory} |")
    return "\n".join([*lines, "", "![cost over size](cost.svg)", "", REASON])


def own_mib(row: Row) -> float | None:
    """Memory of the search alone, over what its process had before; None where a system does not tell."""
    both = row["memory_mib"], row["memory_before_mib"]
    return None if None in both else both[0] - both[1]


def _gap(row: Row) -> str:
    if row["objective"] is None or not row["bound"]:
        return "–"
    return f"{100 * (row['bound'] - row['objective']) / abs(row['bound']):.2f}"


def _cell(figure: float | None, form: str = ".2f") -> str:
    return "–" if figure is None else format(figure, form)
