"""One look at the swarm: the plans of trusted keys, the swarm's state, and what peers answer when they are asked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.agent.clocks import ahead
from planner.agent.confirm import ask
from planner.agent.follow import Ask, Step, View, decide
from planner.agent.memory import Memory
from planner.agent.record import read_intents
from planner.envelope import Heartbeat, Verified
from planner.errors import NothingToPlan
from planner.keys import PublicKey
from planner.live import read_from
from planner.node import client_node
from planner.plan_records import Found, Judged, fetch_plans, judge
from planner.sealing import OUTDATED
from solver.problem import Span

ROUNDS = 3
"""How often peers are asked in one look: answers may lead to further questions."""


@dataclass(frozen=True)
class Plans:
    """What the trusted keys have published.

    Parameters
    ----------
    plan, heartbeat
        The plan (or the revoke) that counts, and what lets its moves begin.
    memory
        With every epoch that was seen: to be saved before the plan is followed.
    refused
        One line for each key's records that were refused, by reason.
    """

    plan: Verified | None
    heartbeat: Heartbeat | None
    memory: Memory
    refused: tuple[str, ...] = ()

    def has(self, peer_id: str) -> bool:
        """Whether the plan that counts has this server; a revoke has none."""
        plan = self.plan.plan if self.plan is not None else None
        return plan is not None and any(server.peer_id == peer_id for server in plan.servers)


def choose(
    found: Mapping[str, Found], trusted: Sequence[PublicKey], memory: Memory, now: float, files: Sequence[bytes] = ()
) -> Plans:
    """Choose the plan that counts: that of the first trusted key that has one which holds.

    Parameters
    ----------
    found
        By key id what stands in the DHT.
    memory
        The epochs that were seen, and the envelopes of the last plans, which hold while the DHT is silent.
    now
        Unix time.
    files
        Envelopes from elsewhere, such as ``--plan FILE``.
    """
    chosen: Judged | None = None
    refused: list[str] = []
    for key in trusted:
        known = memory.keys.get(key.key_id)
        others = [*files, *([known.envelope] if known is not None else [])]
        here = found.get(key.key_id, Found(key.key_id, {}))
        here = replace(here, records={**here.records, **{f"#{n}": (value, now) for n, value in enumerate(others)}})
        last = (known.epoch, known.payload_hash) if known is not None else None
        judged = judge(here, key, memory.prefix, now, last)
        refused += [f"key {key.key_id[:8]}: {reason}" for reason in _reasons(judged)]
        if judged.plan is not None:
            memory = memory.with_plan(judged.plan, here.records[judged.intact[0]][0])
            chosen = chosen or judged
    if chosen is None:
        return Plans(None, None, memory, tuple(refused))
    return Plans(chosen.plan, chosen.heartbeat, memory, tuple(refused))


def _reasons(judged: Judged) -> list[str]:
    """What was refused, each reason once; what the operator's own later records have outdated is no news."""
    news = [refusal for _, refusal in judged.refusals if refusal.reason not in OUTDATED]
    return sorted({str(refusal) for refusal in news})


@dataclass(frozen=True)
class Seen:
    """What a look has come to."""

    step: Step
    plans: Plans


async def look(
    initial_peers: Sequence[str],
    num_blocks: int,
    memory: Memory,
    trusted: Sequence[PublicKey],
    view: View,
    *,
    files: Sequence[bytes] = (),
    timeout: float = 30.0,
    save: Callable[[Memory], None] = lambda _memory: None,
) -> Seen:
    """Look, and decide what to do.

    Parameters
    ----------
    view
        What this server knows of itself; the rest of it is filled in here.
    save
        Is given the memory before a plan that it has not seen before is followed.

    Raises
    ------
    SwarmUnreachable
        If no node of the swarm answers in time.
    """
    async with client_node(initial_peers, timeout) as node:
        found = await fetch_plans(node, memory.prefix, [key.key_id for key in trusted])
        plans = choose(found, trusted, memory, time.time(), files)
        if plans.memory != memory:
            save(plans.memory)
        # Before the reading, which is not to be old when it is acted upon.
        clocks = await _clocks(node, view.peer_id, plans.plan)
        try:
            reading = await read_from(node, memory.prefix, num_blocks)
            state = reading.state()
        except NothingToPlan:
            reading, state = None, None
        agents = reading.agents if reading is not None else ()
        view = replace(
            view,
            plan=plans.plan,
            heartbeat=plans.heartbeat,
            state=state,
            partial=reading is not None and reading.partial,
            intents=read_intents(agents, num_blocks, time.time()),
            ahead=clocks,
        )
        step = decide(replace(view, now=time.time()))
        for _ in range(ROUNDS):
            if not isinstance(step, Ask):
                break
            asked_at = time.time() if view.asked_at is None else view.asked_at
            spans: dict[str, Span | None] = {peer: _announced(state, peer) for peer in step.peers}
            answers = await ask(_protocol(node).p2p, memory.prefix, spans)
            view = replace(view, confirmed={**view.confirmed, **answers}, asked_at=asked_at)
            step = decide(replace(view, now=time.time()))
    return Seen(step, plans)


async def _clocks(node: Any, peer_id: str, plan: Verified | None) -> float | None:
    """How far the clocks of the plan's servers are ahead; without a plan, those of the nodes that were met."""
    protocol = _protocol(node)
    if plan is not None and plan.plan is not None:
        peers = [server.peer_id for server in plan.plan.servers]
    else:
        peers = [peer.to_base58() for peer in protocol.routing_table.peer_id_to_uid]
    others = [peer for peer in peers if peer != peer_id]
    return await ahead(protocol, random.sample(others, len(others)))


def _announced(state: Any, peer_id: str) -> Span | None:
    return next((server.span for server in state.servers if server.peer_id == peer_id), None) if state else None


def _protocol(node: Any) -> Any:
    return node._node.protocol
