"""Asking peers themselves what they serve: a connection proves a peer id, and a record in the DHT proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from planner.agent.compat import prepare

prepare()

from hivemind.p2p import PeerID  # noqa: E402
from hivemind.proto import runtime_pb2  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402

from solver.problem import Span  # noqa: E402

TIMEOUT = 5.0
"""Seconds that a peer has for answering."""
AT_ONCE = 32
"""Questions that are open at the same time."""


async def ask(p2p: Any, prefix: str, announced: Mapping[str, Span | None]) -> dict[str, Span | None]:
    """Ask each peer for each block that it announces; what each really serves.

    Parameters
    ----------
    p2p
        hivemind's `P2P` of a node that has joined the swarm.
    announced
        By peer id the span to ask for.

    Returns
    -------
    By peer id the longest run of those blocks that it has answered for; None where it has answered for none.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def serves(stub: Any, block: int) -> bool:
        async with room:
            try:
                await stub.rpc_info(runtime_pb2.ExpertUID(uid=f"{prefix}.{block}"), timeout=TIMEOUT)
            except Exception:  # it says no, or nothing, in whatever way
                return False
            return True

    async def served(peer_id: str, span: Span | None) -> Span | None:
        if span is None:
            return None
        try:
            stub = TransformerConnectionHandler.get_stub(p2p, PeerID.from_base58(peer_id))
        except Exception:  # it is no peer id
            return None
        blocks = range(*span)
        return _longest_run(span, await asyncio.gather(*(serves(stub, block) for block in blocks)))

    peers = list(announced)
    spans = await asyncio.gather(*(served(peer_id, announced[peer_id]) for peer_id in peers))
    return dict(zip(peers, spans, strict=True))


def _longest_run(span: Span, answers: list[bool]) -> Span | None:
    best, start = None, None
    for block, answer in zip((*range(*span), span.end), (*answers, False), strict=True):
        if answer and start is None:
            start = block
        elif not answer and start is not None:
            if best is None or block - start > best.length:
                best = Span(start, block)
            start = None
    return best
