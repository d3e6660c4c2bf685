"""Asking a DHT that anybody may write to, and storing in it, through hivemind's node."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.wire import DROPPED, MAX_KEY_BYTES, Memory, Unreadable, Wire, unpack

MAX_GET_BYTES = 2**27
"""Bytes of values that one `ClientNode.get` keeps, shared evenly by its keys."""
MAX_GET_PARTS = 4_000_000
"""Values inside values that one `ClientNode.get` keeps, shared evenly by its keys."""
MAX_PARTS_PER_KEY = 200_000
RPC_SECONDS = 3.0
"""Seconds after which a node that was asked counts as silent (hivemind's own default)."""
BATCH = 128
"""Keys that hivemind is asked for at once: its search takes quadratic time in them."""
WORKERS = 16
"""Nodes that are asked at the same time."""
CHUNK = 16
"""Keys that a node is asked for in one call, at most."""


@dataclass(frozen=True)
class RawKey:
    """What the DHT holds under a key, as strangers wrote it.

    Parameters
    ----------
    expiration
        Unix time at which the last of it expires.
    value
        The value itself, where the key holds no dictionary; else None. A value that cannot be read, here or in
        `subkeys`, is an `Unreadable`.
    subkeys
        Of a dictionary, each subkey's value and its expiration (Unix time); values are what `planner.wire.unpack`
        returns.
    dropped
        How many of its records were left out, by reason.
    is_dictionary
        Whether it has subkeys at all.
    """

    expiration: float
    value: Any = None
    subkeys: Mapping[str, tuple[Any, float]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    is_dictionary: bool = True


class ClientNode:
    """A joined client; `client_node` makes it.

    Attributes
    ----------
    calls, responses
        How many times other nodes were asked for keys, and how often one answered.
    """

    def __init__(self, node: Any, wire: Wire, peer_ids: Sequence[Any], deadline: float) -> None:
        self._node, self._wire, self._deadline = node, wire, deadline
        self._memory = Memory()
        self._bootstrap = [peer_id for peer_id in peer_ids if self._knows(peer_id)]
        self.calls = self.responses = 0
        node.protocol.call_find = self._counted(node.protocol.call_find)

    @property
    def remaining(self) -> float:
        """Seconds until the time it was given is over; never negative."""
        return max(0.0, self._deadline - time.monotonic())

    async def get(self, keys: Sequence[str], timeout: float | None = None) -> dict[str, RawKey | None]:
        """Ask for the newest records under `keys`, many at once.

        Parameters
        ----------
        keys
            The keys; they share the bounds `MAX_GET_BYTES` and `MAX_GET_PARTS` evenly.
        timeout
            Seconds; None and more than `remaining` mean `remaining`. Whatever has come by then is returned.

        Returns
        -------
        For each key whose search came to its end what was found; None where no node answered with anything. Nobody can
        tell a key that nobody has written from one whose nodes did not answer. Keys for which the time was too short
        are missing.
        """
        seconds = self.remaining if timeout is None else min(timeout, self.remaining)
        ends = time.monotonic() + seconds
        wanted = list(dict.fromkeys(keys))
        await self._rejoin(seconds)
        self._wire.most_bytes = min(MAX_KEY_BYTES, MAX_GET_BYTES // max(1, len(wanted)))
        most_parts = min(MAX_PARTS_PER_KEY, MAX_GET_PARTS // max(1, len(wanted)))
        found: dict[str, RawKey | None] = {}
        for start in range(0, len(wanted), BATCH):
            if (left := ends - time.monotonic()) > 0:
                found |= await self._get(wanted[start : start + BATCH], left, most_parts)
        return found

    async def _get(self, keys: list[str], seconds: float, most_parts: int) -> dict[str, RawKey | None]:
        futures = await self._node.get_many(keys, math.inf, num_workers=WORKERS, return_futures=True)
        try:
            await asyncio.wait(futures.values(), timeout=seconds)
        finally:
            for future in futures.values():
                future.cancel()  # ends the search; one that is done stays as it is
        return {
            key: _raw_key(future.result(), most_parts, self._memory)
            for key, future in futures.items()
            if not future.cancelled() and future.exception() is None
        }

    async def store(self, key: str, subkey: str | None, value: object, expiration: float) -> bool:
        """Store a value; whether some node took it.

        None does if it has a newer record, or if no time is left.
        """
        stored = self._node.store(key, value, float(expiration), subkey=subkey, exclude_self=True)
        try:
            return bool(await asyncio.wait_for(stored, self.remaining))
        except asyncio.TimeoutError:
            return False

    def _counted(self, call_find: Any) -> Any:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            response = await call_find(*args, **kwargs)
            self.responses += bool(response)
            return response

        return counted

    def _knows(self, peer_id: Any) -> bool:
        return self._node.protocol.routing_table.get(peer_id=peer_id) is not None

    async def _rejoin(self, seconds: float) -> None:
        """Greet those initial peers again that hivemind has forgotten: it does so after one call that failed."""
        forgotten = [peer_id for peer_id in self._bootstrap if not self._knows(peer_id)]
        pings = [asyncio.ensure_future(self._node.protocol.call_ping(peer_id)) for peer_id in forgotten]
        if pings:
            _, late = await asyncio.wait(pings, timeout=min(RPC_SECONDS, seconds / 2))
            for ping in late:
                ping.cancel()
            await asyncio.sleep(0)  # hivemind enters them into its table in tasks of their own


def calls_a_node(keys: int) -> int:
    """Return how many calls to each node one `ClientNode.get` of so many different keys makes, at most.

    hivemind asks a node for the square root of the keys at once, up to `CHUNK`, and never for a key twice.
    """
    batches = [min(BATCH, keys - start) for start in range(0, keys, BATCH)]
    return sum(-(-batch // min(math.isqrt(batch), CHUNK)) for batch in batches)


def _raw_key(result: Any, most_parts: int, memory: Memory) -> RawKey | None:
    """Make of what hivemind returns a `RawKey`, with values unpacked until there are `most_parts`."""
    if result is None:
        return None
    value, expiration = result
    if not isinstance(value, dict):
        return RawKey(float(expiration), unpack(value), is_dictionary=False)
    dropped = dict(value.pop(DROPPED, (None, 0.0))[0] or {})
    subkeys: dict[str, tuple[Any, float]] = {}
    for subkey, (packed, expires) in value.items():
        unpacked, parts = memory.unpack(packed)
        if parts > most_parts:
            unpacked, parts = Unreadable("too many values under one key"), 0
        most_parts -= parts
        subkeys[subkey] = (unpacked, expires)
    return RawKey(float(expiration), None, subkeys, dropped)
