"""The living swarm, read into the raw records of a dump, so that live and dumped state pass the same decoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.dht_client import calls_a_node
from planner.errors import InputInvalid, NothingToPlan, PartialReading
from planner.event_loop import run
from planner.gather import MIN_TRIES, Gathered, Try
from planner.node import ClientNode, client_node
from planner.notes import blocks_text
from planner.prefixes import near_prefixes, prefix_of_model
from planner.reading import DUMP_FORMAT, DUMP_VERSION, load_state
from planner.state import SwarmState, check_num_blocks
from planner.swarm_models import MAX_LIVE_BLOCKS, Model, announced_models, gather_answered, raw_records
from planner.text import escape, show, some
from planner.wire_json import plain

AGENTS_KEY = "_plan_swarm.agents."
"""Followed by the prefix: where agents announce themselves, subkey the peer id."""
MAX_WARNINGS = 20
ENOUGH = 0.001
"""Expected number of missed keys below which no more is asked: one missed key may move servers for nothing."""


@dataclass(frozen=True)
class Progress:
    """How far a reading is, once it has joined the swarm.

    Parameters
    ----------
    stage
        ``"models"`` or ``"blocks"``.
    tries
        Tries so far in this stage.
    answered, asked
        Keys that have answered at least once, of how many.
    seconds
        Since the reading began.
    """

    stage: str
    tries: int
    answered: int
    asked: int
    seconds: float


@dataclass(frozen=True)
class Reading:
    """A swarm as it was read.

    Parameters
    ----------
    prefix, num_blocks
        The model.
    read_at
        Unix time at which the first try began: what was alive then counts.
    records, agents
        The raw records, as in a dump.
    tries
        What each try asked and got; every one asks all keys of blocks and that of the agents.
    keys_asked, keys_answered
        How many keys that is, and how many of them answered in at least one try. A key that nobody has written to,
        such as that of the agents where there are none, does not answer.
    silent
        Numbers of the blocks whose key never answered: holes, or missed.
    expected_missed
        How many keys are expected to have been missed by chance; see `planner.gather.Gathered`.
    partial
        Whether that is too many: nobody is moved by this reading, and no plan may be published from it.
    calls, responses
        How many times a node of the swarm was asked for some keys, and how often one answered.
    warnings
        What was left out before it came to records, one line each.
    """

    prefix: str
    num_blocks: int
    read_at: float
    records: tuple[dict[str, Any], ...]
    agents: tuple[dict[str, Any], ...]
    tries: tuple[Try, ...]
    keys_asked: int
    keys_answered: int
    silent: tuple[int, ...]
    expected_missed: float
    partial: bool
    calls: int
    responses: int
    warnings: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """The raw dump, which `planner.reading.load_state` reads and `planner.dump.write_dump` writes."""
        return {
            "format": DUMP_FORMAT,
            "version": DUMP_VERSION,
            "source": "live",
            "prefix": self.prefix,
            "num_blocks": self.num_blocks,
            "read_at": self.read_at,
            "reading": {
                "keys_asked": self.keys_asked,
                "keys_answered": self.keys_answered,
                "tries": [
                    {"asked": one.asked, "answered": one.answered, "seconds": round(one.seconds, 3)}
                    for one in self.tries
                ],
                "silent": list(self.silent),
                "expected_missed": self.expected_missed,
                "partial": self.partial,
                "calls": self.calls,
                "responses": self.responses,
                "warnings": list(self.warnings),
            },
            "records": list(self.records),
            "agents": list(self.agents),
        }

    def state(self) -> SwarmState:
        """The state that the records describe.

        Raises
        ------
        NothingToPlan
            If no server is left.
        """
        return load_state(self.dump())

    def summary(self) -> str:
        """One line: how many keys answered, in which tries, and whose did not."""
        each = ", ".join(f"{one.answered}/{one.asked}" for one in self.tries)
        text = f"{self.keys_answered} of {self.keys_asked} keys answered in {len(self.tries)} tries ({each})"
        silent = [f"those of {blocks_text(self.silent)}"] if self.silent else []
        if self.keys_asked - self.keys_answered > len(self.silent):
            silent.append("that of the agents (there may be none)")
        return f"{text}, not {' and '.join(silent)}" if silent else text

    def check_whole(self) -> None:
        """Raise `PartialReading` if this reading is partial."""
        if self.partial:
            raise PartialReading(
                f"the reading of {escape(self.prefix)} is partial: {self.summary()}, and about "
                f"{self.expected_missed:.1f} more are expected to exist; read it again, with a longer --timeout"
            )


def read_live(
    prefix: str,
    initial_peers: Sequence[str],
    num_blocks: int | None = None,
    timeout: float = 30.0,
    progress: Callable[[Progress], None] | None = None,
) -> Reading:
    """Read a swarm from its DHT, in an event loop of its own.

    All keys of the model are asked for in at least 2 and at most 16 tries, and what they answer is merged by newest
    expiration, until fewer than 0.001 keys are expected to have been missed by chance or the time is over. From 0.01 on
    the reading is partial. The rule is that of `planner.gather.Gathered`.

    A try is at most two `ClientNode.get`; before the first, at least two more ask for ``_petals.models`` where
    `num_blocks` is not given. How many calls that makes at most is `most_calls`.

    Parameters
    ----------
    prefix
        The model's DHT prefix.
    initial_peers
        Multiaddresses of nodes in the swarm's DHT; `planner.node.PETALS_INITIAL_PEERS` for the public swarm.
    num_blocks
        Number of blocks of the model, 1 to 1,000; None to take it from ``_petals.models``.
    timeout
        Seconds, from when hivemind is imported.
    progress
        Called after every try.

    Raises
    ------
    SwarmUnreachable
        If no node of the swarm answers in time.
    NothingToPlan
        If nobody serves or announces this prefix; the line names near ones.
    InputInvalid
        If `num_blocks` is out of range.
    """
    if num_blocks is not None and check_num_blocks(num_blocks) > MAX_LIVE_BLOCKS:
        raise InputInvalid(f"num_blocks must be from 1 to {MAX_LIVE_BLOCKS:,} for a live swarm, not {num_blocks:,}")
    return run(_read(prefix, initial_peers, num_blocks, timeout, progress))


async def _read(
    prefix: str,
    initial_peers: Sequence[str],
    num_blocks: int | None,
    timeout: float,
    progress: Callable[[Progress], None] | None,
) -> Reading:
    begun = time.monotonic()
    async with client_node(initial_peers, timeout) as node:
        return await read_from(node, prefix, num_blocks, progress, begun)


async def read_from(
    node: ClientNode,
    prefix: str,
    num_blocks: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    begun: float | None = None,
) -> Reading:
    """Read a swarm through a node that has joined it, in the time it has left; else as `read_live`."""
    start = time.monotonic() if begun is None else begun

    def tell(stage: str, gathered: Gathered) -> None:
        if progress is not None:
            answered, asked = len(gathered.answered), len(gathered.keys)
            progress(Progress(stage, len(gathered.tries), answered, asked, time.monotonic() - start))

    announced: tuple[Mapping[str, Model], Sequence[str]] | None = None
    if num_blocks is None:
        announced = await announced_models(node, time.time(), lambda gathered: tell("models", gathered))
        if prefix not in announced[0]:
            raise _nobody_serves(prefix, *announced)
        num_blocks = announced[0][prefix].num_blocks
    read_at = time.time()
    agents_key = f"{AGENTS_KEY}{prefix}"
    keys = [*(f"{prefix}.{block}" for block in range(num_blocks)), agents_key]
    gathered = await gather_answered(node, keys, lambda gathered: tell("blocks", gathered), ENOUGH)
    records = raw_records(gathered, prefix, num_blocks)
    agents = [
        {"peer_id": subkey, "expiration": expiration, "value": plain(value)}
        for subkey, (value, expiration) in sorted(gathered.records(agents_key).items())
    ]
    if not gathered.answered:
        raise _nobody_serves(prefix, *(announced or await announced_models(node, read_at)))
    silent = set(gathered.silent)
    return Reading(
        prefix=prefix,
        num_blocks=num_blocks,
        read_at=read_at,
        records=tuple(records),
        agents=tuple(agents),
        tries=tuple(gathered.tries),
        keys_asked=len(gathered.keys),
        keys_answered=len(gathered.answered),
        silent=tuple(block for block in range(num_blocks) if f"{prefix}.{block}" in silent),
        expected_missed=gathered.expected_missed,
        partial=gathered.partial,
        calls=node.calls,
        responses=node.responses,
        warnings=_warnings(gathered),
    )


def most_calls(num_blocks: int, nodes: int, tries: int = MIN_TRIES, models_tries: int = MIN_TRIES) -> int:
    """Return the most calls that reading a model makes on a swarm of so many nodes.

    Parameters
    ----------
    num_blocks, nodes
        The model's blocks, and the nodes of the DHT.
    tries
        Of all keys; `MIN_TRIES` where nothing is missed by chance, never over `planner.gather.MAX_TRIES`.
    models_tries
        Of ``_petals.models``; likewise, and 0 where the number of blocks was given.
    """
    keys = num_blocks + 1  # that of the agents
    # Nothing has answered before the first try. Each later one has two gets, for keys that have and keys that have not.
    later = max(calls_a_node(loud) + calls_a_node(keys - loud) for loud in range(keys + 1))
    return nodes * (models_tries * calls_a_node(1) + calls_a_node(keys) + (tries - 1) * later)


def _nobody_serves(prefix: str, models: Mapping[str, Model], problems: Sequence[str]) -> NothingToPlan:
    """Name what somebody who asked for `prefix` may have meant."""
    if prefix in models:
        return NothingToPlan(f"the model {show(prefix)} is announced, but no server holds a block of it now")
    near = near_prefixes(prefix, models)
    if near:
        hint = f"did you mean {' or '.join(show(name) for name in near)}?"
    elif "/" in prefix and prefix_of_model(prefix) != prefix:
        hint = f"Petals would call that model {show(prefix_of_model(prefix))}"
    else:
        hint = "see what there is with plan-swarm models"
    if near or not models:
        others = "" if models else "; the swarm announces no models"
    else:
        others = f"; the swarm announces {some(sorted(models), 10)}"
    return NothingToPlan(
        f"no model of the prefix {show(prefix)} is announced in this swarm{others}; {hint} (a model that is not listed "
        "can be read with --num-blocks)" + "".join(f"; {problem}" for problem in problems)
    )


def _warnings(gathered: Gathered) -> tuple[str, ...]:
    lines = [f"{escape(key, 80)}: {problem}" for key in gathered.keys for problem in gathered.problems(key)]
    left = len(lines) - MAX_WARNINGS
    return (*lines[:MAX_WARNINGS], *([f"... and {left:,} more keys with bad records"] if left > 0 else []))
