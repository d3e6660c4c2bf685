"""Whether a swarm is still as a plan found it: what has changed since, and what an operator may override."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from planner.errors import Drifted
from planner.plan import Plan, PlannedServer
from planner.previous import check_model
from planner.published import PublishedPlan, read_plan
from planner.state import Server, SwarmState
from planner.text import escape
from solver.problem import Span

MAX_CHANGE = 0.2
"""Share by which a server's throughput may differ from what the plan rests on."""
SHOWN = 3
"""Changes that an error's one line names."""


class Override(str, Enum):
    """What ``--force`` takes: each names one thing that stops publishing."""

    SPAN = "span"
    """A server's span changed."""
    PEERS = "peers"
    """A server is gone, or new."""
    THROUGHPUT = "throughput"
    """A server's throughput changed by over `MAX_CHANGE`."""
    PARTIAL = "partial"
    """The reading was partial, then or now."""
    EXPIRED = "expired"
    """The plan's own validity has ended."""


@dataclass(frozen=True)
class Drift:
    """One thing that stops publishing: which, whose, and what happened."""

    override: Override
    peer_id: str | None
    what: str

    def __str__(self) -> str:
        who = "" if self.peer_id is None else f"{escape(self.peer_id, 128)}: "
        return f"{who}{self.what} (--force {self.override.value})"


def drift(plan: PublishedPlan | Plan, state: SwarmState, now: float | None = None) -> tuple[Drift, ...]:
    """What has changed since the plan was made, by peer id.

    All servers count, movable or not: the plan's bottleneck and floor rest on those that stay as much as on those
    that move. A throughput is compared at the length of the server's target, where the plan states it.

    Parameters
    ----------
    plan
        What is to be published.
    state
        The swarm, read anew.
    now
        Unix time; also says whether the plan has expired.

    Raises
    ------
    InputInvalid
        If the plan is for another model.
    """
    if isinstance(plan, Plan):
        plan = read_plan(plan.to_json())
    check_model(plan, state)
    found: list[Drift] = []
    if now is not None and now > plan.valid_until:
        found.append(Drift(Override.EXPIRED, None, f"the plan expired {now - plan.valid_until:,.0f} s ago; plan again"))
    if plan.partial:
        found.append(Drift(Override.PARTIAL, None, "the plan was made from a partial reading"))
    told, present = dict(plan.told), {server.peer_id: server for server in state.servers}
    planned = {server.peer_id: server for server in plan.servers}
    for peer_id in sorted(planned.keys() | present.keys()):
        if peer_id not in present:
            found.append(Drift(Override.PEERS, peer_id, f"it is gone; it held {_name(planned[peer_id].current)}"))
        elif peer_id not in planned:
            found.append(Drift(Override.PEERS, peer_id, f"it is new, and holds {_name(present[peer_id].span)}"))
        else:
            found.extend(_changes(planned[peer_id], present[peer_id], told.get(peer_id)))
    return tuple(found)


def check_drift(drifts: Collection[Drift], forced: Collection[Override] = ()) -> tuple[Drift, ...]:
    """Those of `drifts` that are overridden, where all of them are.

    Raises
    ------
    Drifted
        If any is not; the message names the first few.
    """
    standing = [one for one in drifts if one.override not in forced]
    if standing:
        shown = "; ".join(str(one) for one in standing[:SHOWN])
        more = f"; and {len(standing) - SHOWN:,} more" if len(standing) > SHOWN else ""
        raise Drifted(f"the swarm is not as the plan found it, so plan again: {shown}{more}")
    return tuple(drifts)


def _changes(planned: PlannedServer, server: Server, told: Span | None) -> list[Drift]:
    found = []
    span = _believed(server, told)
    if span != planned.current:
        found.append(Drift(Override.SPAN, planned.peer_id, f"it held {_name(planned.current)}, now {_name(span)}"))
    # Petals' rule for other lengths starts from the present one, so the span believed must be in its place.
    target, there = planned.target, replace(server, span=span)
    before, after = planned.throughput, there.throughput if target is None else there.throughput_at(target.length)
    if abs(after - before) > MAX_CHANGE * before * (1 + 1e-9):
        change = f"from {before:,.2f} to {after:,.2f} RPS"
        found.append(Drift(Override.THROUGHPUT, planned.peer_id, f"its throughput went {change}"))
    return found


def _believed(server: Server, told: Span | None) -> Span | None:
    """Its span, where the operator told the planner one: that, as long as the new reading leaves it possible."""
    if told is None or not server.uncertain or server.seen is None:
        return server.span
    return told if server.seen.overlap(told) == server.seen.length else server.span


def _name(span: Span | None) -> str:
    return "no blocks" if span is None else str(span)
