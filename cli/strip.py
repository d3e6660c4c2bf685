"""The throughput of every block in one glyph, before and after, the bottleneck marked beneath.

Nothing rests on colour: a taller glyph (or a higher digit) is more throughput, a hole has a glyph of its own,
and the bottleneck is marked in a row beneath.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from cli import words
from cli.look import Look
from planner.coverage import Coverage
from planner.plan import Plan

GLYPHS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"
HOLE, HOLE_ASCII = "×", "!"
MARK = "^"
TICK = 10
"""Glyphs between two block numbers above a strip."""
MOST_ROWS = 4
"""A model with more blocks than fit into so many rows is shown in groups of blocks."""
HEADROOM = 3.0
"""The scale ends at so many bottlenecks: what lies far above must not flatten what matters."""


@dataclass(frozen=True)
class Scale:
    """How a throughput becomes a glyph: in equal steps from 0 to `top` RPS, and the last one above it."""

    top: float
    look: Look

    def glyph(self, throughput: float | None) -> str:
        """The glyph of a throughput; None is a hole."""
        if throughput is None:
            return HOLE_ASCII if self.look.ascii else HOLE
        part = min(1.0, throughput / self.top) if self.top > 0 else 0.0
        # The small allowance keeps equal throughputs, summed in different orders, from looking different.
        if self.look.ascii:
            return DIGITS[min(len(DIGITS) - 1, math.floor(part * len(DIGITS) + 1e-9))]
        return GLYPHS[max(0, math.ceil(part * len(GLYPHS) - 1e-9) - 1)]


def strips(plan: Plan, look: Look) -> list[Text]:
    """The strip of `before`, the strip of `after` where it differs, and a legend."""
    shown = [("now", plan.before)]
    if plan.after.throughput != plan.before.throughput:
        shown.append(("plan", plan.after))
    size = group_size(plan.num_blocks, look.width)
    length = math.ceil(plan.num_blocks / size)
    row = row_length(length, look.width)
    scale = Scale(_top([coverage for _, coverage in shown]), look)
    lines: list[Text] = []
    for start in range(0, length, row):
        if start:
            lines.append(Text(""))
        for name, coverage in shown:
            lines += _strip(name, coverage, scale, size, range(start, min(start + row, length)))
    return lines + _legend(plan, scale, size)


def group_size(num_blocks: int, width: int) -> int:
    """How many blocks share a glyph: 1, 2, 5, 10, 20 and so on, the least that fits `MOST_ROWS` rows."""
    room = MOST_ROWS * (width // TICK) * TICK
    size, factors = 1, (2.0, 2.5, 2.0)
    step = 0
    while math.ceil(num_blocks / size) > room:
        size = int(size * factors[step % 3])
        step += 1
    return size


def row_length(length: int, width: int) -> int:
    """Glyphs in a row: all of them where they fit, else rows of about equal length that end at a tick."""
    if length <= width:
        return length
    rows = math.ceil(length / (width // TICK * TICK))
    return math.ceil(length / rows / TICK) * TICK


def held(coverage: Coverage) -> list[float | None]:
    """Throughput by block; None for a hole. A covered block without throughput is part of the bottleneck."""
    covered = set(coverage.bottleneck_blocks)
    return [rps if rps > 0 or block in covered else None for block, rps in enumerate(coverage.throughput)]


def _strip(name: str, coverage: Coverage, scale: Scale, size: int, groups: range) -> list[Text]:
    throughput = held(coverage)
    weakest = set(coverage.bottleneck_blocks)
    glyphs, marks = Text(), Text()
    for group in groups:
        blocks = range(group * size, min((group + 1) * size, len(throughput)))
        hole, marked = any(throughput[b] is None for b in blocks), not weakest.isdisjoint(blocks)
        least = None if hole else min(rps for b in blocks if (rps := throughput[b]) is not None)
        glyphs.append(scale.glyph(least), style="bold red" if hole else "yellow" if marked else "green")
        marks.append(MARK if marked else " ", style="bold yellow")
    marks.rstrip()
    return [_ruler(name, size, groups), glyphs, *([marks] if marks.plain else [])]


def _ruler(name: str, size: int, groups: range) -> Text:
    """Block numbers, each above its block, with the strip's name behind the first."""
    ruler = ""
    for column in range(0, len(groups), TICK):
        number = str(groups[column] * size)
        if len(ruler) > column or (column and column + len(number) > len(groups)):
            continue
        ruler = ruler.ljust(column) + number + " "
        if not column:
            ruler += name + " "
    return Text(ruler.rstrip(), style="dim")


def _top(coverages: Sequence[Coverage]) -> float:
    most = max((rps for coverage in coverages for rps in coverage.throughput), default=0.0)
    bottleneck = max(coverage.min_throughput for coverage in coverages)
    return min(most, HEADROOM * bottleneck) if bottleneck > 0 else most


def _legend(plan: Plan, scale: Scale, size: int) -> list[Text]:
    full = DIGITS[-1] if scale.look.ascii else GLYPHS[-1]
    steps = len(DIGITS) if scale.look.ascii else len(GLYPHS)
    start = scale.top * (steps - 1) / steps
    parts = [f"{full} {words.rps(start)} RPS or more, in steps of {words.rps(scale.top / steps)}"]
    parts.append(f"{MARK} bottleneck")
    if plan.before.holes or plan.after.holes:
        parts.append(f"{scale.glyph(None)} hole")
    if size > 1:
        parts.append(f"each glyph is the least of {size} blocks")
    return scale.look.wrap("; ".join(parts) + ".", style="dim")
