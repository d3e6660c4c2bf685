"""Builders that keep the tests' problems short enough to read."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from solver import Limits, Problem, Server, Solution, Span, Status, evaluate, solve

CHURN = sorted((Path(__file__).parents[2] / "benchmarks" / "data").glob("churn-*.json"))
"""The dumps of the churn benchmark."""
AMPLE = Limits(seconds=60.0)
"""A limit that no small problem comes near: what is proven does not depend on the machine's speed."""
AT_ONCE = Limits(seconds=0.0)


@dataclass(frozen=True)
class Row:
    """A server whose `seconds` may be one number for all blocks."""

    current: Span | None
    throughput: dict[int, float]
    seconds: float | tuple[float, ...]
    only: Span | None
    may_stay: bool


def span(text: str) -> Span:
    start, end = text.split(":")
    return Span(int(start), int(end))


def spans(text: str) -> tuple[Span, ...]:
    """``"0:2 3:5"`` as a placement."""
    return tuple(span(word) for word in text.split())


def holds(
    current: str,
    rps: float | dict[int, float],
    *,
    seconds: float | tuple[float, ...] = 1.0,
    only: str | None = None,
    may_stay: bool = True,
) -> Row:
    """A server that holds a span; `rps` is one number, or RPS by the lengths that it may take."""
    now = span(current)
    throughput = rps if isinstance(rps, dict) else {now.length: rps}
    return Row(now, throughput, seconds, span(only) if only is not None else None, may_stay)


def waits(length: int, rps: float, *, seconds: float | tuple[float, ...] = 1.0, only: str | None = None) -> Row:
    """A newcomer that takes `length` blocks."""
    return Row(None, {length: rps}, seconds, span(only) if only is not None else None, True)


def problem(
    num_blocks: int,
    *rows: Row,
    base: tuple[float, ...] | None = None,
    replicas: tuple[int, ...] | None = None,
    horizon: float = 1e6,
    min_replicas: int = 0,
    max_moves: int | None = None,
    max_loads: int | None = None,
    max_hops: int | None = None,
) -> Problem:
    """The default horizon makes reloading nearly free. Constants hold the blocks that have a base throughput."""
    base = base if base is not None else (0.0,) * num_blocks
    return Problem(
        num_blocks=num_blocks,
        servers=tuple(
            Server(
                row.current,
                row.throughput,
                row.seconds if isinstance(row.seconds, tuple) else (row.seconds,) * num_blocks,
                row.only,
                row.may_stay,
            )
            for row in rows
        ),
        base_throughput=base,
        base_replicas=replicas if replicas is not None else tuple(int(rps > 0) for rps in base),
        horizon=horizon,
        min_replicas=min_replicas,
        max_moves=max_moves,
        max_loads=max_loads,
        max_hops=max_hops,
    )


def solved(case: Problem, limits: Limits = AMPLE, **more: object) -> Solution:
    """The solution, once what every solution promises is checked."""
    found = solve(case, limits, **more)
    worth = evaluate(case, found.placement)
    assert found.bound >= worth.objective
    assert found.rounding_slack >= 0
    if found.status is Status.OPTIMAL:
        assert found.bound - worth.objective <= 2 * found.rounding_slack
    return found


def churn(path: Path) -> Problem:
    """A dump of the churn benchmark, where every server may move."""
    dump = json.loads(path.read_text())
    num_blocks = dump["num_blocks"]
    peers = {record["peer_id"]: record["value"] for record in dump["records"]}
    servers = []
    for _, (_, rps, info) in sorted(peers.items()):
        now = Span(info["start_block"], info["end_block"])
        servers.append(Server(now, {now.length: rps}, (28.0,) * num_blocks))
    return Problem(num_blocks, tuple(servers), (0.0,) * num_blocks, (0,) * num_blocks, horizon=14_400.0)


def searching_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "cp-sat"]
