"""One record of the DHT, checked: everything that others wrote is hostile until it has passed here.

A block's record is ``{"uid", "peer_id", "expiration", "value"}`` with Petals' value ``(state, throughput, info)``
(`petals.data_structures.ServerInfo.to_tuple`), or one of its older forms; an agent's record has no uid.
Fields that the planner does not use are ignored whatever they hold, so that a bad ping never hides a server.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from planner.fields import MAX_PEER_ID, Malformed, flag, integer, is_peer_id, mapping, number, optional_text, text
from planner.state import MAX_BLOCKS, Agent
from planner.text import show
from solver.problem import Span

MAX_THROUGHPUT = 1e7
"""RPS; more is absurd for a server."""
MAX_RPS = 1e12
"""RPS of one part of a server: real servers announce over a million forward passes per second and block."""
MAX_SECONDS = 1e7
"""Four months for loading one block."""
MAX_ADAPTERS = 1000


class RecordState(IntEnum):
    """A block's state as Petals writes it."""

    OFFLINE = 0
    JOINING = 1
    ONLINE = 2


@dataclass(frozen=True)
class Record:
    """What a peer says of one block that it holds, held or will hold.

    `expiration` is Unix time, `throughput`, `forward_rps` and `network_rps` are RPS; `span` is the span that
    the record states, None where it states none.
    """

    block: int
    peer_id: str
    expiration: float
    state: RecordState
    throughput: float
    span: Span | None = None
    public_name: str | None = None
    version: str | None = None
    torch_dtype: str | None = None
    quant_type: str | None = None
    adapters: tuple[str, ...] = ()
    using_relay: bool | None = None
    forward_rps: float | None = None
    network_rps: float | None = None


@dataclass(frozen=True)
class AgentRecord:
    """An agent's record and when it expires (Unix time)."""

    peer_id: str
    expiration: float
    agent: Agent


@dataclass(frozen=True)
class Rejection:
    """Why a record does not count; `peer_id` and `block` as far as they could be read."""

    peer_id: str | None
    reason: str
    block: int | None = None
    what: str = "record"


def read_record(raw: object, prefix: str, num_blocks: int) -> Record | Rejection:
    """One raw block record of the model `prefix`, checked."""
    peer_id = block = None
    try:
        fields = mapping(raw, "the record")
        peer_id = _peer_id(fields.get("peer_id"))
        block = _block(fields.get("uid"), prefix, num_blocks)
        expiration = _expiration(fields.get("expiration"))
        return _record(block, peer_id, expiration, fields.get("value"), num_blocks)
    except Malformed as error:
        return Rejection(peer_id, str(error), block)


def read_agent(raw: object, num_blocks: int) -> AgentRecord | Rejection:
    """One raw agent's record, checked; fields may be missing or null."""
    peer_id = None
    try:
        fields = mapping(raw, "the record")
        peer_id = _peer_id(fields.get("peer_id"))
        expiration = _expiration(fields.get("expiration"))
        return AgentRecord(peer_id, expiration, _agent(mapping(fields.get("value"), "its value"), num_blocks))
    except Malformed as error:
        return Rejection(peer_id, str(error), what="agent's record")


def _record(block: int, peer_id: str, expiration: float, value: object, num_blocks: int) -> Record:
    parts = _sequence(value, "its value")
    if not 2 <= len(parts) <= 3:
        raise Malformed(f"its value has {len(parts)} parts, not (state, throughput) or (state, throughput, info)")
    info = parts[2] if len(parts) == 3 else {}
    if isinstance(info, (list, tuple)):
        info = {"adapters": info}
    info = mapping(info, "its info")
    state = _state(parts[0])
    span = _stated_span(info, num_blocks)
    if span is not None and state is not RecordState.OFFLINE and block not in span:
        raise Malformed(f"its block is outside the span {span} that it states itself")
    return Record(
        block=block,
        peer_id=peer_id,
        expiration=expiration,
        state=state,
        throughput=number(parts[1], "throughput", MAX_THROUGHPUT),
        span=span,
        public_name=_optional_text(info, "public_name"),
        version=_optional_text(info, "version"),
        torch_dtype=_optional_text(info, "torch_dtype"),
        quant_type=_optional_text(info, "quant_type"),
        adapters=_adapters(info),
        using_relay=_optional_flag(info, "using_relay"),
        forward_rps=_optional_number(info, "forward_rps", MAX_RPS),
        network_rps=_optional_number(info, "network_rps", MAX_RPS),
    )


def _agent(value: dict[Any, Any], num_blocks: int) -> Agent:
    version = value.get("version")
    if version is not None and integer(version, "version", MAX_BLOCKS) != 1:
        raise Malformed(f"version {show(version)} is unknown; this planner knows version 1")
    bounds = _optional_sequence(value, "span")
    if bounds is not None and len(bounds) != 2:
        raise Malformed("span is not [start, end]")
    table = _optional_sequence(value, "throughput_by_length")
    if table is not None and len(table) > MAX_BLOCKS:
        raise Malformed(f"throughput_by_length has over {MAX_BLOCKS:,} entries")
    capacity = value.get("capacity")
    return Agent(
        state=_optional_text(value, "state") or "serving",
        span=None if bounds is None else _span(bounds[0], bounds[1], "span", num_blocks),
        capacity=None if capacity is None else integer(capacity, "capacity", MAX_BLOCKS),
        throughput=_optional_number(value, "throughput", MAX_THROUGHPUT),
        throughput_by_length=tuple(number(rps, "throughput_by_length", MAX_THROUGHPUT) for rps in table)
        if table
        else None,
        seconds_per_block=_optional_number(value, "seconds_per_block", MAX_SECONDS),
        seconds_per_cached_block=_optional_number(value, "seconds_per_cached_block", MAX_SECONDS),
        cached_blocks=frozenset(
            integer(block, "cached_blocks", num_blocks - 1)
            for block in _optional_sequence(value, "cached_blocks") or ()
        ),
        pinned=_optional_flag(value, "pinned") or False,
        public_name=_optional_text(value, "public_name"),
        using_relay=_optional_flag(value, "using_relay"),
        adapters=_adapters(value),
    )


def _sequence(value: object, name: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise Malformed(f"{name} is {show(value)}, not a list")
    return value


def _optional_sequence(fields: dict[Any, Any], name: str) -> list[Any] | tuple[Any, ...] | None:
    value = fields.get(name)
    return None if value is None else _sequence(value, name)


def _optional_number(fields: dict[Any, Any], name: str, most: float) -> float | None:
    value = fields.get(name)
    return None if value is None else number(value, name, most)


def _optional_text(fields: dict[Any, Any], name: str) -> str | None:
    return optional_text(fields.get(name), name)


def _optional_flag(fields: dict[Any, Any], name: str) -> bool | None:
    value = fields.get(name)
    return None if value is None else flag(value, name)


def _adapters(fields: dict[Any, Any]) -> tuple[str, ...]:
    names = _optional_sequence(fields, "adapters") or ()
    if len(names) > MAX_ADAPTERS:
        raise Malformed(f"adapters has over {MAX_ADAPTERS:,} entries")
    return tuple(text(name, "the name of an adapter", least=0) for name in names)


def _expiration(value: object) -> float:
    return number(value, "expiration", sys.float_info.max, -sys.float_info.max)


def _peer_id(value: object) -> str:
    if not is_peer_id(value):
        raise Malformed(f"peer id {show(value)} is not one word of 1 to {MAX_PEER_ID} printable characters")
    return value


def _block(uid: object, prefix: str, num_blocks: int) -> int:
    start, dot, number = uid.rpartition(".") if isinstance(uid, str) else ("", "", "")
    # int() alone would take "+1", " 1", "1_0", "01" and other scripts' digits: none of them is a key of Petals.
    if start != prefix or not dot or len(number) > 9 or not number.isdecimal() or number != str(int(number)):
        raise Malformed(f"uid {show(uid)} does not name a block of the model")
    if int(number) >= num_blocks:
        raise Malformed(f"uid {show(uid)} is outside the model's {num_blocks} blocks")
    return int(number)


def _state(value: object) -> RecordState:
    if isinstance(value, bool) or not isinstance(value, int) or value not in tuple(RecordState):
        raise Malformed(f"unknown state {show(value)}; known are 0 (OFFLINE), 1 (JOINING) and 2 (ONLINE)")
    return RecordState(value)


def _span(start: object, end: object, name: str, num_blocks: int) -> Span:
    span = Span(integer(start, f"{name}'s start", MAX_BLOCKS), integer(end, f"{name}'s end", MAX_BLOCKS))
    if not span.start < span.end <= num_blocks:
        raise Malformed(f"{name} {show(span.start)}:{show(span.end)} is not a span inside the model's 0:{num_blocks}")
    return span


def _stated_span(info: dict[Any, Any], num_blocks: int) -> Span | None:
    start, end = info.get("start_block"), info.get("end_block")
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise Malformed("it states only one of start_block and end_block")
    return _span(start, end, "its stated span", num_blocks)
