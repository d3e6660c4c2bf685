"""The living swarm, as it is read, planned and published into: real DHT nodes over loopback."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.live_process import timed
from benchmarks.private_swarm import ROOT, apart
from planner import Plan, Policy, load_state, make_plan
from planner.envelope import MAX_ENVELOPE, seal_plan
from planner.errors import EnvelopeRefused
from planner.keys import generate
from planner.live import most_calls
from planner.published import read_plan

SIZES = ((100, 80), (1000, 80))
"""Servers and blocks of each swarm."""
NODES = 4
RUNS = 5
PREFIX = "big-hf"
LIFETIME = 1800.0
"""Seconds for which the servers' records live: longer than all runs take."""


def measure(
    seconds: float, sizes: Sequence[tuple[int, int]] = SIZES, nodes: int = NODES, runs: int = RUNS
) -> list[dict[str, Any]]:
    """One column a swarm; planning has `seconds`."""
    return [_column(servers, blocks, nodes, seconds, runs) for servers, blocks in sizes]


def _column(servers: int, blocks: int, nodes: int, seconds: float, runs: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        apart(PREFIX, servers, blocks, nodes, LIFETIME) as (peer, *_),
    ):
        dump, plan_file = f"{folder}/swarm.json", f"{folder}/plan.json"
        readings = [_inside("read", PREFIX, peer) for _ in range(runs)]
        command = ["-m", "cli", "dump", dump, "--prefix", PREFIX, "--initial-peers", peer, "--quiet"]
        dumps = [timed(lambda: _run(*command))[0] for _ in range(runs)]
        state = load_state(dump)
        plan_seconds, plan = timed(lambda: make_plan(state, Policy(time_limit=seconds)))
        Path(plan_file).write_text(json.dumps(plan.to_json()), encoding="utf-8")
        envelope = _envelope_bytes(plan)
        published = [_inside("publish", plan_file, peer) for _ in range(runs if envelope is not None else 0)]

    def spread(name: str, rows: Sequence[dict[str, Any]] = readings) -> dict[str, float] | None:
        figures = [row[name] for row in rows]
        return {"best": min(figures), "median": statistics.median(figures)} if figures else None

    def most(name: str) -> Any:
        return max((row[name] for row in readings if row[name] is not None), default=None)

    return {
        **{name: min(row[name] for row in readings) for name in ("servers", "records", "responses")},
        "blocks": blocks,
        "nodes": nodes,
        "runs": runs,
        **{name: spread(name) for name in ("import_seconds", "read_seconds", "decode_seconds")},
        "dump_seconds": spread("seconds", [{"seconds": one} for one in dumps]),
        **{name: most(name) for name in ("tries", "gets", "calls", "imported_mib", "peak_mib")},
        "most_calls": most_calls(blocks, nodes, most("tries")),
        "plan_seconds": plan_seconds,
        "moves": len(plan.moves),
        "publish_seconds": spread("publish_seconds", published),
        "envelope_bytes": envelope,
        "envelope_bytes_long_names": _envelope_bytes(plan, long_names=True),
    }


def _inside(*arguments: str) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(_run("-m", "benchmarks.live_process", *arguments))
    return measured


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _envelope_bytes(plan: Plan, *, long_names: bool = False) -> int | None:
    """Bytes of the signed plan, also with names as bad as strangers can make them; None: more than readers take."""
    document = plan.to_json()
    if long_names:
        generator = random.Random(1)
        for server in document["servers"]:
            server["public_name"] = "".join(chr(generator.randrange(0x4E00, 0xA000)) for _ in range(200))
    try:
        return len(seal_plan(read_plan(document), generate(), epoch=1))
    except EnvelopeRefused:
        return None


def table(columns: list[dict[str, Any]]) -> str:
    """Markdown."""

    def row(what: str, *names: str, form: str = ".2f", none: str = "–") -> str:
        cells = (
            " / ".join(_cell(column[name], form) if column[name] is not None else none for name in names)
            for column in columns
        )
        return f"| {what} | {' | '.join(cells)} |"

    refused = f"over {MAX_ENVELOPE:,}: refused"
    sizes = (f"{column['servers']:,} servers, {column['blocks']} blocks" for column in columns)
    return "\n".join(
        [
            "## The living swarm",
            "",
            f"{columns[0]['nodes']} nodes of a DHT in a process of their own, over loopback, and each of"
            f" {columns[0]['runs']} runs in a new process. Seconds are",
            "best / median of the runs, all else is the worst of them.",
            "",
            f"| | {' | '.join(sizes)} |",
            f"|---|{'---|' * len(columns)}",
            row("records, one a server and block", "records", form=",d"),
            row("importing hivemind (torch), s", "import_seconds"),
            row("**reading**, from joining to raw records, s", "read_seconds"),
            row("reading: tries / gets", "tries", "gets", form="d"),
            row("reading: calls / at most / answered", "calls", "most_calls", "responses", form="d"),
            row("reading: decoding the records, s", "decode_seconds"),
            row("memory after importing / after reading, at its peak, MiB", "imported_mib", "peak_mib", form=".0f"),
            row("`plan-swarm dump`, the whole process, s", "dump_seconds"),
            row("planning, one run, s", "plan_seconds"),
            row("planning: moves", "moves", form="d"),
            row("**publishing**, from reading anew to reading back, s", "publish_seconds"),
            row("envelope / with long names of random characters, bytes", "envelope_bytes", "envelope_bytes_long_names",
                form=",d", none=refused),
        ]
    )  # fmt: skip


def _cell(value: Any, form: str) -> str:
    figures = value.values() if isinstance(value, dict) else [value]
    return " / ".join(format(figure, form) for figure in figures)
