"""A thousand servers: all demands at once are kept, and the plan is the same whatever the workers."""

from __future__ import annotations

import pytest

from benchmarks.churn import swarm
from planner.planning import make_plan
from planner.policy import Policy
from planner.state import Server, SwarmState
from solver.problem import Span
from tests.planner.build import NOW, online, recount, timeless, waiting

BLOCKS, SERVERS, LONGEST, OTHERS = 126, 1000, 32, 12
NEWCOMERS, DRAINED, CORDONED, PINNED = (range(first, first + 20) for first in (0, 20, 40, 60))
DEMANDS = {
    "movable": "all",
    "cordons": tuple(f"peer{number:03d}" for number in CORDONED),
    "drains": tuple(f"peer{number:03d}" for number in DRAINED),
    "pins": tuple((f"peer{number:03d}", Span(number, number + 2)) for number in PINNED),
    "max_moves": 300,
    "max_loads": 2000,
    "min_replicas": 10,
    "max_hops": 4,
}


@pytest.fixture(scope="module")
def state() -> SwarmState:
    """One of twenty holds a quarter of the model, all others less: a short chain must be made."""
    return SwarmState("model", BLOCKS, NOW, tuple(_servers()), ())


def _servers() -> list[Server]:
    servers = []
    for number, (span, rps) in enumerate(swarm(BLOCKS, SERVERS, 5)):
        longest = 2 if number in PINNED else LONGEST if number % 20 == 5 else OTHERS
        name, length = f"peer{number:03d}", min(span.length, longest)
        start = min(span.start, BLOCKS - length)
        rule = {"forward_rps": rps * (length + 1) / 2}  # so that Petals' rule gives this RPS at this length
        servers.append(
            waiting(name, length, rps) if number in NEWCOMERS else online(name, start, start + length, rps, **rule)
        )
    return servers


@pytest.mark.parametrize("resize", [False, True], ids=["kept", "free"])
def test_all_demands_at_once(state: SwarmState, resize: bool) -> None:
    plan = make_plan(state, Policy(resize=resize, min_span=1 + resize, time_limit=25.0, **DEMANDS), now=NOW)
    document = recount(plan, state)  # which looks at every demand by itself
    assert (plan.after.holes, plan.status) == (0, "feasible")
    assert document["after"]["hops"] <= DEMANDS["max_hops"] < document["before"]["hops"]
    assert plan.after.min_throughput > 1.05 * plan.before.min_throughput
    assert 0 < len(plan.moves) <= DEMANDS["max_moves"]
    assert plan.blocks_loaded <= DEMANDS["max_loads"]
    replicas = [0] * BLOCKS
    for server in plan.servers:
        for block in range(*(server.target or (0, 0))):
            replicas[block] += 1
    assert min(replicas) >= DEMANDS["min_replicas"]


def test_the_same_bytes_whatever_the_workers(state: SwarmState) -> None:
    one, two, four = (
        timeless(make_plan(state, Policy(movable="all", time_limit=2.0, deterministic=True, workers=workers), now=NOW))
        for workers in (1, 2, 4)
    )
    assert one == two == four
