"""From raw records to a swarm's state, whatever their order and whoever wrote them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from planner.errors import InputInvalid, NothingToPlan
from planner.notes import Notes, blocks_text
from planner.records import AgentRecord, Record, RecordState, Rejection, read_agent, read_record
from planner.state import Agent, Server, ServerState, SwarmState, check_num_blocks
from planner.text import escape
from solver.problem import Span

CLOCK_SKEW = 3.0
"""Seconds by which peers' clocks may differ (hivemind's own limit): so long an expired record still counts."""
REFRESH = 60.0
"""Seconds between two announcements of a Petals server: records further apart are not of the same one."""
MAX_LIFETIME = 3600.0
"""Seconds after the reading by which a record must expire. Petals' records live for two minutes, and for a few times
that where an operator refreshes them less often; the newest record of a peer speaks for it, so one that lives for years
would have the last word for as long."""
MAX_HELD = 2_000_000
"""Blocks that all servers hold together, counted for each server: far above any swarm, and bounds memory."""


def decode(
    prefix: str,
    num_blocks: int,
    read_at: float,
    records: Iterable[object],
    agents: Iterable[object] = (),
    *,
    rejections: Iterable[Rejection] = (),
    notes: Iterable[str] = (),
) -> SwarmState:
    """Decode the state of the swarm that raw records describe.

    Parameters
    ----------
    prefix
        The model's DHT prefix.
    num_blocks
        Number of blocks of the model.
    read_at
        Unix time of the reading; a record counts if it expired at most `CLOCK_SKEW` before, and is dropped with a
        warning if it expires more than `MAX_LIFETIME` after.
    records, agents
        Raw block records and raw agents' records, in any order; see `planner.records` for their form. One
        that is not in order is dropped with a warning and changes nothing else.
    rejections, notes
        What the source itself had to drop, and further warnings.

    Raises
    ------
    InputInvalid
        If `num_blocks` or `read_at` is out of range, or the servers hold absurdly many blocks together.
    NothingToPlan
        If no server is left.
    """
    check_num_blocks(num_blocks)
    if not abs(read_at) < 1e15:
        raise InputInvalid("read_at must be the Unix time of the reading, in seconds")
    found = Notes(notes, rejections)
    by_peer, expired = _live_records(prefix, num_blocks, read_at, records, found)
    agent_of = _live_agents(num_blocks, read_at, agents, found)

    servers: list[Server] = []
    held = 0
    for peer_id in sorted(by_peer.keys() | agent_of.keys()):
        agent = agent_of.get(peer_id)
        server = _server(by_peer.get(peer_id, {}), num_blocks, agent, found)
        if server is None and agent is not None:
            server = _newcomer(peer_id, agent, num_blocks, found)
        if server is None:
            continue
        servers.append(server)
        held += server.span.length if server.span is not None else 0
        if held > MAX_HELD:
            raise InputInvalid(f"the servers hold over {MAX_HELD:,} blocks together: this is no real swarm")
    lines = found.lines()
    if not servers:
        why = f": {expired:,} records had expired when it was read" if expired else ""
        also = f"; {lines[0]}" if lines else ""
        raise NothingToPlan(f"no server of '{escape(prefix)}' holds blocks or waits for some{why}{also}")
    return SwarmState(prefix, num_blocks, float(read_at), tuple(servers), lines)


def _live_records(
    prefix: str, num_blocks: int, read_at: float, records: Iterable[object], notes: Notes
) -> tuple[dict[str, dict[int, Record]], int]:
    """Of each peer and block the newest record that is alive, and how many valid ones had expired."""
    newest: dict[str, dict[int, set[Record]]] = {}
    others = expired = 0
    for raw in records:
        if _of_another_model(raw, prefix):
            others += 1
            continue
        record = read_record(raw, prefix, num_blocks)
        if isinstance(record, Rejection):
            notes.drop(record)
        elif record.expiration < read_at - CLOCK_SKEW:
            expired += 1
        elif record.expiration > read_at + MAX_LIFETIME:
            notes.drop(Rejection(record.peer_id, _TOO_LONG, record.block))
        else:
            of_peer = newest.setdefault(record.peer_id, {})
            rivals = of_peer.get(record.block, set())
            best = max((rival.expiration for rival in rivals), default=-math.inf)
            if record.expiration > best:
                of_peer[record.block] = {record}
            elif record.expiration == best:
                rivals.add(record)
    if others:
        text = "a record of another model" if others == 1 else f"{others:,} records of other models"
        notes.add(None, f"ignored {text} than {escape(prefix, 80)}")
    chosen: dict[str, dict[int, Record]] = {}
    for peer_id, of_peer in newest.items():
        doubtful = [block for block, rivals in of_peer.items() if len(rivals) > 1]
        if doubtful:
            notes.add(
                peer_id,
                f"it has different records of {blocks_text(doubtful)} that expire at the same moment; JOINING was "
                "preferred to ONLINE, and ONLINE to OFFLINE",
            )
        chosen[peer_id] = {block: _preferred(rivals) for block, rivals in of_peer.items()}
    return chosen, expired


_TOO_LONG = f"it expires over {MAX_LIFETIME / 3600:g} h after the reading, which no server's own record does"


def _of_another_model(raw: object, prefix: str) -> bool:
    uid = raw.get("uid") if isinstance(raw, dict) else None
    return isinstance(uid, str) and "." in uid and uid.rpartition(".")[0] != prefix


_RANK = {RecordState.JOINING: 0, RecordState.ONLINE: 1, RecordState.OFFLINE: 2}


def _preferred(rivals: set[Record]) -> Record:
    """One of several records of a block with the same expiration, the same in any order of reading."""
    if len(rivals) == 1:
        return next(iter(rivals))
    return min(rivals, key=lambda record: (_RANK[record.state], repr(record)))


def _live_agents(num_blocks: int, read_at: float, agents: Iterable[object], notes: Notes) -> dict[str, Agent]:
    """Of each peer the newest agent's record that is alive."""
    newest: dict[str, AgentRecord] = {}
    doubtful: dict[str, float] = {}
    for raw in agents:
        record = read_agent(raw, num_blocks)
        if isinstance(record, Rejection):
            notes.drop(record)
            continue
        if record.expiration < read_at - CLOCK_SKEW:
            continue
        if record.expiration > read_at + MAX_LIFETIME:
            notes.drop(Rejection(record.peer_id, _TOO_LONG, what="agent's record"))
            continue
        rival = newest.setdefault(record.peer_id, record)
        if record.expiration == rival.expiration and record != rival:
            doubtful[record.peer_id] = record.expiration
        newest[record.peer_id] = max(rival, record, key=lambda one: (one.expiration, _canonical(one)))
    for peer_id, expiration in doubtful.items():
        if newest[peer_id].expiration == expiration:
            notes.add(peer_id, "it has different agent's records that expire at the same moment; a fixed rule chose")
    return {peer_id: record.agent for peer_id, record in newest.items()}


def _canonical(record: AgentRecord) -> str:
    # A set has no order of its own: repr() would show that of its making.
    blocks = sorted(record.agent.cached_blocks)
    return repr((replace(record.agent, cached_blocks=frozenset()), blocks))


def _server(own: Mapping[int, Record], num_blocks: int, agent: Agent | None, notes: Notes) -> Server | None:
    """Make the server whose newest record of each block is in `own`; None if it has gone."""
    announced = [record for record in own.values() if record.state is not RecordState.OFFLINE]
    if not announced:
        return None
    # A server in the middle of a change announces its new range as JOINING beside the kept one ONLINE.
    newest = min(announced, key=lambda record: (-record.expiration, _RANK[record.state], record.block))
    peer_id = newest.peer_id
    _note_contradictions(newest, announced, notes)

    missing = 0
    if newest.span is not None:
        seen = span = newest.span
    else:
        seen, missing = _visible_span(own.values(), newest.expiration - REFRESH)
        span = Span(max(0, seen.start - missing), min(num_blocks, seen.end + missing))
    offline = frozenset(
        record.block
        for record in own.values()
        if record.state is RecordState.OFFLINE and record.expiration > newest.expiration and record.block in span
    )
    if len(offline) == span.length:
        return None
    if missing:
        notes.add(
            peer_id,
            f"keys of its span {seen} are missing (up to {missing} in a row) and it does not state its span: it counts "
            f"as holding {span} and is not moved; if you know better, give --span {peer_id}=START:END",
        )
    if agent is not None and agent.capacity is not None and agent.capacity < seen.length:
        notes.add(
            peer_id,
            f"its agent announces a capacity of {agent.capacity}, but it holds {seen.length} blocks; these count",
        )
    held = frozenset(range(*span)) - offline
    joining = newest.state is RecordState.JOINING
    return Server(
        peer_id=peer_id,
        state=ServerState.JOINING if joining else ServerState.ONLINE,
        span=span,
        throughput=newest.throughput,
        seen=seen,
        uncertain=missing > 0,
        offline=offline,
        serving=held & _online_blocks(announced, newest.expiration - REFRESH) if joining else held,
        public_name=newest.public_name,
        version=newest.version,
        torch_dtype=newest.torch_dtype,
        quant_type=newest.quant_type,
        adapters=newest.adapters,
        using_relay=newest.using_relay,
        forward_rps=newest.forward_rps,
        network_rps=newest.network_rps,
        agent=agent,
    )


def _note_contradictions(newest: Record, announced: Sequence[Record], notes: Notes) -> None:
    said = {
        (record.span, record.throughput)
        for record in announced
        if record.expiration == newest.expiration and record.state is newest.state
    }
    if len(said) > 1:
        notes.add(
            newest.peer_id,
            "its newest records differ in span or throughput and expire at the same moment; that of its lowest block, "
            f"{newest.block}, counts",
        )


def _visible_span(own: Iterable[Record], oldest: float) -> tuple[Span, int]:
    """Find the range from the first to the last block announced, and the longest run of missing keys inside it."""
    fresh = [record for record in own if record.expiration >= oldest]
    held = [record.block for record in fresh if record.state is not RecordState.OFFLINE]
    seen = Span(min(held), max(held) + 1)
    # A block that was taken offline has its key: nothing is missing there.
    keys = sorted(record.block for record in fresh if record.block in seen)
    return seen, max((after - before - 1 for before, after in pairwise(keys)), default=0)


def _online_blocks(announced: Iterable[Record], oldest: float) -> frozenset[int]:
    """List the blocks of the peer's fresh ONLINE records: those of their stated spans, else each record's own."""
    spans = {
        record.span or Span(record.block, record.block + 1)
        for record in announced
        if record.state is RecordState.ONLINE and record.expiration >= oldest
    }
    blocks: set[int] = set()
    reach = 0
    for span in sorted(spans):  # in order, so that overlapping spans are walked once
        blocks.update(range(max(reach, span.start), span.end))
        reach = max(reach, span.end)
    return frozenset(blocks)


def _newcomer(peer_id: str, agent: Agent, num_blocks: int, notes: Notes) -> Server | None:
    """Make the server that waits for its first blocks; None, with a warning, if it cannot be planned."""

    def drop(reason: str) -> None:
        notes.drop(Rejection(peer_id, reason, what="agent's record"))

    if agent.span is not None:
        drop(f"it announces the span {agent.span}, but none of its blocks is announced ONLINE or JOINING")
    elif agent.state != "waiting":
        drop("it holds no blocks and does not wait for any")
    elif not agent.capacity:
        drop("it waits for blocks without saying how many it can hold (capacity)")
    else:
        length = min(agent.capacity, num_blocks)
        table = agent.throughput_by_length or ()
        throughput = table[length - 1] if length <= len(table) else agent.throughput
        if throughput is not None:
            return Server(
                peer_id=peer_id,
                state=ServerState.WAITING,
                span=None,
                throughput=throughput,
                public_name=agent.public_name,
                adapters=agent.adapters,
                using_relay=agent.using_relay,
                agent=agent,
            )
        drop("it waits for blocks without announcing its throughput")
    return None
