"""A private DHT of real hivemind nodes on this machine, and servers' records in it, stored as Petals stores them."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

LIFETIME = 300.0
"""Seconds for which records live here: no test takes as long."""
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""What peer ids are written in."""
PINGS = 10
"""Servers that a Petals server measures and announces the round trips to."""


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
            "next_pings": {f"12D3KooW{index:044d}": 0.05 * index for index in range(PINGS)} | {"far": float("inf")},
            **self.extra,
        }
        value = (self.state, self.throughput, info)
        return [Raw(f"{prefix}.{block}", self.peer_id, value, lifetime) for block in range(self.start, self.end)]


def peer_id(number: int) -> str:
    return f"12D3KooW{number:044d}"


def model(prefix: str, num_blocks: Any, repository: Any = "owner/name", lifetime: float = LIFETIME) -> Raw:
    return Raw("_petals.models", prefix, {"num_blocks": num_blocks, "repository": repository}, lifetime)


def random_servers(count: int, num_blocks: int, seed: int, *, stated: bool = True) -> list[FakeServer]:
    """Servers as they are in the public swarm: their ids, names, figures and pings do not compress."""
    generator = random.Random(seed)

    def text(length: int) -> str:
        return "".join(generator.choices(BASE58, k=length))

    ids = [f"12D3KooW{text(44)}" for _ in range(count)]
    servers = []
    for name in ids:
        length = generator.randint(max(1, num_blocks // 16), num_blocks // 2)
        start = generator.randint(0, num_blocks - length)
        extra = {
            "public_name": text(generator.randint(4, 24)),
            **{rps: generator.uniform(100, 10_000) for rps in ("network_rps", "forward_rps", "inference_rps")},
            "cache_tokens_left": generator.randrange(2**20),
            "next_pings": {peer: generator.expovariate(10) for peer in generator.sample(ids, min(count, PINGS))},
        }
        servers.append(
            FakeServer(name, start, start + length, generator.uniform(100, 1000), stated=stated, extra=extra)
        )
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
        todo = sorted(records, key=lambda raw: raw.key)  # one call then takes many records of a key
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


def main() -> None:
    """Fill a swarm, print its addresses as a line of JSON, and keep it up until standard input ends."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("prefix")
    for name in ("servers", "blocks", "nodes"):
        parser.add_argument(name, type=int)
    parser.add_argument("lifetime", type=float)
    asked = parser.parse_args()
    swarm = Swarm(asked.nodes)
    try:
        servers = random_servers(asked.servers, asked.blocks, seed=2)  # leaves no block out
        records = [raw for server in servers for raw in server.records(asked.prefix, asked.lifetime)]
        swarm.fill([model(asked.prefix, asked.blocks, lifetime=asked.lifetime), *records])
        print(json.dumps(swarm.peers), flush=True)
        sys.stdin.read()
    finally:
        swarm.close()


@contextmanager
def apart(prefix: str, servers: int, blocks: int, nodes: int = 4, lifetime: float = LIFETIME) -> Iterator[list[str]]:
    """Give the addresses of a swarm of random servers that has a process of its own, as long as the context lasts.

    So its nodes share neither an event loop nor an interpreter's lock with whoever reads them.
    """
    command = [sys.executable, "-m", __name__, prefix, *map(str, (servers, blocks, nodes, lifetime))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the private swarm has ended before it was filled")
        yield json.loads(line)


if __name__ == "__main__":
    main()
