"""The plots beside the tables: SVG that is the same for the same figures, and readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from benchmarks.growth import own_mib, slope
from benchmarks.quality import below, proven
from benchmarks.runner import Row

INK = "#7d8590"
"""Text and axes: as far from white as from GitHub's dark pages."""
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "plan-swarm",  # else every run has ids of its own
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # it comes with matplotlib, so that the layout is the same everywhere
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}
SEARCHES = {"ours": "#2f81f7", "CP-SAT, plain": "#d9730d", "HiGHS": "#2da44e"}
RULES = {"Petals rule": "#bf4b8a", "equal stages": "#a371f7", "exo": "#9a7a00", "Parallax": "#e5534b"}
NOTHING = 1e-3
"""Gap, in percent, that stands for none: a logarithm has no 0."""
LEAST, MOST = 0.7 * NOTHING, 120.0
EARLIEST = 1e-2
"""Seconds at which the plot over time begins."""


def quality_over_time(quality: dict[str, Any], path: Path) -> None:
    """A panel an instance: how far below the lowest bound each search was, over its time; the rules as levels."""
    names = [facts["instance"] for facts in quality["instances"]]
    by_instance = {name: [row for row in quality["rows"] if row["instance"] == name] for name in names}
    shown = [name for name in names if proven(by_instance[name]) is not None]
    columns = min(3, max(1, len(shown)))
    lines = max(1, math.ceil(len(shown) / columns))
    with _figure(path, columns, lines, "below the lowest bound, %", "seconds") as (figure, axes):
        for panel, name in zip(axes, shown, strict=False):
            _over_time(panel, by_instance[name], quality["seconds"])
            panel.set_title(name, fontsize=9)
        _legend(figure, axes)


def _over_time(panel: Axes, rows: Sequence[Row], seconds: float) -> None:
    bound = proven(rows)
    for name, colour in SEARCHES.items():
        own = [row for row in rows if row["competitor"] == name and row.get("moments")]
        if own:
            longest = max(own, key=lambda row: row["limit"])
            times, gaps = _best_so_far(longest, bound)
            panel.step(times, gaps, where="post", color=colour, label=name, linewidth=1.6)
    for name, colour in RULES.items():
        for row in rows:
            gap = below(row, bound)
            if row["competitor"] == name and row["of"] in ("", "best") and gap is not None:
                panel.axhline(_percent(gap), color=colour, label=name, linewidth=1.2, linestyle=(0, (4, 2)))
    panel.set(xscale="log", yscale="log", xlim=(EARLIEST, seconds * 1.1), ylim=(LEAST, MOST))
    panel.set_yticks([NOTHING, 0.01, 0.1, 1, 10, 100], ["0", "0.01", "0.1", "1", "10", "100"])
    panel.yaxis.set_minor_formatter(NullFormatter())


def _best_so_far(row: Row, bound: float | None) -> tuple[list[float], list[float]]:
    """The search's gaps as they fell; the last is that of what it answered."""
    told = [(seconds, objective) for seconds, objective, _ in row["moments"] if objective is not None]
    if "objective" in row:
        told.append((row["seconds"], row["objective"]))
    times, gaps, best = [], [], -math.inf
    for seconds, objective in told:
        best = max(best, objective)
        gap = below({"objective": best}, bound)
        if gap is not None:
            times.append(max(seconds, EARLIEST))
            gaps.append(_percent(gap))
    return times, gaps


def _percent(gap: float) -> float:
    return min(100.0, max(NOTHING, 100 * gap))


def cost_over_size(growth: dict[str, Any], path: Path) -> None:
    """Seconds and memory over servers, and over blocks, with their slopes."""
    rows = [{**row, "own_mib": own_mib(row)} for row in growth["rows"]]
    kinds = {"first_seconds": "first plan", "close_seconds": "close plan", "seconds": "in all"}
    with _figure(path, 2, 2, "", "") as (figure, axes):
        for place, grows in enumerate(("servers", "blocks")):
            seconds, memory = axes[place], axes[place + 2]
            for (name, words), colour in zip(kinds.items(), SEARCHES.values(), strict=True):
                _curve(seconds, rows, grows, name, words, colour)
            _curve(memory, rows, grows, "own_mib", "MiB", INK)
            other = f"{rows[0]['blocks']:,} blocks" if grows == "servers" else f"{rows[-1]['servers']:,} servers"
            seconds.set_title(other, fontsize=9)
            sizes = [row[grows] for row in rows if row["grows"] == grows]
            for panel, unit in ((seconds, "seconds"), (memory, "MiB")):
                panel.set(xscale="log", yscale="log", xlabel=grows, ylabel=unit)
                panel.set_xticks(sizes, [f"{size // 1000}k" if size >= 1000 else str(size) for size in sizes])
                panel.xaxis.set_minor_locator(NullLocator())
                panel.set_ylim(*_decades(panel.get_ylim()))
                panel.legend(fontsize=7, loc="lower right" if panel is seconds else "upper left")
        figure.tight_layout()


def _decades(limits: tuple[float, float]) -> tuple[float, float]:
    """Whole powers of ten around both: then both ends have a tick that can be read."""
    return 10.0 ** math.floor(math.log10(limits[0])), 10.0 ** math.ceil(math.log10(limits[1]))


def _curve(panel: Axes, rows: Sequence[Row], grows: str, name: str, words: str, colour: str) -> None:
    points = [(row[grows], row[name]) for row in rows if row["grows"] == grows and row[name]]
    power = slope(rows, grows, name)
    words = words if power is None else f"{words}, slope {power:.2f}"
    panel.plot(*zip(*points, strict=True) if points else ([], []), color=colour, label=words, marker="o", markersize=3)


@contextmanager
def _figure(path: Path, columns: int, lines: int, down: str, along: str) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure that is drawn inside, and then written without its date."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * columns, 2.5 * lines + 0.5))
        axes = figure.subplots(lines, columns, squeeze=False)
        for panel in axes[:, 0]:
            panel.set_ylabel(down)
        for panel in axes[-1]:
            panel.set_xlabel(along)
        yield figure, list(axes.flat)
        for panel in axes.flat:
            if not panel.has_data():
                panel.set_axis_off()
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend of all panels, below them."""
    found: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    known = [name for name in (*SEARCHES, *RULES) if name in found]
    figure.legend([found[name] for name in known], known, loc="lower center", ncols=max(1, min(4, len(known))))
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 1))
