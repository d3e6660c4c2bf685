"""Numbers, times and sets of blocks in words, the same everywhere in the view."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cli.look import Look
from solver.problem import Span


def rps(value: float) -> str:
    """A throughput, to two decimals; smaller ones keep a digit that says so."""
    if value and abs(value) < 0.005:
        return f"{value:.1g}"
    return f"{value:.2f}"


def signed_rps(value: float, look: Look) -> str:
    """A change of throughput, with its sign."""
    shown = rps(abs(value))
    return shown if not value else ("+" if value > 0 else look.minus) + shown


def percent(share: float) -> str:
    """A share as a percentage, with two significant digits: ``99 %``, ``2.3 %``, ``0.04 %``."""
    value = abs(share) * 100
    if value >= 9.95:
        return f"{value:.0f} %"
    if value >= 0.095 or not value:
        return f"{value:.1f} %" if value else "0 %"
    return f"{value:.1g} %" if value >= 0.001 else "under 0.001 %"


def at_most(share: float) -> str:
    """That a share is no more than it is: ``at most 2.3 %``, ``under 0.001 %``."""
    text = percent(share)
    return text if text.startswith("under") else f"at most {text}"


def change(before: float, after: float, look: Look) -> str:
    """By how much `after` differs from `before`: `` (+99 %)``, or nothing where that says nothing."""
    if before <= 0 or not math.isfinite(after) or after == before:
        return ""
    return f" ({'+' if after > before else look.minus}{percent(after / before - 1)})"


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``56 s``, ``4 min 40 s``, ``2 h 05 min``."""
    if 0 < seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 1e9:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{seconds:.1g} s"


def count(number: int, thing: str, things: str | None = None) -> str:
    """``1 server``, ``3 servers``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def span(value: Span | None, look: Look) -> str:
    """A span as it is written on the command line."""
    return look.dash if value is None else f"{value.start}:{value.end}"


def blocks(numbers: Iterable[int], look: Look, most: int = 4) -> str:
    """A set of blocks as half-open ranges, as spans are written; at most `most` of them."""
    ranges: list[list[int]] = []
    for block in sorted(numbers):
        if ranges and ranges[-1][1] == block:
            ranges[-1][1] = block + 1
        else:
            ranges.append([block, block + 1])
    if not ranges:
        return look.dash
    shown = ", ".join(f"{start}:{end}" for start, end in ranges[:most])
    return shown if len(ranges) <= most else f"{shown} and {len(ranges) - most} more"
