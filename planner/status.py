"""What stands in the swarm now: the plans that were published for it, and how far each server has followed them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InputInvalid, NothingToPlan
from planner.event_loop import run
from planner.keys import PublicKey
from planner.live import Progress, Reading, read_from
from planner.node import ClientNode, client_node
from planner.plan import PlannedServer
from planner.plan_records import Found, Index, Judged, fetch_index, fetch_plans, judge
from planner.published import PublishedPlan
from planner.sealing import Reason, Refusal
from planner.state import Server, SwarmState
from planner.text import escape
from solver.problem import Span

MAX_WHY = 300
KEPT = "kept from an earlier look"
"""Stands for the subkey of an envelope that this reader has seen before."""
GONE = "gone"
"""The state of a server that is in the plan and not in the swarm; the others' are those of `ServerState`."""
MAX_REFUSALS = 50
"""Refusals that are listed for a key: a stranger may cause any number."""


@dataclass(frozen=True)
class KeyStatus:
    """What stands under one key.

    Parameters
    ----------
    verdict
        ``"valid"``: a plan holds; ``"revoked"``; ``"overwritten"``: only strangers' records are left, and readers keep
        the last valid plan that they had; ``"expired"``: the key's plans have run out; ``"none"``: nothing is there.
    trusted
        Whether it is one of the keys that were named as trusted.
    envelope
        The signed plan (or revoke) that holds, for the next look to keep; None where none does.
    """

    key: PublicKey
    trusted: bool
    judged: Judged
    verdict: str
    fresh: bool
    envelope: bytes | None = None

    @property
    def plan(self) -> PublishedPlan | None:
        """The plan that holds."""
        return self.judged.plan.plan if self.judged.plan is not None else None

    @property
    def overwritten(self) -> bool:
        """Whether somebody puts records in the place of the operator's."""
        return bool(self.judged.overwritten) or self.judged.hidden or self.verdict == "overwritten"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        plan, heartbeat = self.judged.plan, self.judged.heartbeat
        return {
            "key": self.key.text(),
            "key_id": self.key.key_id,
            "trusted": self.trusted,
            "verdict": self.verdict,
            "fresh": self.fresh,
            "fresh_until": heartbeat.fresh_until if heartbeat is not None else None,
            "epoch": plan.epoch if plan is not None else None,
            "plan_id": plan.plan_id if plan is not None else None,
            "created_at": plan.created_at if plan is not None else None,
            "valid_until": plan.valid_until if plan is not None else None,
            "moves": len(self.plan.moves) if self.plan is not None else None,
            "subkeys": list(self.judged.intact),
            "somebody_overwrites": self.overwritten,
            "overwritten": list(self.judged.overwritten),
            "refusals": [
                {"subkey": subkey, "reason": refusal.reason.value, "detail": refusal.detail}
                for subkey, refusal in self.judged.refusals[:MAX_REFUSALS]
            ],
            "refused": len(self.judged.refusals),
            "problems": list(self.judged.problems),
        }


@dataclass(frozen=True)
class ServerStatus:
    """One server: where it is, where the plan wants it, and what its agent says.

    `agent` is None where it has none; `why` is why it is not at its target, in its agent's words or else ours.
    """

    peer_id: str
    public_name: str | None
    state: str
    present: Span | None
    target: Span | None
    planned: bool
    wave: int | None
    agent: str | None
    why: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **vars(self),
            "present": None if self.present is None else list(self.present),
            "target": None if self.target is None else list(self.target),
        }


@dataclass(frozen=True)
class Status:
    """A swarm, the plans for it, and its servers by peer id.

    `followed` is the trusted key whose plan the targets are of: the first named that has one which holds.
    """

    prefix: str
    read_at: float
    keys: tuple[KeyStatus, ...]
    servers: tuple[ServerStatus, ...]
    reading: Reading | None
    followed: PublicKey | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The status as one JSON document."""
        return {
            "format": "plan-swarm.status",
            "version": 1,
            "prefix": self.prefix,
            "read_at": self.read_at,
            "partial": self.reading is not None and self.reading.partial,
            "reading": self.reading.summary() if self.reading is not None else None,
            "followed": self.followed.text() if self.followed is not None else None,
            "plans": [key.to_json() for key in self.keys],
            "servers": [server.to_json() for server in self.servers],
            "notes": list(self.notes),
        }


def swarm_status(
    prefix: str,
    initial_peers: Sequence[str],
    trusted: Sequence[PublicKey] = (),
    *,
    kept: Mapping[str, bytes] | None = None,
    num_blocks: int | None = None,
    timeout: float = 30.0,
    progress: Callable[[Progress], None] | None = None,
) -> Status:
    """Read the plans under the trusted keys and under those that the index names, and the swarm itself.

    Parameters
    ----------
    trusted
        The first named whose plan holds is the one that the servers' targets are taken from.
    kept
        By key id the envelope that an earlier look found to hold: it holds on where strangers have hidden it since.

    Raises
    ------
    SwarmUnreachable
        If no node of the swarm answers in time.
    """
    return run(_status(prefix, initial_peers, tuple(dict.fromkeys(trusted)), kept or {}, num_blocks, timeout, progress))


async def _status(
    prefix: str,
    initial_peers: Sequence[str],
    trusted: tuple[PublicKey, ...],
    kept: Mapping[str, bytes],
    num_blocks: int | None,
    timeout: float,
    progress: Callable[[Progress], None] | None,
) -> Status:
    begun = time.monotonic()
    async with client_node(initial_peers, timeout) as node:
        index = await fetch_index(node, prefix)
        keys = (*trusted, *(key for key in index.keys if key not in trusted))
        found = await fetch_plans(node, prefix, [key.key_id for key in keys])
        now = time.time()
        reading, problem = await _read(node, prefix, num_blocks, progress, begun)
    rows = tuple(
        key_status(found[key.key_id], key, prefix, now, trusted=key in trusted, kept=kept.get(key.key_id))
        for key in keys
    )
    followed = next((row for row in rows if row.trusted and row.verdict in ("valid", "revoked")), None)
    notes = [problem] if problem is not None else []
    state: SwarmState | None = None
    try:
        state = reading.state() if reading is not None else None
    except (NothingToPlan, InputInvalid) as error:
        notes.append(str(error))
    if reading is not None:
        notes.extend(reading.warnings)
    if state is not None:
        notes.extend(state.warnings)
    return Status(
        prefix,
        now,
        rows,
        _servers(state, reading, followed),
        reading,
        followed.key if followed is not None else None,
        (*notes, *_index_notes(index)),
    )


def key_status(
    found: Found, key: PublicKey, prefix: str, now: float, *, trusted: bool, kept: bytes | None = None
) -> KeyStatus:
    """Judge what stands under one key at `now` (Unix time), and beside it what was `kept` from an earlier look."""
    records = found.records if kept is None else {**found.records, KEPT: (kept, now)}
    judged = judge(replace(found, records=records), key, prefix, now)
    envelope = records[judged.intact[0]][0] if judged.intact else None
    judged = replace(
        judged,
        intact=tuple(subkey for subkey in judged.intact if subkey != KEPT),
        refusals=tuple(one for one in judged.refusals if one[0] != KEPT),
    )
    if judged.plan is not None:
        verdict = "valid" if judged.plan.plan is not None else "revoked"
    elif judged.hidden or judged.overwritten or judged.blocked_until is not None:
        verdict = "overwritten"
    elif any(refusal.reason is Reason.EXPIRED for _, refusal in judged.refusals):
        verdict = "expired"
    else:
        verdict = "none"
    return KeyStatus(key, trusted, judged, verdict, fresh=judged.heartbeat is not None, envelope=envelope)


def refusals_by_name(refusals: Sequence[tuple[str, Refusal]]) -> Mapping[str, int]:
    """How often each reason occurs."""
    counts: dict[str, int] = {}
    for _, refusal in refusals:
        counts[refusal.reason.value] = counts.get(refusal.reason.value, 0) + 1
    return dict(sorted(counts.items()))


async def _read(
    node: ClientNode,
    prefix: str,
    num_blocks: int | None,
    progress: Callable[[Progress], None] | None,
    begun: float,
) -> tuple[Reading | None, str | None]:
    """The swarm, or why there is nothing to read of it: its plans may be looked at all the same."""
    try:
        return await read_from(node, prefix, num_blocks, progress, begun), None
    except NothingToPlan as error:
        return None, str(error)


def _servers(state: SwarmState | None, reading: Reading | None, followed: KeyStatus | None) -> tuple[ServerStatus, ...]:
    if state is None or reading is None:
        return ()
    said = {row["peer_id"]: row["value"] for row in reading.agents}
    plan = followed.plan if followed is not None else None
    planned = {server.peer_id: server for server in plan.servers} if plan is not None else {}
    at_target = {
        server.peer_id
        for server in state.servers
        if server.peer_id in planned and server.span == planned[server.peer_id].target
    }
    rows = []
    for server in state.servers:
        row = planned.get(server.peer_id)
        why = _said_why(said.get(server.peer_id)) if server.agent is not None else None
        if why is None and row is not None and server.peer_id not in at_target:
            fresh = followed is not None and followed.fresh
            why = _why(server, fresh, [peer for peer in row.after if peer not in at_target])
        rows.append(
            ServerStatus(
                peer_id=server.peer_id,
                public_name=server.public_name,
                state=server.state.value,
                present=server.span,
                target=row.target if row is not None else None,
                planned=row is not None,
                wave=row.wave if row is not None else None,
                agent=server.agent.state if server.agent is not None else None,
                why=why,
            )
        )
    present = {server.peer_id for server in state.servers}
    rows += [_gone(row) for peer_id, row in planned.items() if peer_id not in present]
    return tuple(sorted(rows, key=lambda row: row.peer_id))


def _gone(row: PlannedServer) -> ServerStatus:
    """A server that the plan counts on and that the swarm no longer has."""
    return ServerStatus(
        peer_id=row.peer_id,
        public_name=row.public_name,
        state=GONE,
        present=None,
        target=row.target,
        planned=True,
        wave=row.wave,
        agent=None,
        why="it has left the swarm, or has no records in it now",
    )


def _said_why(value: object) -> str | None:
    why = value.get("why") if isinstance(value, dict) else None
    return escape(why, MAX_WHY) if isinstance(why, str) and why else None


def _why(server: Server, fresh: bool, after: Sequence[str]) -> str | None:
    if server.agent is None:
        return "it has no agent, so it does not move by itself"
    if server.agent.pinned:
        return "its owner has pinned it"
    if not fresh:
        return "no fresh heartbeat: no move begins"
    return f"after {escape(after[0], 128)}" if after else None


def _index_notes(index: Index) -> tuple[str, ...]:
    problems = tuple(f"the index of keys: {problem}" for problem in index.problems)
    ignored = (f"{index.ignored:,} entries of the index of keys are no keys, or too many",) if index.ignored else ()
    return (*problems, *ignored)
