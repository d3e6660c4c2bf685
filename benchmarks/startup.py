"""Whole processes, from the shell's call to their end."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.instances import REAL

RUNS = 5
CALLS = {
    "python -c pass": ["-c", "pass"],
    "plan-swarm --help": ["-m", "cli", "--help"],
    "plan-swarm --dump llama-65b-hf.json": ["-m", "cli", "--dump", str(REAL)],
    "the same, --span server4=21:40": ["-m", "cli", "--dump", str(REAL), "--span", "server4=21:40"],
}


def measure() -> list[dict[str, Any]]:
    """Best and median seconds of each call."""
    rows = []
    for name, arguments in CALLS.items():
        seconds = []
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
        rows.append({"call": name, "best_seconds": min(seconds), "median_seconds": statistics.median(seconds)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [f"## Whole processes, {RUNS} runs each", "", "| call | best, s | median, s |", "|---|---|---|"]
    lines += [f"| `{row['call']}` | {row['best_seconds']:.2f} | {row['median_seconds']:.2f} |" for row in rows]
    return "\n".join(lines)
