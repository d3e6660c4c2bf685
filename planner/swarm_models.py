"""The models that a swarm serves: what its servers announce of them, and how well each is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.coverage import coverage_of
from planner.decode import MAX_LIFETIME, decode
from planner.errors import InputInvalid, NothingToPlan, SwarmUnreachable
from planner.event_loop import run
from planner.fields import is_peer_id
from planner.gather import PARTIAL, Gathered, gather
from planner.node import ClientNode, client_node
from planner.wire_json import plain

MODELS_KEY = "_petals.models"
"""Where Petals' servers announce their models: subkey the prefix, value ``{num_blocks, repository}``."""
MAX_LIVE_BLOCKS = 1000
"""Blocks of a model that anybody may announce and be believed: each is a key to ask for. Real models have 126."""
MAX_MODELS, MAX_KEYS = 100, 5000
"""Models, and blocks of all of them, that are read for a list: anybody may announce any number."""


@dataclass(frozen=True)
class Model:
    """What the swarm's servers announce of a model; `expiration` is Unix time."""

    prefix: str
    num_blocks: int
    repository: str | None
    expiration: float


@dataclass(frozen=True)
class ModelRow:
    """A model and how it is held.

    `bottleneck` is RPS over the covered blocks; with `servers` and `holes` it is None where the model was not read,
    and `note` then says why. `partial` means that keys are likely to be missing.
    """

    prefix: str
    num_blocks: int
    repository: str | None
    servers: int | None = None
    bottleneck: float | None = None
    holes: int | None = None
    partial: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Models:
    """The models of a swarm by prefix, and what was left out of their list or hides it, one line each."""

    rows: tuple[ModelRow, ...]
    problems: tuple[str, ...] = ()


def read_models(
    initial_peers: Sequence[str], timeout: float = 30.0, progress: Callable[[Gathered], None] | None = None
) -> Models:
    """Read which models the swarm serves.

    Parameters
    ----------
    initial_peers, timeout
        As for `planner.live.read_live`.
    progress
        Called after every try of asking.

    Raises
    ------
    SwarmUnreachable
        If no node of the swarm answers in time.
    """
    return run(_read_models(initial_peers, timeout, progress))


async def _read_models(
    initial_peers: Sequence[str], timeout: float, progress: Callable[[Gathered], None] | None
) -> Models:
    async with client_node(initial_peers, timeout) as node:
        read_at = time.time()
        announced, problems = await announced_models(node, read_at)
        # The freshest first: what is no longer refreshed is the likeliest to be gone.
        chosen: list[Model] = []
        for model in sorted(announced.values(), key=lambda model: (-model.expiration, model.prefix)):
            if len(chosen) < MAX_MODELS and sum(m.num_blocks for m in chosen) + model.num_blocks <= MAX_KEYS:
                chosen.append(model)
        keys = [f"{model.prefix}.{block}" for model in chosen for block in range(model.num_blocks)]
        gathered = await gather(node, keys, progress) if keys else Gathered(())
    rows = {model.prefix: _row(model, gathered, read_at) for model in chosen}
    for model in announced.values():
        note = f"not read: the swarm announces more than {MAX_MODELS} models or {MAX_KEYS:,} blocks"
        rows.setdefault(model.prefix, ModelRow(model.prefix, model.num_blocks, model.repository, note=note))
    return Models(tuple(rows[prefix] for prefix in sorted(rows)), problems)


def models_in(gathered: Gathered, read_at: float) -> dict[str, Model]:
    """List the models that are announced and in order, by prefix; records that outlive `MAX_LIFETIME` are not."""
    found: dict[str, Model] = {}
    for prefix, (value, expiration) in gathered.records(MODELS_KEY).items():
        num_blocks = value.get("num_blocks") if isinstance(value, Mapping) else None
        if (
            is_peer_id(prefix)  # one printable word: "a.b" is none of Petals' prefixes, as a block's key has one dot
            and "." not in prefix
            and isinstance(num_blocks, int)
            and not isinstance(num_blocks, bool)
            and 1 <= num_blocks <= MAX_LIVE_BLOCKS
            and read_at <= expiration <= read_at + MAX_LIFETIME
        ):
            repository = value.get("repository")
            found[prefix] = Model(
                prefix,
                num_blocks,
                repository if isinstance(repository, str) and len(repository) <= 1000 else None,
                expiration,
            )
    return found


def raw_records(gathered: Gathered, prefix: str, num_blocks: int) -> list[dict[str, object]]:
    """List the raw records of a model's blocks as a dump holds them: by block, then by subkey."""
    known: dict[int, object] = {}

    def once(value: object) -> object:
        """Keep one what is one: a server's value is the same object under all its blocks."""
        if id(value) not in known:
            known[id(value)] = plain(value)
        return known[id(value)]

    return [
        {"uid": f"{prefix}.{block}", "peer_id": subkey, "expiration": expiration, "value": once(value)}
        for block in range(num_blocks)
        for subkey, (value, expiration) in sorted(gathered.records(f"{prefix}.{block}").items())
    ]


async def announced_models(
    node: ClientNode, read_at: float, progress: Callable[[Gathered], None] | None = None
) -> tuple[dict[str, Model], tuple[str, ...]]:
    """Ask which models are announced, by prefix; and what was left out of them or hides them, one line each.

    Raises
    ------
    SwarmUnreachable
        If no node answers.
    """
    gathered = await gather_answered(node, [MODELS_KEY], progress)
    problems = [f"{MODELS_KEY}: {problem}" for problem in gathered.problems(MODELS_KEY)]
    return models_in(gathered, read_at), tuple(problems)


async def gather_answered(
    node: ClientNode,
    keys: Sequence[str],
    progress: Callable[[Gathered], None] | None = None,
    enough: float = PARTIAL,
) -> Gathered:
    """Gather `keys`, as `planner.gather.gather` does; some answer must come, be it "I do not have it".

    Raises
    ------
    SwarmUnreachable
        If none does.
    """
    calls, responses = node.calls, node.responses
    gathered = await gather(node, keys, progress, enough)
    if node.responses == responses or (not gathered.answered and gathered.unsearched):
        raise SwarmUnreachable(
            f"nodes of the swarm could be connected to, but {node.responses - responses:,} of {node.calls - calls:,} "
            f"calls for {len(gathered.keys):,} keys were answered in time; try a longer --timeout, or other "
            "--initial-peers"
        )
    return gathered


def _row(model: Model, gathered: Gathered, read_at: float) -> ModelRow:
    unsearched = gathered.unsearched
    partial = gathered.missed_by_chance >= PARTIAL or any(
        f"{model.prefix}.{block}" in unsearched for block in range(model.num_blocks)
    )
    row = ModelRow(model.prefix, model.num_blocks, model.repository, partial=partial)
    try:
        records = raw_records(gathered, model.prefix, model.num_blocks)
        state = decode(model.prefix, model.num_blocks, read_at, records)
    except NothingToPlan as error:
        return replace(row, servers=0, holes=model.num_blocks, note=str(error))
    except InputInvalid as error:
        return replace(row, note=str(error))
    held = coverage_of(state.num_blocks, ((server.serving, server.throughput) for server in state.servers))
    return replace(row, servers=len(state.servers), bottleneck=held.min_throughput, holes=held.holes)
