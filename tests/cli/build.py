"""Plans built by hand, for tests of what is shown rather than of what is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from jsonschema import Draft202012Validator

from planner.coverage import Coverage
from planner.plan import (
    Baseline,
    Objective,
    Plan,
    PlannedServer,
    PlanStatus,
    Search,
    Staying,
    Wave,
)
from planner.policy import Policy
from solver.hops import shortest_chain
from solver.problem import Span, Stage

SCHEMA = json.loads(files("planner").joinpath("schema/plan.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
"""Passes every JSON plan, and nothing else."""
SECONDS_PER_BLOCK, HORIZON = 28.0, 14400.0


@dataclass(frozen=True)
class Row:
    """One server in short."""

    peer_id: str
    current: tuple[int, int] | None
    target: tuple[int, int] | None
    throughput: float = 1000.0
    name: str | None = None
    movable: bool = True
    why_not: str | None = None


def coverage(num_blocks: int, spans: Sequence[tuple[tuple[int, int] | None, float]]) -> Coverage:
    """The throughput of every block under these spans."""
    throughput, holders = [0.0] * num_blocks, [0] * num_blocks
    for span, rps in spans:
        for block in range(*(span or (0, 0))):
            throughput[block] += rps
            holders[block] += 1
    covered = [throughput[b] for b in range(num_blocks) if holders[b]]
    least = min(covered, default=0.0)
    weakest = tuple(b for b in range(num_blocks) if holders[b] and throughput[b] == least)
    chain = shortest_chain([Span(*span) for span, _ in spans if span], num_blocks)
    return Coverage(least, holders.count(0), weakest, tuple(throughput), None if chain is None else len(chain))


def plan_of(
    rows: Sequence[Row],
    num_blocks: int,
    *,
    prefix: str = "llama-65b-hf",
    status: PlanStatus | None = None,
    slack: float = 0.0,
    proven: bool = True,
    interrupted: bool = False,
    warnings: tuple[str, ...] = (),
    bound_by: str = "CP-SAT",
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> Plan:
    """A plan that moves these servers, its figures recomputed; `slack` is how far the bound lies above."""
    servers = tuple(_planned(row) for row in sorted(rows, key=lambda row: row.peer_id))
    before = coverage(num_blocks, [(row.current, row.throughput) for row in rows])
    after = coverage(num_blocks, [(row.target, row.throughput) for row in rows])
    penalty = sum(server.throughput * server.reload_seconds / HORIZON for server in servers)
    value = after.min_throughput - penalty
    moves = tuple(server.peer_id for server in servers if server.moves)
    status = status or (("optimal" if proven else "feasible") if moves else "nothing_to_do")
    names = ("holes", "objective", "loads", "moves", "spread")
    return Plan(
        prefix=prefix,
        num_blocks=num_blocks,
        created_at=1691366400.0,
        status=status,
        state_fingerprint="0" * 64,
        before=before,
        after=after,
        staying=Staying(before.min_throughput, before.min_throughput, before.holes),
        objective=Objective(value, after.min_throughput, penalty, value + slack, bound_by),
        servers=servers,
        waves=(Wave(moves, 0.0, max(server.reload_seconds for server in servers)),) if moves else (),
        baseline=Baseline(before.min_throughput, before.holes, before.min_throughput, 0, 0, 1, True),
        warnings=warnings,
        search=Search(
            seconds=0.42,
            workers=2,
            seed=0,
            policy=policy,
            stages=tuple(Stage(name, 0.0, proven, 0.1) for name in names),
            scale=1000,
            rounding_slack=0.01,
            interrupted=interrupted,
        ),
    )


def real_dump() -> Plan:
    """The real swarm with the truth about server4, and the one move that mends it."""
    rows = [
        Row("server1", (0, 33), (0, 33), 762.94, "host-a"),
        Row("server2", (33, 66), (33, 66), 696.53, "host-b"),
        Row("server3", (7, 40), (7, 40), 1440.34, "host-b"),
        Row("server4", (21, 40), (21, 40), 762.94, "host-b"),
        Row("server5", (40, 80), (40, 80), 1459.47, "host-b"),
        Row("server6", (47, 57), (20, 30), 2069.19, "host-c"),
        Row("server7", (60, 80), (60, 80), 741.02, None, movable=False, why_not="pinned by its agent"),
    ]
    return plan_of(rows, 80, warnings=("no server follows plans here: this plan is advice only",))


def with_waves(plan: Plan) -> Plan:
    """The same plan, its moves one after the other."""
    moves = [server.peer_id for server in plan.moves]
    servers = tuple(
        replace(server, wave=moves.index(server.peer_id) if server.peer_id in moves else None)
        for server in plan.servers
    )
    return replace(plan, servers=servers, waves=tuple(Wave((peer_id,), 0.0, 0.0) for peer_id in moves))


def _planned(row: Row) -> PlannedServer:
    current = Span(*row.current) if row.current else None
    target = Span(*row.target) if row.target else None
    held, wanted = set(range(*(row.current or (0, 0)))), set(range(*(row.target or (0, 0))))
    loaded = tuple(sorted(wanted - held))
    return PlannedServer(
        peer_id=row.peer_id,
        public_name=row.name,
        movable=row.movable,
        why_not=row.why_not,
        state="online" if current else "waiting",
        throughput=row.throughput,
        current=current,
        target=target,
        loaded=loaded,
        dropped=tuple(sorted(held - wanted)),
        kept=len(held & wanted),
        reload_seconds=SECONDS_PER_BLOCK * len(loaded),
        wave=0 if current != target else None,
    )
