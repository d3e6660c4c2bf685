"""Run the benchmarks and write `results.md`, `results.json` and the plots beside this file.

Usage: python -m benchmarks [--only PART] [--instances PATTERN] [--seconds LIMIT] [--quick] [--out FOLDER]

A part that was not run keeps what the file has of it. Everything is written at the end, so that a run that is broken
off leaves the files as they were. Trial runs (`--quick`, `--instances`) write only where `--out` says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import growth, live_swarm, machine, quality, quality_tables, replanning, startup
from benchmarks.instances import chosen

HERE = Path(__file__).parent
QUICK_SECONDS, LIVE_SECONDS, SECONDS = 5.0, 10.0, 60.0
STARTUP_EXPECTED, LIVE_EXPECTED = 30.0, 240.0
"""Seconds that these parts take, about."""

TABLES: dict[str, Callable[[Any], str]] = {
    "startup": startup.table,
    "live": live_swarm.table,
    "quality": quality_tables.table,
    "replanning": replanning.table,
    "growth": growth.table,
}


def main() -> None:
    asked = _arguments()
    seconds = asked.seconds if asked.seconds is not None else QUICK_SECONDS if asked.quick else SECONDS
    instances = chosen(asked.instances, quick=asked.quick)
    if not instances:
        sys.exit(f"no instance is called {asked.instances}")
    parts: dict[str, tuple[float, Callable[[], Any]]] = {
        "startup": (STARTUP_EXPECTED, startup.measure),
        "live": (LIVE_EXPECTED, lambda: live_swarm.measure(min(seconds, LIVE_SECONDS))),
        "quality": (quality.expected_seconds(instances, seconds), lambda: quality.measure(instances, seconds, _say)),
        "replanning": (replanning.expected_seconds(seconds), lambda: replanning.measure(seconds, _say)),
        "growth": (
            seconds * len(growth.sizes(quick=asked.quick)),
            lambda: growth.measure(seconds, _say, quick=asked.quick),
        ),
    }
    run = asked.only or (["quality", "growth"] if asked.quick else [*parts])
    _say(f"{', '.join(run)}: up to {sum(parts[name][0] for name in run) / 60:.0f} minutes")
    folder = asked.out or (None if asked.quick or asked.instances else HERE)
    results = _earlier(folder)
    for name in run:
        results[name] = parts[name][1]()
        results["machine"][name] = machine.describe()
    text = report(results)
    print(text)
    if folder is not None:
        write(results, text, folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and quality.")
    parser.add_argument("--only", action="append", choices=[*TABLES], help="run this part alone (may be repeated)")
    parser.add_argument("--instances", metavar="PATTERN", help="quality: instances that match, or begin so")
    parser.add_argument("--seconds", type=float, metavar="LIMIT", help="the longest time limit (60; --quick: 5)")
    parser.add_argument("--quick", action="store_true", help="quality and growth, a few small instances, 5 s each")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: here; trials: nowhere)")
    return parser.parse_args()


def _earlier(folder: Path | None) -> dict[str, Any]:
    """What a file already has, so that parts that are not run keep it; a machine a part, as they may differ."""
    path = None if folder is None else folder / "results.json"
    file: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}
    kept = {name: file[name] for name in TABLES if name in file}
    if isinstance(kept.get("quality"), list):  # of an older form, which no table is made of any more
        del kept["quality"]
    machines = file.get("machine", {})
    if "processor" in machines:  # from when all parts were always run together
        machines = dict.fromkeys(kept, machines)
    return {"machine": machines, **kept}


def report(results: dict[str, Any]) -> str:
    """The Markdown of all parts; the machine once, or below each heading where they differ."""
    measured = [name for name in TABLES if name in results]
    machines = [machine.table(results["machine"][name]) for name in measured]
    parts = ["# Measured\n\nWritten by `make bench`; don't edit."]
    if len(set(machines)) == 1:
        parts += [machines[0], *(TABLES[name](results[name]) for name in measured)]
    else:
        for name, where in zip(measured, machines, strict=True):
            heading, _, rest = TABLES[name](results[name]).partition("\n")
            parts.append(f"{heading}\n\n{where}\n{rest}")
    return "\n\n".join(parts) + "\n"


def write(results: dict[str, Any], text: str, folder: Path) -> None:
    """Everything at once: tables, figures, plots; each file is whole or as it was."""
    from benchmarks import plots

    folder.mkdir(parents=True, exist_ok=True)
    if "quality" in results:
        plots.quality_over_time(results["quality"], folder / "quality.svg")
    if "growth" in results:
        plots.cost_over_size(results["growth"], folder / "cost.svg")
    for name, content in (("results.md", text), ("results.json", json.dumps(results, indent=1) + "\n")):
        new = folder / f".{name}.new"
        new.write_text(content, encoding="utf-8")
        os.replace(new, folder / name)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
