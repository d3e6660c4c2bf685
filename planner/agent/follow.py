"""What an agent does next: the rule by which servers follow a plan without anybody who leads them.

A move begins only if (a) every move that the plan puts before it is seen done, (b) no block falls below the plan's
floor by it, and (c) plan and lease hold. `decide` is pure: what it knows is a `View`, what it wants is a `Step`.

A record alone only ever keeps an agent where it is: what a move rests on, a peer has answered itself over libp2p
(`planner.agent.slack` says who counts, and with how much).

**Two agents and one slack.** An agent announces its intent, waits a refresh and some seconds (`Intend`), asks again,
and goes. Whoever has an intent and comes before it (`planner.agent.turns`) counts as gone already; so both go where
there is room for both. Of two agents A and B, A before B, B goes in ignorance of A's intent only if that was stored
less than a refresh and `ANSWER_AGE` before; A, which waits for longer by `MARGIN`, then asks B after B has gone. What
an intent covers is not what it says: it is what the plan lets its author drop, as far as the author answers that it
holds it. So a stranger's word for it does no more than hold back, and that until one's own turn.

What remains: who can *suppress* an intent in the DHT, and has two agents decide within `MARGIN` of one another, may
have them both go. It does not where peers answer with their intent beside their span; `View.intents` takes either. The
same holds of two agents that follow different plans: intents count under one's own only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from planner.agent.record import Intent
from planner.agent.slack import Slack, outside
from planner.agent.turns import CLOCKS, MARGIN, Turns
from planner.envelope import Heartbeat, Verified
from planner.notes import blocks_text
from planner.plan import PlannedServer
from planner.published import PublishedPlan
from planner.state import Server, ServerState, SwarmState
from planner.text import escape
from solver.problem import Span

ANSWER_AGE = 8.0
"""Seconds for which the answers of peers may be acted upon; `MARGIN` has room for it."""


@dataclass(frozen=True)
class View:
    """All that a decision rests on.

    Parameters
    ----------
    now
        Unix time, taken just before the decision, after all asking. Where the clock has been set since `own_intent`
        was announced, that is to be dropped: nobody knows how long it has been waited.
    span
        What this server serves now; None if nothing.
    refresh
        Seconds between two looks. What was stored a refresh before an agent begins to ask is in its reading. The same
        for all agents of a swarm: how long one waits rests on how late the others read.
    state
        The swarm as the usual decoder reads it, at most a refresh before asking; None where it could not be read.
    partial
        Whether keys are likely to be missing in `state`.
    plan
        The plan, or the revoke, that counts; None where no trusted key has one that holds.
    confirmed
        By peer id what it serves, as it answered itself; None where it did not answer or serves nothing. A peer that
        is not in here was not asked.
    asked_at
        Unix time at which the first of `confirmed` was asked.
    intents
        Of other agents: as their records have them, or, which nobody can suppress, their own answers.
    ahead
        Seconds by which other servers' clocks are ahead of this one; None where it is not known.
    own_intent
        The intent that was returned last, unless any other step than `Ask` has been since. `since` is to be the
        time at which it was *stored*; one that was not stored is none.
    """

    now: float
    peer_id: str
    span: Span | None
    refresh: float
    state: SwarmState | None
    plan: Verified | None
    heartbeat: Heartbeat | None
    partial: bool = False
    pinned: bool = False
    confirmed: Mapping[str, Span | None] = field(default_factory=dict)
    asked_at: float | None = None
    intents: Mapping[str, Intent] = field(default_factory=dict)
    own_intent: Intent | None = None
    ahead: float | None = None


@dataclass(frozen=True)
class Stay:
    """Stay, and announce no intent: one that cannot be acted upon would hold others back."""

    why: str
    state: Literal["serving", "waiting"]


@dataclass(frozen=True)
class Ask:
    """Ask these peers over libp2p what they serve, all at once, and decide anew with the answers."""

    peers: tuple[str, ...]


@dataclass(frozen=True)
class Intend:
    """Announce `intent` (or go on announcing it), and look again at `again_at` (Unix time) at the latest."""

    intent: Intent
    why: str
    again_at: float
    state: Literal["waiting"] = "waiting"


@dataclass(frozen=True)
class Go:
    """Begin the move, now: answer at once without the blocks that it drops, and only then announce that."""

    target: Span | None
    plan_id: str
    epoch: int


Step = Stay | Ask | Intend | Go


def decide(view: View) -> Step:
    """What to do next. A step's `why` names what is waited for, and stays the same as long as that does."""
    why = _nothing_to_follow(view)
    if why is not None:
        return Stay(why, "serving" if view.span is not None else "waiting")
    assert view.plan is not None
    assert view.plan.plan is not None
    plan = view.plan.plan
    row = next(server for server in plan.servers if server.peer_id == view.peer_id)
    dropped = outside(view.span, row.target)
    why = _no_begin(view, plan, row, dropped) or _out_of_order(view, plan, row, asked=False)
    if why is not None:
        return Stay(why, "waiting")
    assert view.state is not None
    slack = Slack(plan, row, view.span, view.state, view.confirmed)
    unasked = sorted({*row.after, *slack.announced()} - view.confirmed.keys())
    if unasked:
        return Ask(tuple(unasked))
    if view.confirmed and (view.asked_at is None or not 0 <= view.now - view.asked_at <= ANSWER_AGE):
        return Stay("the other servers took too long to answer", "waiting")
    why = _out_of_order(view, plan, row, asked=True) or slack.below_floor()
    if why is not None:
        return Stay(why, "waiting")
    return _claim(view, slack, dropped) if dropped else Go(row.target, plan.plan_id, plan.epoch)


def _claim(view: View, slack: Slack, dropped: tuple[int, ...]) -> Intend | Go:
    """Take slack that was seen: announced first, and not while those who come before need it."""
    plan, row = slack.plan, slack.row
    intent = view.own_intent
    if intent is None or (intent.plan_id, intent.epoch) != (plan.plan_id, plan.epoch) or intent.since > view.now:
        intent = Intent(plan.plan_id, plan.epoch, _ranges(dropped), view.now)
    ready = intent.since + view.refresh + ANSWER_AGE + MARGIN
    if view.now < ready:
        return Intend(intent, f"has announced that it will drop {blocks_text(dropped)}", ready)
    turns = Turns(plan)
    rivals = [other for other in turns.before(row, view.now) if _intends(view, plan, other)]
    if rivals and slack.below_floor(gone=frozenset(other.peer_id for other in rivals)) is not None:
        who = escape(rivals[0].peer_id, 128)
        return Intend(intent, f"lets {who} go first, which drops the same blocks", turns.next_turn(row, view.now))
    return Go(row.target, plan.plan_id, plan.epoch)


def _intends(view: View, plan: PublishedPlan, other: PlannedServer) -> bool:
    """Whether somebody answers and is said to have an intent under this plan."""
    intent = view.intents.get(other.peer_id)
    known = intent is not None and (intent.plan_id, intent.epoch) == (plan.plan_id, plan.epoch)
    return known and view.confirmed.get(other.peer_id) is not None


# What holds at all ---------------------------------------------------------------------------------------


def _nothing_to_follow(view: View) -> str | None:
    """Why no plan moves this server; the empty text where it is where the plan wants it."""
    if view.ahead is not None and abs(view.ahead) > CLOCKS:
        return f"this machine's clock differs by more than {CLOCKS:g} s from other servers': set it"
    if view.plan is None:
        return "" if view.span is not None else "no plan yet"
    if view.plan.plan is None:
        return f"plan {view.plan.plan_id} was revoked" if view.plan.plan_id is not None else "all plans were revoked"
    plan = view.plan.plan
    if not view.now < view.plan.valid_until:
        return f"plan {plan.plan_id} has expired"
    row = next((server for server in plan.servers if server.peer_id == view.peer_id), None)
    if row is None:
        return f"plan {plan.plan_id} does not have this server"
    if view.span == row.target:
        return "" if view.span is not None else f"plan {plan.plan_id} gives it no blocks"
    if view.pinned:
        return f"pinned by its owner; plan {plan.plan_id} would have it serve {_name(row.target)}"
    # Without blocks it can only help by taking those that the plan counts on it for.
    if not row.movable or not (row.moves or view.span is None):
        return f"plan {plan.plan_id} does not move it, and found it with {_name(row.current)}"
    return None


def _no_begin(view: View, plan: PublishedPlan, row: PlannedServer, dropped: tuple[int, ...]) -> str | None:
    """Why no move may begin now, whatever other servers do."""
    if not set(dropped) <= set(row.dropped):
        # The plan's order and floor, and the turns, know of those blocks only.
        return f"plan {plan.plan_id} found it with {_name(row.current)}, not {_name(view.span)}: plan again"
    if view.heartbeat is None or view.plan is None or not _lease_holds(view.heartbeat, view.plan, view.now):
        return f"no fresh heartbeat of plan {plan.plan_id}: no move begins"
    if view.state is None:
        return "the swarm could not be read"
    if view.partial:
        return "the swarm was read only in part"
    asked_at = view.now if view.asked_at is None else view.asked_at
    if not abs(asked_at - view.state.read_at) <= view.refresh:
        return "the reading of the swarm is too old"
    if (view.state.prefix, view.state.num_blocks) != (plan.prefix, plan.num_blocks):
        return f"plan {plan.plan_id} is for another model"
    return None


def _lease_holds(heartbeat: Heartbeat, plan: Verified, now: float) -> bool:
    of = (heartbeat.key, heartbeat.prefix, heartbeat.epoch, heartbeat.plan_id)
    return of == (plan.key, plan.prefix, plan.epoch, plan.plan_id) and now < heartbeat.fresh_until


# Order ---------------------------------------------------------------------------------------------------


def _out_of_order(view: View, plan: PublishedPlan, row: PlannedServer, *, asked: bool) -> str | None:
    """Which move that comes before is not done, by the records and, once they were asked, by their answers."""
    assert view.state is not None
    targets = {server.peer_id: server.target for server in plan.servers}
    present = {server.peer_id: server for server in view.state.servers}
    for peer_id in row.after:
        target = targets[peer_id]
        why = _not_seen_at(target, present.get(peer_id))
        if why is None and asked:
            why = _not_confirmed_at(target, view.confirmed.get(peer_id))
        if why is not None:
            return f"waits for {escape(peer_id, 128)} to serve {_name(target)}: {why}"
    return None


def _not_seen_at(target: Span | None, server: Server | None) -> str | None:
    span = server.span if server is not None else None
    if span != target:
        return "it is not in the swarm" if server is None else f"it announces {_name(span)}"
    if server is None or target is None:
        return None
    if server.state is not ServerState.ONLINE:
        return f"it is {server.state.value}"
    return None if server.serving == frozenset(range(*target)) else "it announces a part of it OFFLINE"


def _not_confirmed_at(target: Span | None, answer: Span | None) -> str | None:
    if target is None:
        return None if answer is None else f"it still answers for {answer}"
    if answer is None:
        return "it announces that, and does not answer"
    return None if answer.overlap(target) == target.length else f"it announces that, and answers for {answer} only"


# Words ----------------------------------------------------------------------------------------------------


def _ranges(blocks: tuple[int, ...]) -> tuple[Span, ...]:
    """Ascending block numbers as ranges."""
    starts = [block for block in blocks if block - 1 not in blocks]
    ends = [block + 1 for block in blocks if block + 1 not in blocks]
    return tuple(Span(*bounds) for bounds in zip(starts, ends, strict=True))


def _name(span: Span | None) -> str:
    return "no blocks" if span is None else str(span)
