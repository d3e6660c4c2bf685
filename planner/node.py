"""A client of the swarm's DHT in this process: the only place that starts hivemind.

It stores nothing in the DHT by reading: it neither serves nor caches, here or on other nodes. Its p2pd, the libp2p
daemon that hivemind starts, ends with it in every way out. hivemind imports torch, which takes seconds, so that both
are imported when a node is wanted and not before.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from planner.addresses import EXAMPLE, wrong_with
from planner.dht_client import CHUNK, RPC_SECONDS, WORKERS, ClientNode, RawKey
from planner.errors import PolicyInvalid, SwarmUnreachable
from planner.text import escape, some
from planner.wire import Entries, Wire

__all__ = ["PETALS_INITIAL_PEERS", "ClientNode", "RawKey", "check_addresses", "client_node"]

PETALS_INITIAL_PEERS = (
    "/dns/bootstrap1.petals.dev/tcp/31337/p2p/QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY",
    "/dns/bootstrap2.petals.dev/tcp/31338/p2p/QmQGTqmM7NKjV6ggU1ZCap8zWiyKR89RViDXiqehSiCpY5",
    "/dns6/bootstrap1.petals.dev/tcp/31337/p2p/QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY",
    "/dns6/bootstrap2.petals.dev/tcp/31338/p2p/QmQGTqmM7NKjV6ggU1ZCap8zWiyKR89RViDXiqehSiCpY5",
    "/ip4/159.89.214.152/tcp/31337/p2p/QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY",
    "/ip4/159.203.156.48/tcp/31338/p2p/QmQGTqmM7NKjV6ggU1ZCap8zWiyKR89RViDXiqehSiCpY5",
)
"""The bootstrap peers of Petals' public swarm (`petals.constants.PUBLIC_INITIAL_PEERS` of petals 2.2.0.post1)."""

ATTEMPTS = 2
"""How often joining is tried: the first packets to a far peer may be lost."""

_CHECK = "check the network, the addresses, and that those nodes are up"


@asynccontextmanager
async def client_node(initial_peers: Sequence[str], timeout: float = 30.0) -> AsyncIterator[ClientNode]:
    """Join the swarm as a client, for as long as the context lasts.

    Parameters
    ----------
    initial_peers
        Multiaddresses of nodes that are in the swarm's DHT, each ending in ``/p2p/`` and a peer id.
    timeout
        Seconds for joining and everything that is asked after. Importing hivemind (seconds) is not counted.

    Raises
    ------
    PolicyInvalid
        If an address is malformed.
    SwarmUnreachable
        If hivemind is not installed, or none of the peers answers in time.
    """
    peers = check_addresses(initial_peers)
    hivemind = _hivemind()
    deadline = time.monotonic() + timeout
    started: list[Any] = []
    with _silenced():
        try:
            yield await _join(hivemind, peers, started, deadline)
        finally:
            await _end(started)


def check_addresses(initial_peers: Sequence[str]) -> list[str]:
    """List the addresses, each once.

    Raises
    ------
    PolicyInvalid
        If there is none, or one is not the multiaddress of a peer.
    """
    peers = list(dict.fromkeys(peer.strip() for peer in initial_peers))
    if not peers:
        raise PolicyInvalid("no initial peer is given; name a node of the swarm with --initial-peers")
    for peer in peers:
        if (wrong := wrong_with(peer)) is not None:
            raise PolicyInvalid(f"the initial peer '{escape(peer, 100)}': {wrong}; write it like {EXAMPLE}")
    return peers


@dataclass(frozen=True)
class _Hivemind:
    """The names of hivemind that are used here."""

    node: Any
    p2p: Any
    peer_id: Any
    dumps: Any
    dictionary: Any


@functools.cache
def _hivemind() -> _Hivemind:
    try:
        serializer = import_module("hivemind.utils.serializer").MSGPackSerializer
        p2p = import_module("hivemind.p2p")
        return _Hivemind(
            import_module("hivemind.dht.node").DHTNode,
            p2p.P2P,
            p2p.PeerID,
            serializer.dumps,
            import_module("hivemind.dht.storage").DictionaryDHTValue,
        )
    except (ImportError, AttributeError) as error:
        raise SwarmUnreachable(
            f"reading a live swarm needs hivemind 1.1.12, which does not load here ({escape(str(error), 100)}); "
            "install it, or plan from a dump with --dump"
        ) from error


async def _join(hivemind: _Hivemind, peers: list[str], started: list[Any], deadline: float) -> ClientNode:
    tried = f"tried {some(peers, 3)}"
    while True:
        seconds = max(0.1, deadline - time.monotonic())
        try:
            return await asyncio.wait_for(_join_once(hivemind, peers, started, deadline), seconds)
        except asyncio.TimeoutError:
            raise SwarmUnreachable(f"no initial peer answered within the time; {tried}; {_CHECK}") from None
        except Exception as error:  # hivemind raises what it likes
            again = len(started) < ATTEMPTS and deadline - time.monotonic() > 2 * RPC_SECONDS
            if not again:
                raise SwarmUnreachable(f"{_reason(error)}; {tried}; {_CHECK}") from error
        await asyncio.sleep(0.5)


async def _join_once(hivemind: _Hivemind, peers: list[str], started: list[Any], deadline: float) -> ClientNode:
    def remember(self: Any) -> None:
        hivemind.p2p.__init__(self)
        started.append(self)

    # A subclass, for a hold on the daemon from its first moment: create() may fail with the process running.
    daemon: Any = type("Daemon", (hivemind.p2p,), {"__init__": remember})
    p2p = await daemon.create(
        initial_peers=peers,
        dht_mode="client",
        no_listen=True,
        auto_nat=False,
        nat_port_map=False,
        startup_timeout=max(1.0, deadline - time.monotonic()),
    )
    node = await hivemind.node.create(
        p2p=p2p,
        initial_peers=peers,
        client_mode=True,
        wait_timeout=RPC_SECONDS,
        num_workers=WORKERS,
        chunk_size=CHUNK,
        blacklist_time=0,  # a node that chokes on one hostile key is still good for the others
        reuse_get_requests=False,
        # Each of these stores what was read, here or on other nodes.
        cache_locally=False,
        cache_nearest=0,
        cache_on_store=False,
        cache_refresh_before_expiry=0,
    )

    def as_dictionary(entries: Entries) -> Any:
        dictionary = hivemind.dictionary()
        dictionary.store, dictionary.items, dictionary.maxsize = entries.store, entries.items, entries.maxsize
        return dictionary

    wire = Wire(hivemind.dumps, as_dictionary)
    node.protocol.serializer = wire
    peer_ids = [hivemind.peer_id.from_base58(peer.rpartition("/")[2]) for peer in peers]
    return ClientNode(node, wire, list(dict.fromkeys(peer_ids)), deadline)


def _reason(error: Exception) -> str:
    text = str(error)
    if "failed to connect to bootstrap peers" in text:
        return "no initial peer could be connected to"
    if "none of the initial_peers responded" in text:
        return "no initial peer answered as a node of a DHT"
    if "local time must be within" in text:
        return "this machine's clock and that of an initial peer differ by over 3 s: set both by NTP"
    return f"hivemind could not start ({escape(text.strip() or type(error).__name__, 120)})"


async def _end(started: Sequence[Any]) -> None:
    """End all daemons, by force if they do not go; also while being cancelled again."""
    for p2p in started:
        with suppress(AttributeError):  # it was never started
            p2p._terminate()
    for child in [p2p._child for p2p in started if p2p._child is not None]:
        try:
            await asyncio.wait_for(child.wait(), 2.0)
        except BaseException as error:
            with suppress(ProcessLookupError):
                child.kill()
            if not isinstance(error, asyncio.TimeoutError):
                raise
            await child.wait()


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep hivemind, p2pd and asyncio from writing over the progress line; whatever matters is raised.

    asyncio complains of an unknown child where a daemon ends by itself just as it is told to: sending the signal then
    collects the exit status that asyncio's watcher is waiting for.
    """
    loggers = [logging.getLogger(name) for name in ("hivemind", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
