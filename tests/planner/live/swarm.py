"""A private DHT of real hivemind nodes on this machine, and servers' records in it, stored as Petals stores them."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import psutil

LIFETIME = 300.0
"""Seconds for which records live here: no test takes as long."""


@dataclass(frozen=True)
class Raw:
    """One thing to store; `subkey` None is a plain value. `packed` goes on the wire as it is."""

    key: str
    subkey: Any
    value: Any = None
    lifetime: float = LIFETIME
    packed: bytes | None = None


@dataclass(frozen=True)
class FakeServer:
    """What a Petals server announces of itself."""

    peer_id: str
    start: int
    end: int
    throughput: float = 100.0
    state: int = 2
    stated: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    def records(self, prefix: str, lifetime: float = LIFETIME) -> list[Raw]:
        """One record a block, the value as `petals.data_structures.ServerInfo.to_tuple` makes it."""
        info = {
            "start_block": self.start if self.stated else None,
            "end_block": self.end if self.stated else None,
            "public_name": f"name of {self.peer_id[-4:]}",
            "version": "2.2.0.post1",
            "network_rps": 1000.0,
            "forward_rps": 10000.0,
            "inference_rps": 100.0,
            "adapters": (),
            "torch_dtype": "float16",
            "quant_type": "nf4",
            "using_relay": False,
            "cache_tokens_left": 4096,
            "next_pings": {f"12D3KooW{index:044d}": 0.05 * index for index in range(10)} | {"far": float("inf")},
            **self.extra,
        }
        value = (self.state, self.throughput, info)
        return [Raw(f"{prefix}.{block}", self.peer_id, value, lifetime) for block in range(self.start, self.end)]


def peer_id(number: int) -> str:
    return f"12D3KooW{number:044d}"


def model(prefix: str, num_blocks: Any, repository: Any = "owner/name", lifetime: float = LIFETIME) -> Raw:
    return Raw("_petals.models", prefix, {"num_blocks": num_blocks, "repository": repository}, lifetime)


def random_servers(count: int, num_blocks: int, seed: int, *, stated: bool = True) -> list[FakeServer]:
    generator = random.Random(seed)
    servers = []
    for number in range(count):
        length = generator.randint(max(1, num_blocks // 16), num_blocks // 2)
        start = generator.randint(0, num_blocks - length)
        throughput = generator.choice([100.0, 250.5, 762.9375])
        servers.append(FakeServer(peer_id(number), start, start + length, throughput, stated=stated))
    return servers


class Swarm:
    """`size` DHT nodes in a thread of their own; `peers` is the address of the first."""

    def __init__(self, size: int = 4) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.nodes: list[Any] = []
        self.peers: list[str] = []
        self.do(self._start(size))

    def do(self, coroutine: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def later(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _start(self, size: int) -> None:
        from hivemind.dht.node import DHTNode

        for _ in range(size):
            node = await DHTNode.create(initial_peers=self.peers or None, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
            self.nodes.append(node)
            if not self.peers:
                self.peers = [str(address) for address in await node.get_visible_maddrs()]

    def fill(self, records: Iterable[Raw]) -> None:
        """Store records from one of the nodes, as a server would."""
        todo = list(records)
        for start in range(0, len(todo), 500):
            self.do(self._fill(todo[start : start + 500]))

    async def _fill(self, records: list[Raw]) -> None:
        now = time.time()
        stored = await self.nodes[-1].store_many(
            [raw.key for raw in records],
            [raw.value for raw in records],
            [now + raw.lifetime for raw in records],
            subkeys=[raw.subkey for raw in records],
        )
        assert all(stored.values()), [key for key, done in stored.items() if not done][:3]

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

    def close(self) -> None:
        async def close() -> None:
            for node in self.nodes:
                await node.shutdown()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.do(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


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
