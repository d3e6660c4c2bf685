"""Whom an operator means, and who may move."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.errors import InfeasibleDemands, PolicyInvalid
from planner.plan import PARTIAL_READING
from planner.policy import Policy
from planner.state import Server, ServerState, SwarmState
from planner.text import escape
from solver.problem import Span

CANDIDATES_SHOWN = 8


def find_peer(state: SwarmState, text: str) -> Server:
    """The one server whose peer id is `text`, or else contains it.

    Raises
    ------
    PolicyInvalid
        If there is none, or several; the message lists candidates.
    """
    exact = [server for server in state.servers if server.peer_id == text]
    if exact:
        return exact[0]
    matches = [server for server in state.servers if text and text in server.peer_id]
    if len(matches) == 1:
        return matches[0]
    shown = escape(text, 80)
    if matches:
        raise PolicyInvalid(
            f"peer {shown!r} is ambiguous: it may be {_listed([m.peer_id for m in matches])}; write more"
        )
    peer_ids = [server.peer_id for server in state.servers]
    near = difflib.get_close_matches(text, peer_ids, CANDIDATES_SHOWN, 0.5) or peer_ids
    raise PolicyInvalid(f"no peer id contains {shown!r}; there are {_listed(near)}")


def _listed(peer_ids: list[str]) -> str:
    shown = ", ".join(escape(peer_id, 80) for peer_id in peer_ids[:CANDIDATES_SHOWN])
    more = len(peer_ids) - CANDIDATES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def resolve_policy(state: SwarmState, policy: Policy) -> Policy:
    """The same policy with whole peer ids, sorted, so that equal wishes are equal policies.

    Raises
    ------
    PolicyInvalid
        If a peer is unknown or ambiguous, or a span told by the operator is outside the model or a newcomer's.
    InfeasibleDemands
        If what is asked of a server contradicts itself.
    """

    def whole(peer: str) -> str:
        return find_peer(state, peer).peer_id

    pins = _once("--pin", [(whole(peer), span) for peer, span in policy.pins])
    spans = _once("--span", [(whole(peer), span) for peer, span in policy.spans])
    cordons, drains = {whole(peer) for peer in policy.cordons}, {whole(peer) for peer in policy.drains}
    for peer, span in spans.items():
        if span is not None and span.end > state.num_blocks:
            where = f"outside the model's 0:{state.num_blocks}"
            raise PolicyInvalid(f"--span {escape(peer)}={span} is {where}")
        if find_peer(state, peer).span is None:
            raise PolicyInvalid(f"--span {escape(peer)}={span}: it holds no blocks yet; --pin says where it is to go")
    for peer in sorted(drains & (cordons | set(pins))):
        raise InfeasibleDemands(f"{escape(peer)} is asked to drain and to stay: leave out --drain or --pin/--cordon")
    return replace(
        policy,
        pins=tuple(sorted(pins.items(), key=lambda pin: pin[0])),
        spans=tuple(sorted((peer, span) for peer, span in spans.items() if span is not None)),
        cordons=tuple(sorted(cordons)),
        drains=tuple(sorted(drains)),
    )


def _once(option: str, wishes: list[tuple[str, Span | None]]) -> Mapping[str, Span | None]:
    found: dict[str, Span | None] = {}
    for peer, span in wishes:
        if peer in found and found[peer] != span:
            one, other = (found[peer] or "where it is"), (span or "where it is")
            raise InfeasibleDemands(f"{option} names {escape(peer)} twice: at {one} and at {other}; keep one")
        found[peer] = span
    return found


@dataclass(frozen=True)
class Role:
    """What the solver may do with a server.

    At most one of the three is set: `why_not` says why it is a constant, `only` is the span that it must take,
    `drained` empties it. None of them: it is free.
    """

    why_not: str | None = None
    only: Span | None = None
    drained: bool = False


def assign_roles(state: SwarmState, policy: Policy) -> dict[str, Role]:
    """Who may move, by peer id. `policy` has whole peer ids.

    Raises
    ------
    InfeasibleDemands
        If a pin is outside the model, longer than the server's capacity, or moves a server that cannot be moved.
    """
    pins = dict(policy.pins)
    agents_only = policy.movable == "agents" or (policy.movable is None and any(s.agent for s in state.servers))
    return {server.peer_id: _role(state, policy, pins, agents_only, server) for server in state.servers}


def _role(
    state: SwarmState, policy: Policy, pins: Mapping[str, Span | None], agents_only: bool, server: Server
) -> Role:
    if server.peer_id in policy.drains:
        return Role(drained=True) if server.span is not None else Role(why_not="drained")
    constant = _why_constant(server)
    pin = pins.get(server.peer_id)
    if pin is not None:
        _check_pin(state, server, pin, constant)
        if server.peer_id in policy.cordons and pin != server.span:
            raise InfeasibleDemands(f"{escape(server.peer_id)} is cordoned and pinned to {pin}: leave out one of them")
        return Role(why_not="pinned") if pin == server.span else Role(only=pin)
    if server.peer_id in pins:
        return Role(why_not="pinned")
    if server.peer_id in policy.cordons:
        return Role(why_not="cordoned")
    if constant is not None:
        return Role(why_not=constant)
    if state.partial:
        return Role(why_not=PARTIAL_READING)
    if server.agent is not None and server.agent.pinned:
        return Role(why_not="pinned by its agent")
    if agents_only and server.agent is None:
        return Role(why_not="no agent")
    return Role()


def _why_constant(server: Server) -> str | None:
    """Why nobody can move the server, whatever the operator asks; None if it can be moved."""
    if server.span is None and not (server.agent is not None and server.agent.capacity):
        return "capacity unknown"
    if server.state is ServerState.JOINING:
        return "joining"
    if server.uncertain:
        return "span uncertain"
    if server.offline:
        return "partly offline"
    return None


def _check_pin(state: SwarmState, server: Server, pin: Span, constant: str | None) -> None:
    peer = escape(server.peer_id)
    if pin.end > state.num_blocks:
        raise InfeasibleDemands(f"--pin {peer}={pin} is outside the model's 0:{state.num_blocks}")
    capacity = server.capacity(state.num_blocks)
    if pin.length > capacity:
        raise InfeasibleDemands(f"--pin {peer}={pin} takes {pin.length} blocks, it can hold {capacity}")
    if constant is not None and pin != server.span:
        way_out = "; tell its true span with --span" if server.uncertain else "; plan again when it has settled"
        raise InfeasibleDemands(f"--pin {peer}={pin} would move a server that is {constant}{way_out}")
