"""The private swarm that the benchmarks use too, with what only tests do to it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import psutil

from benchmarks import private_swarm
from benchmarks.private_swarm import FakeServer, Raw, model, peer_id, random_servers

__all__ = ["FakeServer", "Raw", "Swarm", "daemons", "model", "peer_id", "random_servers"]


class Swarm(private_swarm.Swarm):
    """Nodes that can be spoiled and looked into."""

    def plant(self, records: Iterable[Raw]) -> None:
        """Put bytes into every node's storage that no honest node would have packed."""
        from hivemind.dht.routing import DHTID

        async def plant() -> None:
            for raw in records:
                for node in self.nodes:
                    node.protocol.storage.store(
                        DHTID.generate(source=raw.key), raw.packed, time.time() + raw.lifetime, subkey=raw.subkey
                    )

        self.do(plant())

    def holdings(self) -> list[dict[Any, Any]]:
        """List all that every node holds, stored or cached: key, subkeys and expirations."""

        async def holdings() -> list[dict[Any, Any]]:
            found = []
            for node in self.nodes:
                of_node: dict[Any, Any] = {}
                for name in ("storage", "cache"):
                    for key, (value, expiration) in getattr(node.protocol, name).items():
                        subkeys = sorted(repr(item) for item in value.items()) if hasattr(value, "items") else value
                        of_node[name, key] = (expiration, subkeys)
                of_node["peers"] = sorted(map(str, node.protocol.routing_table.peer_id_to_uid))
                found.append(of_node)
            return found

        return self.do(holdings())


def daemons(of: int | None = None) -> set[int]:
    """List the process ids of all p2pd below this process, or below `of`."""
    found = set()
    for child in psutil.Process(of).children(recursive=True):
        try:
            if child.name() == "p2pd" and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found
