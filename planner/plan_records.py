"""Where signed plans stand in the DHT, how they are put there, and what is found there: anything, from anyone.

A plan stands under `plans_key` of its prefix and key, in several subkeys: one that names its epoch, and fresh random
ones that nobody can overwrite before having seen them. Heartbeats stand beside it. The index `index_key` says which
keys have published; it is a hint and proves nothing. Readers judge every subkey by itself.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.envelope import Heartbeat, Kind, Reason, Refusal, Verified, check_heartbeat, check_plan, open_envelope
from planner.errors import KeyUnusable
from planner.keys import PublicKey
from planner.node import ClientNode
from planner.swarm_models import gather_answered
from planner.text import show
from planner.wire import Unreadable

PLANS_KEY = "_plan_swarm.plans."
"""Followed by the prefix: the index; and by a dot and a key's id: the plans of that key."""
HEARTBEAT = "heartbeat"
RANDOM_PLAN_SUBKEYS, RANDOM_HEARTBEAT_SUBKEYS = 4, 2
MAX_INDEXED = 20
"""Keys of an index that are looked at: anyone may add any number."""

_EPOCH = re.compile(r"epoch-([0-9]{1,16})")


def index_key(prefix: str) -> str:
    """The key whose subkeys are the ids of keys that have published plans for `prefix`."""
    return f"{PLANS_KEY}{prefix}"


def plans_key(prefix: str, key_id: str) -> str:
    """The key under which the plans of one operator's key stand."""
    return f"{PLANS_KEY}{prefix}.{key_id}"


def plan_subkeys(epoch: int) -> tuple[str, ...]:
    """New subkeys for a plan: the one that names its epoch, then random ones of 64 bits."""
    return (f"epoch-{epoch}", *(secrets.token_hex(8) for _ in range(RANDOM_PLAN_SUBKEYS)))


def heartbeat_subkeys() -> tuple[str, ...]:
    """New subkeys for a heartbeat: the well-known one, then random ones of 64 bits."""
    return (HEARTBEAT, *(secrets.token_hex(8) for _ in range(RANDOM_HEARTBEAT_SUBKEYS)))


async def store_all(node: ClientNode, key: str, subkeys: Sequence[str], value: bytes, expiration: float) -> list[str]:
    """Store one value under several subkeys; those that some node took."""
    taken = await asyncio.gather(*(node.store(key, subkey, value, expiration) for subkey in subkeys))
    return [subkey for subkey, done in zip(subkeys, taken, strict=True) if done]


@dataclass(frozen=True)
class Found:
    """What stands under one key's plans, not yet judged.

    Parameters
    ----------
    records
        Of each subkey its value and expiration (Unix time).
    problems
        What was left out, and what hides the records, one line each.
    blocked_until
        Unix time until which a plain value stands in the place of all subkeys; None where none does. A node that holds
        it takes no record that ends before.
    """

    key_id: str
    records: Mapping[str, tuple[Any, float]]
    problems: tuple[str, ...] = ()
    blocked_until: float | None = None


@dataclass(frozen=True)
class Index:
    """The keys that the index names.

    Parameters
    ----------
    ignored
        How many of its entries are no keys or too many.
    problems
        What was left out, and what hides entries, one line each.
    """

    keys: tuple[PublicKey, ...] = ()
    ignored: int = 0
    problems: tuple[str, ...] = ()


async def fetch_plans(node: ClientNode, prefix: str, key_ids: Collection[str]) -> dict[str, Found]:
    """Look up the plans of some keys, in several tries; those that nobody has are there without records."""
    keys = {plans_key(prefix, key_id): key_id for key_id in key_ids}
    if not keys:
        return {}
    gathered = await gather_answered(node, list(keys))
    return {
        key_id: Found(key_id, dict(gathered.records(key)), tuple(gathered.problems(key)), gathered.plain_until(key))
        for key, key_id in keys.items()
    }


async def fetch_index(node: ClientNode, prefix: str) -> Index:
    """Look up which keys say that they have published plans for `prefix`."""
    key = index_key(prefix)
    gathered = await gather_answered(node, [key])
    found: list[PublicKey] = []
    records = sorted(gathered.records(key).items(), key=lambda item: (-item[1][1], item[0]))
    for subkey, (value, _) in records:
        try:
            public = PublicKey(value) if isinstance(value, bytes) else None
        except KeyUnusable:
            continue
        if public is not None and public.key_id == subkey and len(found) < MAX_INDEXED:
            found.append(public)
    ignored = len(records) - len(found)
    return Index(tuple(sorted(found, key=lambda public: public.key_id)), ignored, tuple(gathered.problems(key)))


@dataclass(frozen=True)
class Judged:
    """What the records of one key amount to.

    Parameters
    ----------
    plan
        The plan, or the revoke, of the highest epoch that holds now; None where there is none.
    heartbeat
        The one that lets moves of `plan` begin for longest.
    last_epoch
        The highest epoch that this key has signed in any of the records, whether it holds or not; None if in none.
    intact
        The subkeys in which `plan` stands.
    refusals
        By subkey why what stands there does not count.
    overwritten
        Subkeys that are the operator's by their name and hold something that the operator did not put there: that of
        the heartbeat first, then by epoch, the highest first.
    problems, blocked_until
        Those of `Found`.
    """

    key: PublicKey
    plan: Verified | None = None
    heartbeat: Heartbeat | None = None
    last_epoch: int | None = None
    intact: tuple[str, ...] = ()
    refusals: tuple[tuple[str, Refusal], ...] = ()
    overwritten: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    blocked_until: float | None = None

    @property
    def hidden(self) -> bool:
        """Whether strangers' records are all that is left."""
        strangers = {Reason.MALFORMED, Reason.FOREIGN_KEY, Reason.TOO_LARGE, Reason.BAD_SIGNATURE}
        return self.last_epoch is None and any(refusal.reason in strangers for _, refusal in self.refusals)


def judge(
    found: Found, key: PublicKey, prefix: str, now: float | None = None, last: tuple[int, str] | None = None
) -> Judged:
    """Judge all records under the plans of `key`, one by one.

    Parameters
    ----------
    now
        Unix time; by default this machine's.
    last
        The highest epoch of this key that was seen before, and its payload's hash: what is older is refused.
    """
    moment = time.time() if now is None else now
    # A stranger may copy one envelope any number of times: each is looked at once.
    of_value: dict[bytes, list[str]] = {}
    refusals: list[tuple[str, Refusal]] = []
    for subkey, (value, _) in sorted(found.records.items()):
        if isinstance(value, bytes):
            of_value.setdefault(value, []).append(subkey)
        else:
            what = value.reason if isinstance(value, Unreadable) else show(value)
            refusals.append((subkey, Refusal(Reason.MALFORMED, f"it is not bytes: {what}")))
    plans: list[tuple[Verified, list[str]]] = []
    beats: list[tuple[bytes, list[str]]] = []
    epoch_of: dict[str, int] = {}
    for value, subkeys in of_value.items():
        verdict = check_plan(
            value,
            trusted=(key,),
            prefix=prefix,
            now=moment,
            last_epoch=None if last is None else last[0],
            last_payload_hash=None if last is None else last[1],
        )
        if (epoch := _own_epoch(value, key, prefix)) is not None:
            epoch_of.update(dict.fromkeys(subkeys, epoch))
        if isinstance(verdict, Verified):
            plans.append((verdict, subkeys))
        elif verdict.reason is Reason.WRONG_KIND:
            beats.append((value, subkeys))
        else:
            refusals.extend((subkey, verdict) for subkey in subkeys)
    best = min(plans, key=lambda one: (-one[0].epoch, one[0].payload_hash), default=None)
    for plan, subkeys in plans:
        if best is not None and _id(plan) != _id(best[0]):
            refusals.extend((subkey, _outdated(plan, best[0])) for subkey in subkeys)
    heartbeat = None
    for value, subkeys in beats:
        beat = _beat(value, best[0] if best is not None else None, moment)
        if isinstance(beat, Refusal):
            refusals.extend((subkey, beat) for subkey in subkeys)
        elif heartbeat is None or beat.fresh_until > heartbeat.fresh_until:
            heartbeat = beat
    own_beats = {subkey for _, subkeys in beats for subkey in subkeys}
    # One payload may be sealed in several ways.
    intact = [subkey for plan, subkeys in plans if best is not None and _id(plan) == _id(best[0]) for subkey in subkeys]
    return Judged(
        key,
        plan=None if best is None else best[0],
        heartbeat=heartbeat,
        last_epoch=max(epoch_of.values(), default=None),
        intact=tuple(sorted(intact)),
        refusals=tuple(sorted(refusals, key=lambda one: one[0])),
        overwritten=tuple(
            sorted((one for one in found.records if _overwritten(one, epoch_of, own_beats)), key=_newest_first)
        ),
        problems=found.problems,
        blocked_until=found.blocked_until,
    )


def _id(plan: Verified) -> tuple[int, str]:
    return plan.epoch, plan.payload_hash


def _own_epoch(value: bytes, key: PublicKey, prefix: str) -> int | None:
    """The epoch of what the key has signed as a plan for `prefix`, be it past its time."""
    envelope = open_envelope(value, Kind.PLAN, (key,))
    if isinstance(envelope, Refusal) or envelope.payload.get("prefix") != prefix:
        return None
    epoch = envelope.payload.get("epoch")
    return epoch if type(epoch) is int and epoch > 0 else None


def _outdated(plan: Verified, best: Verified) -> Refusal:
    if plan.epoch == best.epoch:
        return Refusal(Reason.EQUAL_EPOCH_OTHER_PAYLOAD, f"another payload of epoch {plan.epoch} stands beside it")
    later = "a revoke" if best.plan is None else "a plan"
    return Refusal(Reason.STALE_EPOCH, f"its epoch is {plan.epoch}, and {later} of epoch {best.epoch} is there")


def _beat(value: bytes, plan: Verified | None, now: float) -> Heartbeat | Refusal:
    if plan is None or plan.plan is None:
        return Refusal(Reason.OTHER_PLAN, "it is a heartbeat, and there is no plan that holds")
    return check_heartbeat(value, plan=plan, now=now)


def _overwritten(subkey: str, epoch_of: Mapping[str, int], own_beats: Collection[str]) -> bool:
    if subkey == HEARTBEAT:
        return subkey not in own_beats
    named = _EPOCH.fullmatch(subkey)
    return named is not None and epoch_of.get(subkey) != int(named[1])


def _newest_first(subkey: str) -> float:
    named = _EPOCH.fullmatch(subkey)
    return -int(named[1]) if named is not None else -math.inf
