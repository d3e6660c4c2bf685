"""Swarms to publish plans into, and strangers who write there as well."""

from __future__ import annotations

import itertools
import time

from planner import Policy, make_plan
from planner.keys import generate
from planner.live import read_live
from planner.plan_records import plans_key
from planner.published import PublishedPlan, read_plan
from planner.sealing import Kind, seal
from tests.planner.live.swarm import FakeServer, Raw, Swarm, model, peer_id

_numbers = itertools.count()
AGENT = {"version": 1, "state": "serving", "span": (0, 2), "capacity": 2, "throughput": 10.0, "cached_blocks": []}


def fresh_prefix() -> str:
    return f"published-{next(_numbers)}-hf"


def fill(swarm: Swarm, prefix: str, throughput: float = 10.0, *, agents: bool = False) -> None:
    """Three servers on blocks 0 and 1, one on 2 and 3: one of the three should move."""
    servers = [FakeServer(peer_id(number), 0, 2, throughput) for number in range(3)]
    servers.append(FakeServer(peer_id(3), 2, 4, 5.0))
    records = [raw for server in servers for raw in server.records(prefix)]
    if agents:
        records += [
            Raw(f"_plan_swarm.agents.{prefix}", peer_id(number), {**AGENT, "why": "waits for\x1b the others"})
            for number in range(3)
        ]
    swarm.fill([model(prefix, 4), *records])


def planned(swarm: Swarm, prefix: str) -> PublishedPlan:
    reading = read_live(prefix, swarm.peers)
    plan = make_plan(reading.state(), Policy(time_limit=5.0, workers=1))
    assert plan.moves
    return read_plan(plan.to_json())


def overwrite(swarm: Swarm, prefix: str, key_id: str, subkeys, lifetime: float = 100_000.0) -> None:
    """A stranger puts its own plan, signed with its own key, into these subkeys."""
    envelope = seal(Kind.PLAN, {"prefix": prefix, "epoch": 2**52}, generate())
    swarm.fill([Raw(plans_key(prefix, key_id), subkey, envelope, lifetime) for subkey in subkeys])


def standing(swarm: Swarm, prefix: str, key_id: str) -> dict:
    """All subkeys that any node holds under a key's plans: what anybody can see."""
    from hivemind.dht.routing import DHTID

    key = DHTID.generate(source=plans_key(prefix, key_id))

    async def look():
        found: dict = {}
        for node in swarm.nodes:
            stored = node.protocol.storage.get(key)
            if stored is not None:
                found.update(dict(stored.value.items()))
        return found

    return {subkey: (item.value, item.expiration_time - time.time()) for subkey, item in swarm.do(look()).items()}
