"""The command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REAL = str(ROOT / "examples" / "llama-65b-hf.json")
NOWHERE = f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}"
"""Where no node of any swarm is."""
LAUNCH = "from cli.app import main; main()"
STAND_IN = f"""
import sys, time, types
sys.path.insert(0, {str(ROOT)!r})
from dataclasses import replace
from solver.problem import Progress
from tests.cli.build import real_dump
def make_plan(state, policy, *, progress, stop, explain, previous):
    print("searching", file=sys.stderr, flush=True)
    while not stop.is_set():
        time.sleep(0.01)
        progress(Progress("objective", 1.0, 1.0, 2.0))
    time.sleep(LINGER)
    plan = real_dump()
    return replace(plan, status="feasible", search=replace(plan.search, interrupted=True))
sys.modules["planner.planning"] = types.SimpleNamespace(make_plan=make_plan)
"""
"""A planner that searches until it is stopped, and then for `LINGER` seconds more."""
AT_ONCE = STAND_IN.replace("while not stop.is_set()", "while False").replace("LINGER", "0")
"""One that does not search."""


def environment(**more: str) -> dict[str, str]:
    """Of a command's process: a terminal of 80 columns, and this checkout."""
    return {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT), **more}


def run(*arguments: str, code: str = LAUNCH, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    variables = environment(**options.pop("env", {}))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=variables,
        **options,
    )


def closed_pipe(*arguments: str, code: str) -> tuple[int, str]:
    """Run the command with nobody reading its standard output."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr
