"""What a server says of its blocks in the DHT: stored at once when it changes, and again before it expires."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.agent.compat import prepare

prepare()

from hivemind import get_dht_time  # noqa: E402
from petals.constants import DTYPE_MAP  # noqa: E402
from petals.data_structures import ServerState  # noqa: E402
from petals.utils.dht import declare_active_modules, get_remote_module_infos  # noqa: E402
from petals.utils.misc import get_size_in_bytes  # noqa: E402
from petals.utils.ping import PingAggregator  # noqa: E402
from petals.utils.random import sample_up_to  # noqa: E402

from planner.live import AGENTS_KEY  # noqa: E402
from solver.problem import Span  # noqa: E402

logger = logging.getLogger(__name__)

MODELS_KEY = "_petals.models"
MAX_PINGED = 5
PAUSE = 1.0
"""Seconds between two tries to store what the DHT did not take."""


@dataclass(frozen=True)
class Said:
    """What is said of a run of blocks: ``"ONLINE"``, ``"JOINING"`` or ``"OFFLINE"``, and the span that is stated."""

    blocks: Span
    state: str
    stated: Span


class Announcer(threading.Thread):
    """Stores a server's block records and its agent's record.

    Parameters
    ----------
    server
        The Petals server, which has a DHT and a `ServerInfo`.
    throughput
        Of a span's length: what a server with so many blocks announces, RPS.
    cache_bytes_left
        Bytes of attention cache that are free now.
    record
        The agent's record as it is now; None where the server has none.
    """

    def __init__(
        self,
        server: Any,
        throughput: Callable[[int], float],
        cache_bytes_left: Callable[[], int],
        record: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(daemon=True, name="announcer")
        self._server, self._throughput, self._cache_bytes_left = server, throughput, cache_bytes_left
        self._record = record
        self._said: tuple[Said, ...] = ()
        self._storing = threading.Lock()
        self._wake, self._ending = threading.Event(), threading.Event()
        self._pings = PingAggregator(server.dht)
        bytes_per_token = server.block_config.hidden_size * get_size_in_bytes(DTYPE_MAP[server.server_info.torch_dtype])
        self._bytes_per_token = bytes_per_token // server.block_config.num_key_value_groups

    def say(self, said: Sequence[Said], timeout: float) -> bool:
        """Store this from now on, in place of what was said before, and try until all of it is stored.

        Returns
        -------
        Whether it is, within `timeout` seconds. What is OFFLINE is not said again once it is stored.
        """
        deadline = time.monotonic() + timeout
        with self._storing:
            if self._ending.is_set():
                return False
            self._said = tuple(said)
        return self._store_until(deadline)

    def refresh(self) -> None:
        """Store the agent's record soon, as it has changed."""
        self._wake.set()

    def run(self) -> None:
        """Store what is said every `update_period` seconds of the server, until `end`."""
        due = 0.0
        while not self._ending.is_set():
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + self._server.update_period
                    self._ping()
                    self._store()
                    self._store_model()
                self.store_record()
            except Exception as error:  # the DHT's process may be going down
                logger.warning("announcing failed: %s", error)
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()

    def end(self, timeout: float) -> None:
        """Say that everything is OFFLINE, and nothing any more."""
        deadline = time.monotonic() + timeout
        with self._storing:
            self._ending.set()
            self._said = tuple(replace(one, state="OFFLINE") for one in self._said)
        self._store_until(deadline)
        self._wake.set()
        self.join(timeout)

    def _store_until(self, deadline: float) -> bool:
        while not (stored := self._store()) and time.monotonic() + PAUSE < deadline:
            time.sleep(PAUSE)
        if not stored or time.monotonic() > deadline:
            return False
        with self._storing:
            self._said = tuple(one for one in self._said if one.state != "OFFLINE")
        return True

    def _store(self) -> bool:
        """Store what is said; whether the swarm has taken all of it."""
        with self._storing:
            stored = [self._store_one(one) for one in self._said]
        return all(stored)

    def _store_one(self, one: Said) -> bool:
        info = replace(
            self._server.server_info,
            state=ServerState[one.state],
            throughput=self._throughput(one.stated.length),
            start_block=one.stated.start,
            end_block=one.stated.end,
            cache_tokens_left=max(0, self._cache_bytes_left()) // self._bytes_per_token,
        )
        uids = [f"{self._server.dht_prefix}.{block}" for block in range(*one.blocks)]
        expiration = get_dht_time() + self._server.expiration
        try:
            return all(declare_active_modules(self._server.dht, uids, info, expiration).values())
        except Exception as error:  # the DHT's process may be going down
            logger.warning("announcing %s failed: %s", one, error)
            return False

    def _store_model(self) -> None:
        prefix = self._server.dht_prefix
        if self._said and not prefix.startswith("_"):  # not private
            self._server.dht.store(
                MODELS_KEY, self._server.model_info.to_dict(), get_dht_time() + self._server.expiration, subkey=prefix
            )

    def store_record(self) -> bool:
        """Store the agent's record now; whether the swarm has taken it."""
        if self._record is None:
            return False
        return bool(
            self._server.dht.store(
                f"{AGENTS_KEY}{self._server.dht_prefix}",
                dict(self._record()),
                get_dht_time() + self._server.expiration,
                subkey=self._server.dht.peer_id.to_base58(),
            )
        )

    def _ping(self) -> None:
        """Measure the way to the servers that may follow in a chain, as Petals' servers do for its clients."""
        spans = [one.stated for one in self._said if one.state == "ONLINE"]
        if not spans:
            return
        span = spans[0]
        uids = [f"{self._server.dht_prefix}.{block}" for block in range(span.start + 1, span.end + 1)]
        *middle, last = get_remote_module_infos(self._server.dht, uids, latest=True)
        pinged = set(sample_up_to({peer for info in middle if info for peer in info.servers}, MAX_PINGED))
        pinged.discard(self._server.dht.peer_id)
        pinged |= set(sample_up_to(last.servers if last else {}, MAX_PINGED))
        self._pings.ping(list(pinged))
        self._server.server_info.next_pings = {
            peer_id.to_base58(): seconds for peer_id, seconds in self._pings.to_dict().items()
        }
