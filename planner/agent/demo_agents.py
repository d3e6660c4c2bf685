"""The same move twice on a terminal: by servers that follow a published plan, and as stock Petals makes it.

Both times a stock client generates through the swarm all the while, and the server that moves is asked for the blocks
that it keeps. What is said at the end was counted and timed here, in this run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner import Policy, make_plan
from planner.agent.demo_cost import Cost, table
from planner.agent.demo_swarm import DemoSwarm, DemoSwarmFailed, ServerSpec
from planner.agent.demo_witness import LENGTH, SETTINGS
from planner.keys import PublicKey, SigningKey, generate
from planner.live import read_live
from planner.plan import PlannedServer
from planner.published import PublishedPlan, read_plan
from planner.publishing import publish
from planner.status import ServerStatus, swarm_status
from solver.problem import Span

NUM_BLOCKS = 10
LAYOUT = (
    ServerSpec("alpha", 0, 4, 100.0),
    ServerSpec("bravo", 0, 8, 100.0),
    ServerSpec("charlie", 8, 10, 40.0),
)
"""40 RPS at the bottleneck, 100 when bravo has moved by two blocks: alpha would have to load four for as much."""
SECONDS_PER_BLOCK = 2.0
"""The tiny model's blocks load in no time; a server's really take from seconds to half a minute each."""
TEXTS_BEFORE, TEXTS_AFTER = 2, 1
"""Texts that the client generates before a move, to see what is usual, and when it is done."""
TIMEOUT = 300.0
"""Seconds for a move, until everything is seen at its target."""

Write = Callable[[str], None]


def run(
    write: Write = print,
    *,
    seconds_per_block: float = SECONDS_PER_BLOCK,
    leave_if_told: Callable[[], None] = lambda: None,
) -> tuple[Cost, Cost]:
    """Make the move twice and compare.

    Parameters
    ----------
    write
        Is given each line as it comes.
    seconds_per_block
        Waited before each block that is loaded, by either kind of server.
    leave_if_told
        Called every second: raises once more what a signal has raised, should that have been lost.

    Returns
    -------
    What the move has cost stock Petals, and what it has cost us.

    Raises
    ------
    DemoSwarmFailed
        If a swarm does not come up, a server breaks down, or a move does not come to its end.
    PetalsUnusable
        If Petals, or what it needs, is missing or does not fit.
    """
    layout = [replace(spec, seconds_per_block=seconds_per_block) for spec in LAYOUT]
    key = generate()
    settings = ", ".join(f"{name} {value:g}" for name, value in SETTINGS.items())
    write(f"A tiny Llama of {NUM_BLOCKS} blocks, real servers, and a stock client that generates")
    write("(it gives up sooner than by default:")
    write(f" {settings}).")
    write(f"Before each block that is loaded, by either server, {seconds_per_block:g} s are waited.")
    write("All of it takes about two minutes on an idle machine, and more on a busy one.")
    write("")
    write("1. Servers that follow signed plans (plan-swarm serve)")
    with DemoSwarm([replace(spec, trust=key.public.text()) for spec in layout], num_blocks=NUM_BLOCKS) as swarm:
        stage = _Stage(swarm, write, leave_if_told)
        plan = _plan(swarm)
        row = _only_move(plan, stage)
        ours = stage.measure(row, lambda: _publish(plan, key, stage), key.public)
    write("")
    write("2. The same move by stock Petals")
    with DemoSwarm(layout, num_blocks=NUM_BLOCKS) as swarm:
        stage = _Stage(swarm, write, leave_if_told)
        stock = stage.measure(row, lambda: _restart(swarm, row, write))
    write("")
    for line in table(stock, ours):
        write(line)
    return stock, ours


class _Stage:
    """A swarm that is up, and what is seen of it."""

    def __init__(self, swarm: DemoSwarm, write: Write, leave_if_told: Callable[[], None]) -> None:
        self.swarm, self.write, self._leave_if_told = swarm, write, leave_if_told
        self._shown: dict[str, str] = {}
        names = ", ".join(f"{name} {one.spec.start}:{one.spec.end}" for name, one in swarm.servers.items())
        write(f"   ONLINE: {names}.")
        swarm.generate()  # it takes seconds until the first token

    def measure(self, row: PlannedServer, begin: Callable[[], None], *trusted: PublicKey) -> Cost:
        """Have the move made while a client generates and the server is asked; what it has cost."""
        assert row.current is not None
        assert row.target is not None
        assert row.public_name is not None
        swarm, name = self.swarm, row.public_name
        kept = Span(max(row.current.start, row.target.start), min(row.current.end, row.target.end))
        targets = {spec.name: Span(spec.start, spec.end) for spec in LAYOUT} | {name: row.target}
        swarm.ask(name, kept.start, kept.end)
        self._wait_for("token", TEXTS_BEFORE * LENGTH)
        self._wait_for("answer", 1)
        begun = time.monotonic()
        begin()
        while not self._at(targets, trusted):
            if time.monotonic() > begun + TIMEOUT:
                raise DemoSwarmFailed(f"the move was not done within {TIMEOUT:g} s")
            self._pause()
        self._wait_for("token", TEXTS_AFTER * LENGTH, since=time.monotonic())
        return Cost.of(swarm.tidings, name, begun)

    def _at(self, targets: Mapping[str, Span], trusted: Sequence[PublicKey]) -> bool:
        """Whether all servers are where they should be, as anyone sees it in the DHT; what is new is written."""
        status = swarm_status(self.swarm.prefix, self.swarm.initial_peers, trusted, num_blocks=NUM_BLOCKS)
        rows = {row.public_name: row for row in status.servers}
        self._show(row for row in status.servers if row.public_name is not None)
        return all(
            name in rows and (rows[name].state, rows[name].present) == ("online", span)
            for name, span in targets.items()
        )

    def _show(self, rows: Iterable[ServerStatus]) -> None:
        for row in sorted(rows, key=lambda row: row.public_name or ""):
            name = row.public_name or ""
            said = f"{row.present or 'no blocks'}, {row.state}"
            said += f"; {row.agent}" if row.agent is not None else ""
            said += f", {row.why}" if row.agent is not None and row.why else ""
            if self._shown.get(name) != said:
                self._shown[name] = said
                self.write(f"   {name:<8} {said}")

    def _wait_for(self, event: str, count: int, since: float = 0.0) -> None:
        """Wait until so many of these have been seen that happened after `since`."""
        deadline = time.monotonic() + TIMEOUT
        while sum(_counts(one, event, since) for one in self.swarm.tidings) < count:
            if time.monotonic() > deadline:
                raise DemoSwarmFailed(f"the demo swarm waited too long for each {event}")
            self._pause()

    def _pause(self) -> None:
        self._leave_if_told()
        self.swarm.listen(1.0)


def _counts(one: Mapping[str, Any], event: str, since: float) -> bool:
    return bool(one["event"] == event and one["at"] > since and one.get("right", True))


def _plan(swarm: DemoSwarm) -> PublishedPlan:
    state = read_live(swarm.prefix, swarm.initial_peers, NUM_BLOCKS).state()
    return read_plan(make_plan(state, Policy(time_limit=5.0)).to_json())


def _only_move(plan: PublishedPlan, stage: _Stage) -> PlannedServer:
    """The move that the plan asks for: the layout leaves no other."""
    (row,) = plan.moves
    before, after = plan.before.min_throughput, plan.after.min_throughput
    stage.write(f"   The plan: {row.public_name} from {row.current} to {row.target}: {before:g} to {after:g} RPS.")
    return row


def _publish(plan: PublishedPlan, key: SigningKey, stage: _Stage) -> None:
    published = publish(plan, key, stage.swarm.initial_peers)
    stage.write(f"   Published under the key {key.public.text()},")
    stage.write(f"   with a heartbeat, under {len(published.taken)} subkeys.")
    stage.write("   A move that drops blocks waits half a minute:")


def _restart(swarm: DemoSwarm, row: PlannedServer, write: Write) -> None:
    assert row.public_name is not None
    assert row.target is not None
    write(f"   {row.public_name} is told to hold {row.target}; all else it does as when it rebalances by itself.")
    swarm.move(row.public_name, row.target.start, row.target.end)
