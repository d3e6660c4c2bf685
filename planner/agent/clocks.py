"""Whether this machine's clock is that of the others: expirations, leases, intents and turns all rest on it."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

from planner.agent.compat import prepare

prepare()

from hivemind.p2p import PeerID  # noqa: E402
from hivemind.proto import dht_pb2  # noqa: E402

AT_MOST = 8
"""Peers that are asked."""
TIMEOUT = 5.0
"""Seconds that a peer has for answering."""


async def ahead(protocol: Any, peers: Sequence[str]) -> float | None:
    """How far other clocks are ahead of this one, as hivemind compares them.

    Parameters
    ----------
    protocol
        hivemind's `DHTProtocol` of a node that has joined the swarm.
    peers
        Peer ids; the first few are asked.

    Returns
    -------
    Seconds, the median of those that answer and of this clock itself, so that it takes more than half of them to find
    it off; of the two in the middle the one nearer 0. None where nobody answers.
    """

    async def ask(peer_id: str) -> float | None:
        try:
            request = dht_pb2.PingRequest(peer=protocol.node_info, validate=False)
            asked = time.time()
            answer = await protocol.get_stub(PeerID.from_base58(peer_id)).rpc_ping(request, timeout=TIMEOUT)
            answered = time.time()
        except Exception:  # it is no peer id, or says no, or nothing, in whatever way
            return None
        # Within the time that the answer took, no clock is off.
        seconds = float(min(0.0, answer.dht_time - asked) + max(0.0, answer.dht_time - answered))
        return seconds if math.isfinite(seconds) else None

    found = await asyncio.gather(*(ask(peer_id) for peer_id in peers[:AT_MOST]))
    known = [seconds for seconds in found if seconds is not None]
    return middle(known) if known else None


def middle(answers: Sequence[float]) -> float:
    """The median of these and 0, as `ahead` has it."""
    with_own = [*answers, 0.0]
    return min(statistics.median_low(with_own), statistics.median_high(with_own), key=abs)
