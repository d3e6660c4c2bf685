"""A plan read back from its JSON: hostile until every field that others act on has been checked.

A plan file may have been edited, an envelope's plan was made by another version: what contradicts itself here is
refused as a whole, since half a plan is another plan. Unknown fields are ignored; `planner.plan.VERSION` guards
the meaning of the known ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast, get_args

from planner.canonical import canonical_json
from planner.coverage import Coverage
from planner.fields import (
    Malformed,
    flag,
    hexadecimal,
    integer,
    mapping,
    number,
    optional_span,
    optional_text,
    peer,
    sequence,
    text,
)
from planner.plan import FORMAT, VERSION, MovesOf, PlannedServer, PlanStatus, Wave, identify
from planner.records import MAX_RPS
from planner.state import MAX_BLOCKS, ServerState
from planner.text import escape, show
from solver.problem import Span

MAX_TIME = 1e11
"""Unix time in seconds: some thousand years; more is milliseconds taken for seconds."""
MAX_EPOCH = 2**53
"""Unix milliseconds are far below it, and every reader of JSON holds it exactly."""
MAX_PREFIX = 1000
MAX_DURATION = 1e12
"""Seconds: the blocks that a model may have, times the seconds that one may take to load."""


@dataclass(frozen=True)
class PublishedPlan(MovesOf):
    """What publishing a plan and following it rest on.

    Parameters
    ----------
    created_at, valid_until
        Unix times.
    epoch
        0 where the plan has not been published.
    floor
        RPS below which no block may fall while moves run.
    fingerprint
        Hash of the state that the plan rests on.
    servers
        All servers by peer id, each once.
    waves
        Exactly the moves, each once.
    told
        Spans that the operator told the planner, by peer id: what the reading said instead was uncertain.
    json
        The whole document in canonical JSON.
    """

    prefix: str
    num_blocks: int
    plan_id: str
    status: PlanStatus
    created_at: float
    valid_until: float
    epoch: int
    floor: float
    fingerprint: str
    before: Coverage
    after: Coverage
    servers: tuple[PlannedServer, ...]
    waves: tuple[Wave, ...]
    told: tuple[tuple[str, Span], ...]
    json: str = field(repr=False)

    def document(self) -> dict[str, Any]:
        """The whole document, a new one at each call."""
        document: dict[str, Any] = json.loads(self.json)
        return document


def read_plan(document: object) -> PublishedPlan:
    """Check a plan's JSON document, as `planner.strict_json` parses it.

    Raises
    ------
    Malformed
        If it is no plan, contradicts itself, or is not what its ``plan_id`` names.
    """
    try:
        return _read_plan(mapping(document, "the plan"))
    except RecursionError:
        raise Malformed("it is nested too deeply to be a plan") from None


def _read_plan(fields: dict[str, Any]) -> PublishedPlan:
    if fields.get("format") != FORMAT:
        raise Malformed(f"its format is {show(fields.get('format'))}, not {FORMAT!r}")
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        raise Malformed(f"its version is {show(version)}; this planner reads version {VERSION}")
    num_blocks = integer(fields.get("num_blocks"), "num_blocks", MAX_BLOCKS, 1)
    status = fields.get("status")
    if status not in get_args(PlanStatus):
        raise Malformed(f"unknown status {show(status)}")
    created_at = number(fields.get("created_at"), "created_at", MAX_TIME)
    servers = tuple(_server(row, num_blocks) for row in sequence(fields.get("servers"), "servers"))
    waves = tuple(_wave(row) for row in sequence(fields.get("waves"), "waves"))
    settings = mapping(mapping(fields.get("solve"), "solve").get("settings"), "solve.settings")
    plan = PublishedPlan(
        prefix=text(fields.get("prefix"), "prefix", MAX_PREFIX),
        num_blocks=num_blocks,
        plan_id=hexadecimal(fields.get("plan_id"), "plan_id", 32),
        status=cast(PlanStatus, status),
        created_at=created_at,
        valid_until=number(fields.get("valid_until"), "valid_until", MAX_TIME, created_at),
        epoch=integer(fields.get("epoch"), "epoch", MAX_EPOCH),
        floor=number(fields.get("floor"), "floor", MAX_RPS),
        fingerprint=hexadecimal(fields.get("state_fingerprint"), "state_fingerprint", 64),
        before=_coverage(fields.get("before"), "before", num_blocks),
        after=_coverage(fields.get("after"), "after", num_blocks),
        servers=servers,
        waves=waves,
        told=_told(settings.get("spans"), num_blocks),
        json=_canonical(fields),
    )
    _check_servers(servers)
    _check_waves(servers, waves)
    _check_id(plan, fields["floor"], settings)
    return plan


def _server(row: object, num_blocks: int) -> PlannedServer:
    fields = mapping(row, "a server")
    peer_id = peer(fields.get("peer_id"), "the peer id of a server")
    try:
        state = fields.get("state")
        if state not in [known.value for known in ServerState]:
            raise Malformed(f"unknown state {show(state)}")
        wave = fields.get("wave")
        server = PlannedServer(
            peer_id=peer_id,
            public_name=optional_text(fields.get("public_name"), "public_name"),
            movable=flag(fields.get("movable"), "movable"),
            why_not=optional_text(fields.get("why_not"), "why_not"),
            state=str(state),
            throughput=number(fields.get("throughput"), "throughput", MAX_RPS),
            current=optional_span(fields.get("current"), "current", num_blocks),
            target=optional_span(fields.get("target"), "target", num_blocks),
            loaded=_blocks(fields.get("loaded"), "loaded", num_blocks),
            dropped=_blocks(fields.get("dropped"), "dropped", num_blocks),
            kept=integer(fields.get("kept"), "kept", num_blocks),
            reload_seconds=number(fields.get("reload_seconds"), "reload_seconds", MAX_DURATION),
            wave=None if wave is None else integer(wave, "wave", MAX_BLOCKS),
            after=_peers(fields.get("after"), "after"),
            offline=_blocks(fields.get("offline", []), "offline", num_blocks),
        )
        _check_server(server)
    except Malformed as error:
        raise Malformed(f"{peer_id}: {error}") from None
    return server


def _check_server(server: PlannedServer) -> None:
    if server.movable != (server.why_not is None):
        raise Malformed("movable and why_not contradict each other")
    if server.moves and not server.movable:
        raise Malformed(f"it moves from {server.current} to {server.target}, and is said not to be movable")
    if server.moves != (server.wave is not None):
        raise Malformed("it moves in no wave" if server.moves else "it is in a wave, and does not move")
    if server.after and not server.moves:
        raise Malformed("it waits for others, and does not move")
    held = range(*server.current) if server.current is not None else range(0)
    if list(server.offline) != sorted({*server.offline} & {*held}):
        raise Malformed("offline is not an ascending list of blocks in current")
    overlap = server.current.overlap(server.target) if server.current is not None and server.target is not None else 0
    for name, listed, span, other in (
        ("loaded", server.loaded, server.target, server.current),
        ("dropped", server.dropped, server.current, server.target),
    ):
        # Lengths first: what is compared block by block is then no longer than the document that lists it.
        if len(listed) != (span.length - overlap if span is not None else 0) or listed != _outside(span, other):
            raise Malformed(f"{name} is not what current and target imply")
    if server.kept != overlap:
        raise Malformed(f"kept is {server.kept}; current and target share {overlap} blocks")


def _outside(span: Span | None, other: Span | None) -> tuple[int, ...]:
    """The blocks of `span` that are not in `other`."""
    if span is None:
        return ()
    if other is None:
        return tuple(range(*span))
    left, right = range(span.start, min(span.end, other.start)), range(max(span.start, other.end), span.end)
    return tuple(chain(left, right))


def _wave(row: object) -> Wave:
    fields = mapping(row, "a wave")
    return Wave(
        moves=_peers(fields.get("moves"), "a wave's moves"),
        min_throughput_during=number(fields.get("min_throughput_during"), "min_throughput_during", MAX_RPS),
        seconds=number(fields.get("seconds"), "a wave's seconds", MAX_DURATION),
    )


def _coverage(value: object, name: str, num_blocks: int) -> Coverage:
    fields = mapping(value, name)
    rps = sequence(fields.get("throughput"), f"{name}.throughput")
    if len(rps) != num_blocks:
        raise Malformed(f"{name}.throughput has {len(rps):,} entries for {num_blocks:,} blocks")
    return Coverage(
        min_throughput=number(fields.get("min_throughput"), f"{name}.min_throughput", MAX_RPS),
        holes=integer(fields.get("holes"), f"{name}.holes", num_blocks),
        bottleneck_blocks=_blocks(fields.get("bottleneck_blocks"), f"{name}.bottleneck_blocks", num_blocks),
        throughput=tuple(number(block, f"{name}.throughput", MAX_RPS) for block in rps),
        # Plans of planners that did not count them have none.
        hops=None if (hops := fields.get("hops")) is None else integer(hops, f"{name}.hops", num_blocks, 1),
    )


def _blocks(value: object, name: str, num_blocks: int) -> tuple[int, ...]:
    blocks = sequence(value, name)
    if len(blocks) > num_blocks:
        raise Malformed(f"{name} has more entries than the model has blocks")
    return tuple(integer(block, f"a block in {name}", num_blocks - 1) for block in blocks)


def _peers(value: object, name: str) -> tuple[str, ...]:
    peers = tuple(peer(one, f"a peer in {name}") for one in sequence(value, name))
    if len(set(peers)) != len(peers):
        raise Malformed(f"{name} names a peer twice")
    return peers


def _told(value: object, num_blocks: int) -> tuple[tuple[str, Span], ...]:
    if value is None:
        return ()
    found: dict[str, Span] = {}
    for pair in sequence(value, "solve.settings.spans"):
        parts = sequence(pair, "an entry of solve.settings.spans")
        span = optional_span(parts[1], "a span in solve.settings.spans", num_blocks) if len(parts) == 2 else None
        if span is None:
            raise Malformed("an entry of solve.settings.spans is not [peer, [start, end]]")
        found[peer(parts[0], "a peer in solve.settings.spans")] = span
    return tuple(sorted(found.items()))


def _canonical(fields: dict[str, Any]) -> str:
    try:
        return canonical_json(fields)
    except (TypeError, ValueError):
        raise Malformed("it holds values that JSON has not") from None


def _check_servers(servers: Iterable[PlannedServer]) -> None:
    last = ""
    for server in servers:
        if server.peer_id == last:
            raise Malformed(f"{escape(last)} is listed twice")
        if server.peer_id < last:
            raise Malformed("servers are not sorted by peer id")
        last = server.peer_id


def _check_waves(servers: Iterable[PlannedServer], waves: tuple[Wave, ...]) -> None:
    listed: dict[str, int] = {}
    for index, wave in enumerate(waves):
        if not wave.moves:
            raise Malformed(f"wave {index} has no moves")
        for peer_id in wave.moves:
            if peer_id in listed:
                raise Malformed(f"{peer_id} is in waves {listed[peer_id]} and {index}")
            listed[peer_id] = index
    moving = {server.peer_id: server.wave for server in servers if server.moves}
    for server in servers:
        if server.moves and listed.get(server.peer_id) != server.wave:
            raise Malformed(f"{server.peer_id} moves in wave {server.wave}, and the waves say otherwise")
        for other in server.after:
            before = moving.get(other)
            if before is None or server.wave is None or before >= server.wave:
                raise Malformed(f"{server.peer_id} waits for {other}, which moves in no earlier wave")
    for peer_id in listed:
        if peer_id not in moving:
            raise Malformed(f"wave {listed[peer_id]} has {peer_id}, which does not move")


def _check_id(plan: PublishedPlan, floor: Any, settings: dict[str, Any]) -> None:
    # The floor as it is written: 0 and 0.0 differ in what is hashed.
    targets = [(server.peer_id, server.target) for server in plan.servers]
    waves = [wave.moves for wave in plan.waves]
    if identify(plan.prefix, plan.fingerprint, settings, targets, waves, floor) != plan.plan_id:
        raise Malformed("plan_id is not the id of what it asks for: it was changed after it was made; plan again")
