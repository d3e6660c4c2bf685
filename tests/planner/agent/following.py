"""Plans, views and whole swarms of agents that follow a plan, on a clock of their own.

`Swarm` knows what is true; each agent knows only what it reads, up to a refresh late, and what it is answered. It uses
nothing of `planner.agent` but `decide` and the types that go in and come out.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from planner.agent.follow import ANSWER_AGE, Ask, Go, Intend, Stay, View, decide
from planner.agent.record import Intent
from planner.envelope import Heartbeat, Verified
from planner.keys import generate
from planner.plan import Coverage, PlannedServer, Wave
from planner.published import PublishedPlan
from planner.state import Server, ServerState, SwarmState
from solver.problem import Span

NOW = 1_700_000_000.0
REFRESH = 60.0
PREFIX = "m"
PLAN_ID, EPOCH = "ab" * 16, 7
KEY = generate().public


def span(bounds):
    return None if bounds is None else Span(*bounds)


def outside(one, other):
    return tuple(b for b in range(*one or (0, 0)) if other is None or b not in range(*other))


def row(peer_id, current, target, rps=10.0, wave=0, after=(), **fields):
    """A server of a plan."""
    current, target = span(current), span(target)
    return PlannedServer(
        **{
            "peer_id": peer_id,
            "public_name": None,
            "movable": True,
            "why_not": None,
            "state": "online" if current else "waiting",
            "throughput": rps,
            "current": current,
            "target": target,
            "loaded": outside(target, current),
            "dropped": outside(current, target),
            "kept": len(outside(current, None)) - len(outside(current, target)),
            "reload_seconds": 0.0,
            "wave": wave if current != target else None,
            "after": tuple(after),
            **fields,
        }
    )


def plan_of(*rows, floor=0.0, num_blocks=8):
    rows = tuple(sorted(rows, key=lambda one: one.peer_id))
    moving = sorted({one.wave for one in rows if one.moves})
    waves = tuple(Wave(tuple(r.peer_id for r in rows if r.moves and r.wave == wave), 0.0, 0.0) for wave in moving)
    nothing = Coverage(0.0, 0, (), (0.0,) * num_blocks, None)
    return PublishedPlan(
        prefix=PREFIX,
        num_blocks=num_blocks,
        plan_id=PLAN_ID,
        status="optimal",
        created_at=NOW - 10,
        valid_until=NOW + 1e6,
        epoch=EPOCH,
        floor=floor,
        fingerprint="0" * 64,
        before=nothing,
        after=nothing,
        servers=rows,
        waves=waves,
        told=(),
        json="{}",
    )


def verified(plan, **fields):
    of = {"key": KEY, "prefix": PREFIX, "epoch": EPOCH, "plan_id": PLAN_ID, "created_at": NOW - 10}
    return Verified(**{**of, "valid_until": NOW + 1e6, "plan": plan, "payload_hash": "0" * 64, **fields})


def heartbeat(**fields):
    of = {"key": KEY, "prefix": PREFIX, "epoch": EPOCH, "plan_id": PLAN_ID, "issued_at": NOW - 1}
    return Heartbeat(**{**of, "fresh_until": NOW + 1e6, **fields})


def online(peer_id, start, end, rps=10.0, **fields):
    where = Span(start, end)
    return Server(peer_id, ServerState.ONLINE, where, rps, **{"serving": frozenset(range(*where)), **fields})


def state_of(*servers, num_blocks=8, read_at=NOW):
    return SwarmState(PREFIX, num_blocks, read_at, tuple(sorted(servers, key=lambda one: one.peer_id)))


# --- whole swarms


@dataclass
class Truth:
    """A server as it is: what it serves, since when it is down, and all that it has announced, with times."""

    peer_id: str
    rps: float
    serves: Span | None
    down_since: float | None = None
    life: int = 0
    records: list[tuple[float, Server | None]] = field(default_factory=list)
    intents: list[tuple[float, Intent | None]] = field(default_factory=list)
    done_at: float | None = None

    def answers(self):
        return self.serves if self.down_since is None else None


@dataclass
class World:
    """What may go wrong: all off by default.

    `lies` are forged servers and intents that agents read at random; `lost` is the chance that a peer does not answer,
    `partial` that a reading is partial; `crashes` says who goes down when, and after how long it is back.
    """

    seed: int = 0
    refresh: float = REFRESH
    skew: float = 0.0
    slow: bool = True
    forged_intents: bool = False
    forged_servers: bool = False
    lost: float = 0.0
    partial: float = 0.0
    crashes: tuple[tuple[str, float, float | None], ...] = ()


class FellBelow(AssertionError):
    """A move left a block with less than the plan's floor."""


class Swarm:
    """Agents that look, ask, announce and move, each at its own times."""

    def __init__(self, plan: PublishedPlan, loads: dict[str, float], world: World) -> None:
        self.plan, self.world, self.loads = plan, world, loads
        self.random = random.Random(world.seed)
        self.now = NOW
        self.rows = {one.peer_id: one for one in plan.servers}
        self.servers = {p: Truth(p, one.throughput, one.current) for p, one in self.rows.items()}
        self.clocks = {p: self.random.uniform(-world.skew, world.skew) for p in self.rows}
        self.events: list[tuple[float, int, Iterator[float]]] = []
        self.count = itertools.count()
        self.went: list[tuple[float, str]] = []
        self.why: dict[str, str] = {}
        for peer_id, one in self.servers.items():
            self.announce(peer_id, NOW - 10 * world.refresh)
            if self.rows[peer_id].moves:
                self.spawn(self.agent(peer_id), self.random.uniform(0, world.refresh))
            assert one.records
        for peer_id, at, back in world.crashes:
            self.spawn(self.crash(peer_id, back), at)

    def spawn(self, life: Iterator[float], delay: float) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.count), life))

    def run(self, seconds: float) -> Swarm:
        """Until nobody has anything to do, or the time is over."""
        end = self.now + seconds
        while self.events and not self.done and self.events[0][0] <= end:
            self.now, _, life = heapq.heappop(self.events)
            delay = next(life, None)
            if delay is not None:
                self.spawn(life, delay)
        return self

    @property
    def done(self) -> bool:
        return all(self.servers[one.peer_id].serves == one.target for one in self.plan.servers)

    # What a server does

    def announce(self, peer_id: str, when: float, joining: Span | None = None) -> None:
        one = self.servers[peer_id]
        if one.serves is None and joining is None:
            agent_only = Server(peer_id, ServerState.WAITING, None, one.rps)
            one.records.append((when, agent_only))
        elif joining is not None:
            serving = frozenset(range(*one.serves or (0, 0)))
            one.records.append((when, Server(peer_id, ServerState.JOINING, joining, one.rps, serving=serving)))
        else:
            one.records.append((when, online(peer_id, *one.serves, one.rps)))

    def crash(self, peer_id: str, back: float | None) -> Iterator[float]:
        one = self.servers[peer_id]
        one.down_since, one.life = self.now, one.life + 1
        yield 2 * self.world.refresh
        one.records.append((self.now, None))  # its records have expired
        if back is not None:
            yield back
            one.down_since = None
            self.announce(peer_id, self.now)
            if self.rows[peer_id].moves:
                self.spawn(self.agent(peer_id), 0.0)

    def agent(self, peer_id: str) -> Iterator[float]:
        world, one, life = self.world, self.servers[peer_id], self.servers[peer_id].life
        own: Intent | None = None
        draw = self.random.uniform if world.slow else lambda low, high: low
        alive = lambda: one.life == life  # noqa: E731  # who comes back after a crash is another process
        while alive():
            read_at = self.now
            reading, intents = self.read(peer_id)
            view = View(
                now=read_at + self.clocks[peer_id],
                peer_id=peer_id,
                span=one.serves,
                refresh=world.refresh,
                state=replace(reading, read_at=read_at + self.clocks[peer_id]),
                plan=verified(self.plan),
                heartbeat=heartbeat(),
                partial=self.random.random() < world.partial,
                intents=intents,
                own_intent=own,
            )
            yield draw(0.0, min(20.0, world.refresh / 2))
            view = replace(view, now=self.now + self.clocks[peer_id])
            step = decide(view)
            if isinstance(step, Ask):
                asked_at, answers = self.now, {}
                for other in step.peers:
                    answers[other] = None if self.random.random() < world.lost else self.servers[other].answers()
                yield draw(0.0, ANSWER_AGE - 0.1)
                now = self.now + self.clocks[peer_id]
                asked = {"confirmed": answers, "asked_at": asked_at + self.clocks[peer_id]}
                view = replace(view, now=now, **asked)
                step = decide(view)
                assert not isinstance(step, Ask)
            if not alive():
                return
            self.why[peer_id] = getattr(step, "why", "")
            if isinstance(step, Go):
                yield draw(0.0, 3.0)
                if not alive():
                    return
                one.intents.append((self.now, None))
                yield from self.move(peer_id, alive)
                return
            delay = self.random.uniform(0.8, 1.2) * world.refresh
            if isinstance(step, Intend):
                if step.intent != own:
                    yield draw(0.0, 2.0)
                    own = replace(step.intent, since=self.now + self.clocks[peer_id])
                    one.intents.append((self.now, own))
                delay = min(delay, max(0.0, step.again_at - self.now - self.clocks[peer_id]) + 0.1)
            elif own is not None:
                own = None
                one.intents.append((self.now, None))
            assert isinstance(step, (Stay, Intend))
            yield delay

    def move(self, peer_id: str, alive) -> Iterator[float]:
        one, target = self.servers[peer_id], self.rows[peer_id].target
        kept = None
        if one.serves is not None and target is not None and one.serves.overlap(target):
            kept = Span(max(one.serves.start, target.start), min(one.serves.end, target.end))
        dropped = outside(one.serves, target)
        one.serves = kept
        self.went.append((self.now, peer_id))
        self.check(peer_id, dropped)
        if target is None:
            one.records.append((self.now, None))
        else:
            self.announce(peer_id, self.now, joining=target)
            yield self.loads.get(peer_id, 0.0)
            if not alive():
                return
            one.serves = target
            self.announce(peer_id, self.now)
        one.done_at = self.now

    # What must hold

    def check(self, peer_id: str, dropped: tuple[int, ...]) -> None:
        # Who went down after it was asked counts: no agent could know.
        lately = self.now - ANSWER_AGE - 3.0
        for block in dropped:
            left = [
                other.rps
                for other in self.servers.values()
                if other.peer_id != peer_id and other.serves is not None and block in other.serves
                if other.down_since is None or other.down_since > lately
            ]
            ends_with_hole = all(one.target is None or block not in one.target for one in self.plan.servers)
            if math.fsum(left) < self.plan.floor * (1 - 1e-6) or not (left or ends_with_hole):
                raise FellBelow(f"{peer_id} left block {block} with {left}; the floor is {self.plan.floor}")

    # What an agent sees

    def read(self, peer_id: str) -> tuple[SwarmState, dict[str, Intent]]:
        # Asking begins up to so long after the reading.
        late = self.world.refresh - min(20.0, self.world.refresh / 2) if self.world.slow else 0.0
        servers, intents = [], {}
        for other, one in self.servers.items():
            seen = self.at(one.records, self.random.uniform(0.0, late))
            if seen is not None:
                servers.append(self.forge(seen) if self.world.forged_servers else seen)
            intent = self.at(one.intents, self.random.uniform(0.0, late))
            if self.world.forged_intents and self.random.random() < 0.9:
                intent = Intent(PLAN_ID, EPOCH, (Span(0, self.plan.num_blocks),), self.random.uniform(0, 2 * NOW))
            if intent is not None and other != peer_id:
                intents[other] = intent
        return state_of(*servers, num_blocks=self.plan.num_blocks), intents

    def at(self, said, late: float):
        return next((value for when, value in reversed(said) if when <= self.now - late), None)

    def forge(self, seen: Server) -> Server:
        if self.random.random() < 0.7 or seen.span is None:
            return seen
        start = self.random.randrange(self.plan.num_blocks)
        end = self.random.randrange(start, self.plan.num_blocks) + 1
        return online(seen.peer_id, start, end, self.random.choice([seen.throughput, 1e7]))
