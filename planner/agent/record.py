"""An agent's record in the DHT: what it says of its server, and what the records of other agents say they intend.

The planner's decoder (`planner.records`) reads the fields that planning rests on; `plan-swarm status` shows `state` and
`why`; agents read each other's `intent`. Readers drop a record whole for one bad figure, so nothing goes out of here
that they would refuse. What comes in is anyone's: it is checked field by field, bounded, and what fails is no intent.
Pure: no clock, no DHT.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from planner.decode import CLOCK_SKEW, MAX_LIFETIME
from planner.fields import (
    MAX_TEXT,
    Malformed,
    hexadecimal,
    integer,
    is_peer_id,
    mapping,
    number,
    optional_span,
    sequence,
)
from planner.published import MAX_EPOCH, MAX_TIME
from planner.records import MAX_ADAPTERS, MAX_SECONDS, MAX_THROUGHPUT
from planner.state import MAX_BLOCKS
from planner.text import escape
from planner.wire import MAX_SUBKEYS
from solver.problem import Span

VERSION = 1
MAX_WHY = 300
"""Characters of `why`: what status shows of it."""

Word = Literal["serving", "waiting", "draining", "loading", "failed"]
"""What an agent is at: the same words in its record, in its log and in ``plan-swarm status``.

``waiting`` is also what the decoder takes a newcomer by: a server without a span is planned only if it says so.
"""


@dataclass(frozen=True)
class Intent:
    """What an agent is about to do, announced so that no other takes the same slack.

    Parameters
    ----------
    plan_id, epoch
        The plan under which it means to move.
    blocks
        The ranges of blocks that it will drop, ascending: one, or two where its target lies inside its span.
    since
        Unix time, by its own clock, from which others could read this.
    """

    plan_id: str
    epoch: int
    blocks: tuple[Span, ...]
    since: float


@dataclass(frozen=True)
class Report:
    """All that an agent says of its server.

    Parameters
    ----------
    state
        What it is at.
    span
        What it serves now, kept blocks only while it changes; None for a server that serves nothing.
    capacity
        The most blocks that it can hold.
    throughput
        RPS through each block at its present span, or at the one that it would take.
    throughput_by_length
        RPS by number of blocks, from 1 on.
    seconds_per_block, seconds_per_cached_block
        Seconds that loading one block takes, measured; cached ones come from its disk.
    why
        What it waits for, or why it failed: one line, for people.
    progress
        Blocks loaded, of how many, while it loads.
    """

    state: Word
    span: Span | None
    capacity: int | None = None
    throughput: float | None = None
    throughput_by_length: tuple[float, ...] | None = None
    seconds_per_block: float | None = None
    seconds_per_cached_block: float | None = None
    cached_blocks: frozenset[int] = frozenset()
    pinned: bool = False
    public_name: str | None = None
    using_relay: bool | None = None
    adapters: tuple[str, ...] = ()
    why: str = ""
    progress: tuple[int, int] | None = None
    intent: Intent | None = None

    def to_value(self) -> dict[str, Any]:
        """The record's value, of plain JSON values; a figure that readers would refuse is null, as if unknown."""
        table = [_figure(rps, MAX_THROUGHPUT) for rps in self.throughput_by_length or ()]
        capacity = self.capacity
        return {
            "version": VERSION,
            "state": self.state,
            "span": None if self.span is None else list(self.span),
            "capacity": capacity if capacity is not None and 0 <= capacity <= MAX_BLOCKS else None,
            "throughput": _figure(self.throughput, MAX_THROUGHPUT),
            "throughput_by_length": table if table and None not in table else None,
            "seconds_per_block": _figure(self.seconds_per_block, MAX_SECONDS),
            "seconds_per_cached_block": _figure(self.seconds_per_cached_block, MAX_SECONDS),
            "cached_blocks": sorted(self.cached_blocks),
            "pinned": self.pinned,
            "public_name": None if self.public_name is None else self.public_name[:MAX_TEXT],
            "using_relay": self.using_relay,
            "adapters": list(self.adapters[:MAX_ADAPTERS]),
            "why": escape(self._why(), MAX_WHY),
            "progress": None if self.progress is None else list(self.progress),
            "intent": None if self.intent is None else _intent_value(self.intent),
        }

    def _why(self) -> str:
        if self.why or self.progress is None:
            return self.why
        return f"{self.progress[0]} of {self.progress[1]} blocks loaded"


def read_intents(agents: Iterable[object], num_blocks: int, read_at: float) -> dict[str, Intent]:
    """What other agents' records say they intend, by peer id: hints only, as anyone writes to anyone's record.

    Parameters
    ----------
    agents
        Raw agents' records, as `planner.live.Reading.agents` holds them.
    num_blocks
        Number of blocks of the model.
    read_at
        Unix time of the reading; the ages of records are judged as the decoder does it.

    Notes
    -----
    The newest record of a peer speaks for it, intent or none: an older one may hold what it has given up since.
    """
    newest: dict[str, tuple[float, object]] = {}
    for count, raw in enumerate(agents):
        if count >= MAX_SUBKEYS:
            break
        if not isinstance(raw, dict) or not is_peer_id(peer_id := raw.get("peer_id")):
            continue
        try:
            expiration = number(raw.get("expiration"), "expiration", read_at + MAX_LIFETIME, read_at - CLOCK_SKEW)
        except Malformed:
            continue
        if peer_id not in newest or expiration > newest[peer_id][0]:
            newest[peer_id] = (expiration, raw.get("value"))
    found = {}
    for peer_id, (_, value) in newest.items():
        intent = read_intent(value.get("intent"), num_blocks) if isinstance(value, dict) else None
        if intent is not None:
            found[peer_id] = intent
    return found


def read_intent(value: object, num_blocks: int) -> Intent | None:
    """The intent that a record's field, or a peer's own answer, holds; None where it is none or not in order."""
    try:
        fields = mapping(value, "intent")
        ranges = sequence(fields.get("blocks"), "blocks")
        # A span less a span is at most two ranges; nothing longer is looked at.
        spans = [optional_span(one, "blocks", num_blocks) for one in ranges[:3]]
        blocks = tuple(span for span in spans if span is not None)
        if not blocks or len(blocks) != len(ranges) or len(blocks) > 2:
            raise Malformed("blocks is not one range or two")
        return Intent(
            plan_id=hexadecimal(fields.get("plan_id"), "plan_id", 32),
            epoch=integer(fields.get("epoch"), "epoch", MAX_EPOCH),
            blocks=blocks,
            since=number(fields.get("since"), "since", MAX_TIME),
        )
    except Malformed:
        return None


def _intent_value(intent: Intent) -> dict[str, Any]:
    return {
        "plan_id": intent.plan_id,
        "epoch": intent.epoch,
        "blocks": [list(span) for span in intent.blocks],
        "since": intent.since,
    }


def _figure(value: float | None, most: float) -> float | None:
    """A figure that readers take; NaN fails any comparison."""
    return float(value) if value is not None and math.isfinite(value) and 0 <= value <= most else None
