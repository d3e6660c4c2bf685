"""Putting signed plans into the swarm: publish, keep alive, revoke, and see from another node what has arrived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from planner.drift import Drift, Override, check_drift, drift
from planner.envelope import (
    HEARTBEAT_SECONDS,
    MAX_VALIDITY,
    Refusal,
    Verified,
    check_plan,
    seal_heartbeat,
    seal_plan,
    seal_revoke,
)
from planner.errors import EnvelopeRefused, InputInvalid, SwarmUnreachable
from planner.event_loop import run
from planner.keys import PublicKey, SigningKey
from planner.live import Progress, Reading, read_from
from planner.node import ClientNode, client_node
from planner.plan import DEFAULT_VALIDITY
from planner.plan_records import (
    Judged,
    fetch_plans,
    heartbeat_subkeys,
    index_key,
    judge,
    plan_subkeys,
    plans_key,
    store_all,
)
from planner.published import PublishedPlan
from planner.when import at

KEEP_INTERVAL = 60.0
"""Seconds between two heartbeats: ten of them may be lost before moves stop."""

Storing = Callable[[Verified, bytes], None]

__all__ = [
    "KEEP_INTERVAL",
    "Beat",
    "Compared",
    "Published",
    "Storing",
    "compare",
    "keep",
    "publish",
    "read_back",
    "revoke",
]


@dataclass(frozen=True)
class Compared:
    """The swarm as it was read, and what has changed since the plan that ``--force`` has overridden."""

    reading: Reading
    overridden: tuple[Drift, ...] = ()


@dataclass(frozen=True)
class Published:
    """What was stored, and what another node then saw of it.

    Parameters
    ----------
    envelope
        The signed plan or revoke, as it was stored.
    verified
        What any reader makes of it.
    subkeys, taken
        Under which subkeys it was offered, and under which some node took it.
    seen
        What another node read afterwards.
    compared
        The swarm as it was read before; None for a revoke.
    replaced
        The plan, or revoke, of the same key that stood there before; None where none did.
    """

    envelope: bytes
    verified: Verified
    subkeys: tuple[str, ...]
    taken: tuple[str, ...]
    seen: Judged
    compared: Compared | None = None
    replaced: Verified | None = None

    @property
    def fresh_until(self) -> float | None:
        """Unix time until which moves may begin, as the other node saw it."""
        return self.seen.heartbeat.fresh_until if self.seen.heartbeat is not None else None


def publish(
    plan: PublishedPlan,
    key: SigningKey,
    initial_peers: Sequence[str],
    *,
    lease: float = HEARTBEAT_SECONDS,
    forced: Collection[Override] = (),
    timeout: float = 30.0,
    progress: Callable[[Progress], None] | None = None,
    storing: Storing | None = None,
) -> Published:
    """Read the swarm anew, and if it is as the plan found it, sign the plan and one heartbeat and store them.

    No move is begun: that is up to the servers' agents, for as long as the heartbeat lasts.

    Parameters
    ----------
    lease
        Seconds for which the heartbeat lets moves begin.
    forced
        What may have changed all the same.
    timeout
        Seconds for reading and storing, and as many again for reading back.
    storing
        Called with what any reader makes of the signed plan, and with the plan itself, when all is ready and nothing is
        stored yet. What it raises ends the publishing there.

    Raises
    ------
    PartialReading, Drifted
        If the reading is partial or the swarm has changed, and that is not in `forced`.
    EnvelopeRefused
        If no reader would take the plan.
    SwarmUnreachable
        If the swarm cannot be reached, takes nothing, or another node does not find it.
    """
    return run(_publish(plan, key, initial_peers, lease, forced, timeout, progress, storing))


def compare(
    plan: PublishedPlan,
    initial_peers: Sequence[str],
    *,
    forced: Collection[Override] = (),
    timeout: float = 30.0,
    progress: Callable[[Progress], None] | None = None,
) -> Compared:
    """Read the swarm and see whether it is as the plan found it, as `publish` does before it signs.

    Raises
    ------
    PartialReading, Drifted
        If the reading is partial or the swarm has changed, and that is not in `forced`.
    SwarmUnreachable
        If the swarm cannot be reached.
    """

    async def compare() -> Compared:
        begun = time.monotonic()
        async with client_node(initial_peers, timeout) as node:
            return await _compare(node, plan, forced, progress, begun)

    return run(compare())


def revoke(
    prefix: str,
    key: SigningKey,
    initial_peers: Sequence[str],
    *,
    timeout: float = 30.0,
    storing: Storing | None = None,
) -> Published:
    """Sign and store that no plan of this key for `prefix` holds any more; it outlives all of them.

    Parameters
    ----------
    storing
        As for `publish`.

    Raises
    ------
    SwarmUnreachable
        If the swarm cannot be reached, takes nothing, or another node does not find it.
    """
    return run(_revoke(prefix, key, initial_peers, timeout, storing))


def read_back(
    prefix: str, keys: Sequence[PublicKey], initial_peers: Sequence[str], *, timeout: float = 30.0
) -> tuple[Judged, ...]:
    """Look from a node of its own at what stands under each key's plans.

    Raises
    ------
    SwarmUnreachable
        If the swarm cannot be reached.
    """
    return run(_read_back(prefix, keys, initial_peers, timeout))


@dataclass(frozen=True)
class Beat:
    """One turn of `keep`: the subkeys that took the heartbeat, until when it counts, whether the plan was restored."""

    taken: tuple[str, ...]
    fresh_until: float
    restored: bool = False


def keep(
    published: Published, key: SigningKey, initial_peers: Sequence[str], *, timeout: float = 30.0
) -> Beat | Verified | None:
    """Send one more heartbeat for a published plan, and restore the plan where strangers have hidden it.

    Returns
    -------
    What was sent; what has taken the plan's place, in which case nothing was sent; None once the plan has expired.

    Raises
    ------
    SwarmUnreachable
        If the swarm cannot be reached, or takes nothing.
    """
    if time.time() >= published.verified.valid_until:
        return None
    return run(_keep(published, key, initial_peers, timeout))


async def _publish(
    plan: PublishedPlan,
    key: SigningKey,
    initial_peers: Sequence[str],
    lease: float,
    forced: Collection[Override],
    timeout: float,
    progress: Callable[[Progress], None] | None,
    storing: Storing | None,
) -> Published:
    if plan.status == "infeasible":
        raise InputInvalid("the plan is infeasible: there is nothing in it to publish")
    # What no reader would take is not worth asking the swarm for.
    _sealed(plan, key, epoch=1, now=time.time())
    begun = time.monotonic()
    async with client_node(initial_peers, timeout) as node:
        compared = await _compare(node, plan, forced, progress, begun)
        standing = await _standing(node, plan.prefix, key.public)
        now = time.time()
        envelope, verified = _sealed(plan, key, _epoch_after(standing), now)
        heartbeat = seal_heartbeat(verified, key, issued_at=now, seconds=lease)
        if storing is not None:
            storing(verified, envelope)
        subkeys, taken = await _store(node, verified, envelope, standing)
        await _store_heartbeat(node, verified, heartbeat, now + lease)
    seen = await _seen(verified, initial_peers, timeout)
    return Published(envelope, verified, subkeys, taken, seen, compared, standing.plan)


def _sealed(plan: PublishedPlan, key: SigningKey, epoch: int, now: float) -> tuple[bytes, Verified]:
    """The signed plan, and what any reader makes of it; one that has expired counts from now on."""
    if now > plan.valid_until:
        envelope = seal_plan(plan, key, epoch, created_at=now, valid_until=now + DEFAULT_VALIDITY)
    else:
        envelope = seal_plan(plan, key, epoch)
    return envelope, _self_check(envelope, key, plan.prefix)


async def _compare(
    node: ClientNode,
    plan: PublishedPlan,
    forced: Collection[Override],
    progress: Callable[[Progress], None] | None,
    begun: float,
) -> Compared:
    reading = await read_from(node, plan.prefix, plan.num_blocks, progress, begun)
    if Override.PARTIAL not in forced:
        reading.check_whole()
    overridden = check_drift(drift(plan, reading.state(), time.time()), forced)
    if reading.partial:
        overridden = (Drift(Override.PARTIAL, None, reading.summary()), *overridden)
    return Compared(reading, overridden)


async def _revoke(
    prefix: str, key: SigningKey, initial_peers: Sequence[str], timeout: float, storing: Storing | None
) -> Published:
    async with client_node(initial_peers, timeout) as node:
        standing = await _standing(node, prefix, key.public)
        now = time.time()
        plan_id = standing.plan.plan_id if standing.plan is not None else None
        envelope = seal_revoke(
            prefix, plan_id, key, _epoch_after(standing), created_at=now, valid_until=now + MAX_VALIDITY
        )
        verified = _self_check(envelope, key, prefix)
        if storing is not None:
            storing(verified, envelope)
        subkeys, taken = await _store(node, verified, envelope, standing)
    seen = await _seen(verified, initial_peers, timeout)
    return Published(envelope, verified, subkeys, taken, seen, replaced=standing.plan)


async def _keep(
    published: Published, key: SigningKey, initial_peers: Sequence[str], timeout: float
) -> Beat | Verified | None:
    plan = published.verified
    async with client_node(initial_peers, timeout) as node:
        standing = await _standing(node, plan.prefix, key.public)
        if standing.plan is not None and standing.plan.epoch > plan.epoch:
            return standing.plan
        now = time.time()
        restored = len(standing.intact) < 2
        if restored:
            await _store(node, plan, published.envelope, standing)
        heartbeat = seal_heartbeat(plan, key, issued_at=now)
        taken = await _store_heartbeat(node, plan, heartbeat, now + HEARTBEAT_SECONDS)
    return Beat(taken, now + HEARTBEAT_SECONDS, restored)


async def _read_back(
    prefix: str, keys: Sequence[PublicKey], initial_peers: Sequence[str], timeout: float
) -> tuple[Judged, ...]:
    async with client_node(initial_peers, timeout) as node:
        found = await fetch_plans(node, prefix, [key.key_id for key in keys])
    return tuple(judge(found[key.key_id], key, prefix) for key in keys)


async def _seen(verified: Verified, initial_peers: Sequence[str], timeout: float) -> Judged:
    (seen,) = await _read_back(verified.prefix, [verified.key], initial_peers, timeout)
    if seen.plan is None or (seen.plan.epoch, seen.plan.payload_hash) != (verified.epoch, verified.payload_hash):
        other = f"it finds epoch {seen.plan.epoch}" if seen.plan is not None else "it finds none that holds"
        raise SwarmUnreachable(
            f"epoch {verified.epoch} was stored, but another node does not find it: {other}; see plan-swarm status, "
            "and publish again"
        )
    return seen


async def _standing(node: ClientNode, prefix: str, key: PublicKey) -> Judged:
    """What stands under a key's plans now."""
    return judge((await fetch_plans(node, prefix, [key.key_id]))[key.key_id], key, prefix)


def _epoch_after(standing: Judged) -> int:
    return max((standing.last_epoch or 0) + 1, int(time.time() * 1000))


def _self_check(envelope: bytes, key: SigningKey, prefix: str) -> Verified:
    """What a reader makes of it, before anyone is shown it."""
    verdict = check_plan(envelope, trusted=(key.public,), prefix=prefix, now=time.time())
    if isinstance(verdict, Refusal):
        raise EnvelopeRefused(f"readers would refuse it: {verdict}")
    return verdict


async def _store(
    node: ClientNode, verified: Verified, envelope: bytes, standing: Judged
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Store the envelope and the index entry; the subkeys offered, and those taken."""
    expiration = min(verified.valid_until, time.time() + MAX_VALIDITY)
    subkeys, key_id = plan_subkeys(verified.epoch), verified.key.key_id
    taken, _ = await asyncio.gather(
        store_all(node, plans_key(verified.prefix, key_id), subkeys, envelope, expiration),
        store_all(node, index_key(verified.prefix), [key_id], verified.key.raw, expiration),
    )
    if not taken:
        raise SwarmUnreachable(_not_taken(verified, standing))
    return subkeys, tuple(taken)


async def _store_heartbeat(
    node: ClientNode, verified: Verified, heartbeat: bytes, fresh_until: float
) -> tuple[str, ...]:
    key = plans_key(verified.prefix, verified.key.key_id)
    taken = await store_all(node, key, heartbeat_subkeys(), heartbeat, fresh_until)
    if not taken:
        raise SwarmUnreachable(
            f"no node of the swarm took a heartbeat for epoch {verified.epoch}, so no move begins by it; try again,"
            " with a longer --timeout"
        )
    return tuple(taken)


def _not_taken(verified: Verified, standing: Judged) -> str:
    if standing.blocked_until is None:
        return (
            f"no node of the swarm took epoch {verified.epoch} in time; plan-swarm status shows whether it stands all"
            " the same, and try again, with a longer --timeout"
        )
    blocked = (
        f"somebody has put a plain value in the place of all plans of this key, until {at(standing.blocked_until)}"
    )
    if verified.plan is not None:
        return f"{blocked}: until then, publish with another key (plan-swarm keygen) that the servers' agents trust"
    return (
        f"{blocked}: nothing can be revoked before; end plan-swarm publish --keep, and moves stop when the last "
        "heartbeat has run out"
    )
