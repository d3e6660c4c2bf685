"""The swarm's state as it was read at one moment: what is, frozen and validated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from planner.canonical import canonical_json
from planner.errors import InputInvalid, NothingToPlan
from solver.problem import Span

MAX_BLOCKS = 100_000
"""More blocks than any model has; a larger number is a mistake or an attack."""


class ServerState(str, Enum):
    """What a server says of itself, or, without block records, what its agent says."""

    ONLINE = "online"
    JOINING = "joining"
    WAITING = "waiting"
    """A newcomer: its agent has announced itself, and it holds no blocks yet."""


@dataclass(frozen=True)
class Agent:
    """The record of the agent that runs on a server; fields that it did not announce are None."""

    state: str
    span: Span | None = None
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


@dataclass(frozen=True)
class Server:
    """One server of the swarm.

    Parameters
    ----------
    peer_id
        What identifies it. Public names do not: several servers may share one.
    state
        ONLINE, JOINING, or WAITING for a newcomer.
    span
        The blocks that it counts as holding, or will hold once it has joined; None for a newcomer.
    throughput
        RPS through each block that it holds, as announced; for a newcomer, at the length it will take.
    seen
        The range from its first to its last visible block. It differs from `span` only where the span is
        uncertain and was stretched.
    uncertain
        True where keys inside the span are missing and the server does not state its span itself.
    offline
        Blocks inside the span that the server itself has announced OFFLINE since.
    serving
        For a JOINING server, the blocks that it serves already while it loads others; all of `span` less
        `offline` for an ONLINE one.
    forward_rps, network_rps, using_relay
        What Petals' rule for the throughput at other lengths needs; None where not announced.
    agent
        The record of its agent, if it has one.
    """

    peer_id: str
    state: ServerState
    span: Span | None
    throughput: float
    seen: Span | None = None
    uncertain: bool = False
    offline: frozenset[int] = frozenset()
    serving: frozenset[int] = frozenset()
    public_name: str | None = None
    version: str | None = None
    torch_dtype: str | None = None
    quant_type: str | None = None
    adapters: tuple[str, ...] = ()
    using_relay: bool | None = None
    forward_rps: float | None = None
    network_rps: float | None = None
    agent: Agent | None = None

    @property
    def held(self) -> frozenset[int]:
        """The blocks that it holds or will hold where it is: its span less what it took offline."""
        return frozenset() if self.span is None else frozenset(range(*self.span)) - self.offline

    def capacity(self, num_blocks: int) -> int:
        """The most blocks of a model of `num_blocks` that it can hold: its agent's word, else its present length."""
        length = self.span.length if self.span is not None else 0
        announced = self.agent.capacity if self.agent is not None and self.agent.capacity is not None else 0
        return min(max(length, announced), num_blocks)

    def throughput_at(self, length: int) -> float:
        """RPS through each block when it holds `length` blocks.

        At its present length that is what it announces. At another, in this order: its agent's table; Petals'
        own rule, ``min(forward_rps / ((n + 1) / 2), network_rps * (0.2 if using_relay else 1))``
        (`petals.server.throughput.get_server_throughput`), scaled so that it equals the announced throughput
        at the present length; else the announced throughput.
        """
        if self.span is not None and length == self.span.length:
            return self.throughput
        table = self.agent.throughput_by_length if self.agent is not None else None
        if table is not None and length <= len(table):
            return table[length - 1]
        if self.span is None or self.forward_rps is None:
            return self.throughput
        present = self._petals_rps(self.span.length)
        return self.throughput * self._petals_rps(length) / present if present > 0 else self.throughput

    def knows_throughput_at(self, length: int) -> bool:
        """Whether `throughput_at` has more to go by for `length` blocks than what is announced for another length."""
        if self.span is not None and length == self.span.length:
            return True
        table = self.agent.throughput_by_length if self.agent is not None else None
        if table is not None and length <= len(table):
            return True
        return self.span is not None and self.forward_rps is not None and self._petals_rps(self.span.length) > 0

    def _petals_rps(self, length: int) -> float:
        assert self.forward_rps is not None
        compute = self.forward_rps / ((length + 1) / 2)
        if self.network_rps is None:
            return compute
        return min(compute, self.network_rps * (0.2 if self.using_relay else 1.0))


@dataclass(frozen=True)
class SwarmState:
    """All servers of one model, read at one moment.

    Parameters
    ----------
    prefix
        The model's DHT prefix.
    num_blocks
        Number of blocks of the model.
    read_at
        Unix time of the reading; ages are judged against it.
    servers
        Sorted by peer id, each peer once.
    warnings
        What was dropped or is doubtful, one line each.
    partial
        Whether more servers and blocks held are likely to exist than the reading has found: what looks like a hole may
        be none, so nobody is moved.

    Raises
    ------
    InputInvalid
        If `num_blocks` is out of range, or a span is.
    NothingToPlan
        If there are no servers.
    """

    prefix: str
    num_blocks: int
    read_at: float
    servers: tuple[Server, ...]
    warnings: tuple[str, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        check_num_blocks(self.num_blocks)
        if not self.servers:
            raise NothingToPlan(f"no server holds blocks of {self.prefix!r} or waits for some: nothing to plan")
        peer_ids = [server.peer_id for server in self.servers]
        if peer_ids != sorted(set(peer_ids)):
            raise InputInvalid("servers must be sorted by peer id, each once")
        for server in self.servers:
            for span in (server.span, server.seen):
                if span is not None and not 0 <= span.start < span.end <= self.num_blocks:
                    raise InputInvalid(f"{server.peer_id}: span {span} is outside the model's 0:{self.num_blocks}")

    def with_spans(self, spans: dict[str, Span]) -> SwarmState:
        """The same state where the spans of some peers are known better than the reading says.

        What is still loading goes on loading: a JOINING server serves no more than before.
        """
        servers = tuple(
            replace(
                server,
                span=spans[server.peer_id],
                seen=spans[server.peer_id],
                uncertain=False,
                offline=frozenset(),
                serving=frozenset(range(*spans[server.peer_id]))
                if server.state is ServerState.ONLINE
                else server.serving.intersection(range(*spans[server.peer_id])),
            )
            if server.peer_id in spans
            else server
            for server in self.servers
        )
        resolved = {server.peer_id for server in self.servers if server.uncertain and server.peer_id in spans}
        answered = tuple(f"--span {peer}=START:END" for peer in resolved)
        warnings = tuple(warning for warning in self.warnings if not warning.endswith(answered))
        return replace(self, servers=servers, warnings=warnings)

    def fingerprint(self) -> str:
        """A hash of what a plan rests on: peers, states, spans, throughput to 3 digits, agents' capacities."""
        rows: list[Sequence[Any]] = [
            (
                server.peer_id,
                server.state.value,
                server.span,
                sorted(server.offline),
                server.uncertain,
                f"{server.throughput:.2e}",
                server.agent.capacity if server.agent is not None else None,
            )
            for server in self.servers
        ]
        return hashlib.sha256(canonical_json([self.prefix, self.num_blocks, rows]).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values; equal states give equal canonical JSON."""
        document = asdict(self)
        for row, server in zip(document["servers"], self.servers, strict=True):
            row["state"] = server.state.value
            row["offline"], row["serving"] = sorted(server.offline), sorted(server.serving)
            if server.agent is not None:
                row["agent"]["cached_blocks"] = sorted(server.agent.cached_blocks)
        return document


def check_num_blocks(num_blocks: object) -> int:
    """`num_blocks` itself, where it is an integer from 1 to `MAX_BLOCKS`.

    Raises
    ------
    InputInvalid
        If it is anything else.
    """
    if isinstance(num_blocks, bool) or not isinstance(num_blocks, int):
        raise InputInvalid(f"num_blocks must be an integer from 1 to {MAX_BLOCKS:,}, not {str(num_blocks)[:40]!r}")
    if not 1 <= num_blocks <= MAX_BLOCKS:
        raise InputInvalid(f"num_blocks must be from 1 to {MAX_BLOCKS:,}, not {num_blocks}")
    return num_blocks
