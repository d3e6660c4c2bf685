"""What plans and heartbeats say inside their envelopes, and when a reader may believe them.

Everything that a reader must check before it takes a plan is `check_plan`, and before it begins a move under it,
`check_heartbeat`. Both answer with what they verified or with a `Refusal`, and never raise on what a stranger wrote.
Pure: the time is an argument, and what was seen before too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from planner.errors import EnvelopeRefused
from planner.fields import Malformed, hexadecimal, integer, number, text
from planner.keys import PublicKey, SigningKey
from planner.published import MAX_EPOCH, MAX_PREFIX, MAX_TIME, PublishedPlan, read_plan
from planner.sealing import MAX_ENVELOPE, MAX_PAYLOAD, Envelope, Kind, Reason, Refusal, open_envelope, seal
from planner.text import show

__all__ = [
    "MAX_ENVELOPE",
    "MAX_LEASE",
    "MAX_PAYLOAD",
    "MAX_VALIDITY",
    "Envelope",
    "Heartbeat",
    "Kind",
    "Reason",
    "Refusal",
    "Verified",
    "check_heartbeat",
    "check_plan",
    "open_envelope",
    "seal",
    "seal_heartbeat",
    "seal_plan",
    "seal_revoke",
]

MAX_VALIDITY = 24 * 3600.0
"""Seconds from a plan's making to its end: what nobody revokes must end by itself."""
MAX_LEASE = MAX_VALIDITY
HEARTBEAT_SECONDS = 600.0
"""Seconds for which one heartbeat lets moves begin."""
SKEW = 3.0
"""Seconds by which clocks may differ, as for Petals' own records."""
MAX_NAME = 40
"""Characters of a server's public name in an envelope: it is anyone's text, and must not crowd the plan out."""

_PLAN_FIELDS = {"prefix", "epoch", "plan_id", "created_at", "valid_until", "plan"}
_HEARTBEAT_FIELDS = {"prefix", "epoch", "plan_id", "issued_at", "fresh_until"}


@dataclass(frozen=True)
class Verified:
    """A plan, or the revoking of one, that a trusted key signed and that holds now.

    Parameters
    ----------
    plan_id
        Of a revoke: the plan revoked, None where it revokes whatever there was.
    plan
        None: a revoke.
    payload_hash
        To be kept with `epoch`: at an equal epoch only the same payload is taken again.
    """

    key: PublicKey
    prefix: str
    epoch: int
    plan_id: str | None
    created_at: float
    valid_until: float
    plan: PublishedPlan | None
    payload_hash: str


@dataclass(frozen=True)
class Heartbeat:
    """The word of a plan's operator that moves may begin until `fresh_until` (Unix time)."""

    key: PublicKey
    prefix: str
    epoch: int
    plan_id: str
    issued_at: float
    fresh_until: float


# Signing -------------------------------------------------------------------------------------------------


def seal_plan(
    plan: PublishedPlan,
    key: SigningKey,
    epoch: int,
    *,
    created_at: float | None = None,
    valid_until: float | None = None,
) -> bytes:
    """Sign a plan: its document with epoch and times, without explanations, warnings and long public names.

    Parameters
    ----------
    created_at, valid_until
        Unix times; the plan's own by default.

    Raises
    ------
    EnvelopeRefused
        If it is valid for too long, or has more than an envelope holds.
    """
    document = plan.document()
    document.pop("explanations", None)
    # Both quote strangers, so their length is anyone's.
    document["warnings"] = []
    for server in document["servers"]:
        server["public_name"] = server["public_name"] and server["public_name"][:MAX_NAME]
    document["epoch"] = epoch
    document["created_at"] = plan.created_at if created_at is None else created_at
    document["valid_until"] = plan.valid_until if valid_until is None else valid_until
    return _seal_plan(plan.prefix, epoch, plan.plan_id, document["created_at"], document["valid_until"], document, key)


def seal_revoke(
    prefix: str, plan_id: str | None, key: SigningKey, epoch: int, *, created_at: float, valid_until: float
) -> bytes:
    """Sign that no plan of a lower epoch holds any more.

    Raises
    ------
    EnvelopeRefused
        If it is valid for too long.
    """
    return _seal_plan(prefix, epoch, plan_id, created_at, valid_until, None, key)


def seal_heartbeat(plan: Verified, key: SigningKey, *, issued_at: float, seconds: float = HEARTBEAT_SECONDS) -> bytes:
    """Sign that moves of `plan` may begin for so many seconds from `issued_at` (Unix time).

    Raises
    ------
    EnvelopeRefused
        If it is a revoke, another key's plan, or for too long.
    """
    if plan.plan is None or plan.key != key.public:
        raise EnvelopeRefused("a heartbeat is for a plan that the same key signed")
    if not 0 < seconds <= MAX_LEASE:
        raise EnvelopeRefused(f"a lease is above 0 and at most {MAX_LEASE:,.0f} seconds, not {seconds}")
    payload = {
        "prefix": plan.prefix,
        "epoch": plan.epoch,
        "plan_id": plan.plan_id,
        "issued_at": issued_at,
        "fresh_until": issued_at + seconds,
    }
    return seal(Kind.HEARTBEAT, payload, key)


def _seal_plan(
    prefix: str,
    epoch: int,
    plan_id: str | None,
    created_at: float,
    valid_until: float,
    document: dict[str, Any] | None,
    key: SigningKey,
) -> bytes:
    if not created_at < valid_until <= created_at + MAX_VALIDITY:
        raise EnvelopeRefused(
            f"it would be valid for {valid_until - created_at:,.0f} seconds; readers take up to {MAX_VALIDITY:,.0f}"
        )
    payload = {
        "prefix": prefix,
        "epoch": epoch,
        "plan_id": plan_id,
        "created_at": created_at,
        "valid_until": valid_until,
        "plan": document,
    }
    return seal(Kind.PLAN, payload, key)


# Believing -----------------------------------------------------------------------------------------------


def check_plan(
    data: object,
    *,
    trusted: Collection[PublicKey] | None,
    prefix: str | None,
    now: float,
    last_epoch: int | None = None,
    last_payload_hash: str | None = None,
    skew: float = SKEW,
) -> Verified | Refusal:
    """Whether an envelope holds a plan, or a revoke, that a reader may take.

    Parameters
    ----------
    data
        The envelope: bytes from anyone.
    trusted
        The keys that count; None: any, to look at a plan that nobody follows.
    prefix
        The model that it must be for; None: any.
    now
        Unix time.
    last_epoch, last_payload_hash
        The highest epoch ever taken for this key and prefix, and its payload; None where there was none.
    skew
        Seconds by which the signer's clock may differ from the reader's.
    """
    envelope = open_envelope(data, Kind.PLAN, trusted)
    if isinstance(envelope, Refusal):
        return envelope
    try:
        found = _verified(envelope)
    except Malformed as error:
        return Refusal(Reason.PAYLOAD_MALFORMED, str(error))
    refusal = _other_prefix(found.prefix, prefix)
    refusal = refusal or _untimely(found.created_at, found.valid_until, now, MAX_VALIDITY, skew, grace=skew)
    refusal = refusal or _stale(found, last_epoch, last_payload_hash)
    if refusal is not None:
        return refusal
    document = envelope.payload["plan"]
    if document is None:
        return found
    try:
        plan = read_plan(document)
        for name in ("prefix", "epoch", "plan_id", "created_at", "valid_until"):
            if getattr(plan, name) != getattr(found, name):
                raise Malformed(f"its {name} is not the payload's")
    except Malformed as error:
        return Refusal(Reason.PLAN_MALFORMED, str(error))
    return Verified(**{**vars(found), "plan": plan})


def check_heartbeat(data: object, *, plan: Verified, now: float, skew: float = SKEW) -> Heartbeat | Refusal:
    """Whether an envelope holds a heartbeat under which moves of `plan` may begin.

    Its end is taken by the reader's clock as it stands: `skew` only lets a heartbeat from a clock that is
    ahead count at once.
    """
    envelope = open_envelope(data, Kind.HEARTBEAT, (plan.key,))
    if isinstance(envelope, Refusal):
        return envelope
    try:
        found = _heartbeat(envelope)
    except Malformed as error:
        return Refusal(Reason.PAYLOAD_MALFORMED, str(error))
    refusal = _other_prefix(found.prefix, plan.prefix)
    if refusal is None and (plan.plan is None or (found.epoch, found.plan_id) != (plan.epoch, plan.plan_id)):
        refusal = Refusal(Reason.OTHER_PLAN, f"it is for plan {found.plan_id} of epoch {found.epoch}")
    refusal = refusal or _untimely(found.issued_at, found.fresh_until, now, MAX_LEASE, skew)
    return found if refusal is None else refusal


def _verified(envelope: Envelope) -> Verified:
    """The payload of a plan, all but the plan's document."""
    fields = envelope.payload
    if fields.keys() != _PLAN_FIELDS:
        raise Malformed(f"its payload has not exactly the fields {', '.join(sorted(_PLAN_FIELDS))}")
    plan_id = fields["plan_id"]
    if plan_id is not None or fields["plan"] is not None:
        hexadecimal(plan_id, "plan_id", 32)
    created_at = number(fields["created_at"], "created_at", MAX_TIME)
    return Verified(
        key=envelope.key,
        prefix=text(fields["prefix"], "prefix", MAX_PREFIX),
        epoch=integer(fields["epoch"], "epoch", MAX_EPOCH, 1),
        plan_id=plan_id,
        created_at=created_at,
        valid_until=number(fields["valid_until"], "valid_until", MAX_TIME, created_at),
        plan=None,
        payload_hash=envelope.payload_hash,
    )


def _heartbeat(envelope: Envelope) -> Heartbeat:
    fields = envelope.payload
    if fields.keys() != _HEARTBEAT_FIELDS:
        raise Malformed(f"its payload has not exactly the fields {', '.join(sorted(_HEARTBEAT_FIELDS))}")
    issued_at = number(fields["issued_at"], "issued_at", MAX_TIME)
    return Heartbeat(
        key=envelope.key,
        prefix=text(fields["prefix"], "prefix", MAX_PREFIX),
        epoch=integer(fields["epoch"], "epoch", MAX_EPOCH, 1),
        plan_id=hexadecimal(fields["plan_id"], "plan_id", 32),
        issued_at=issued_at,
        fresh_until=number(fields["fresh_until"], "fresh_until", MAX_TIME, issued_at),
    )


def _other_prefix(found: str, wanted: str | None) -> Refusal | None:
    if wanted is None or found == wanted:
        return None
    return Refusal(Reason.FOREIGN_PREFIX, f"it is for {show(found)}, not for {show(wanted)}")


def _untimely(begin: float, end: float, now: float, longest: float, skew: float, grace: float = 0.0) -> Refusal | None:
    if end > begin + longest:
        return Refusal(Reason.VALID_TOO_LONG, f"it is valid for {end - begin:,.0f} s; {longest:,.0f} is the most")
    if begin > now + skew:
        return Refusal(Reason.NOT_YET_VALID, f"it was made {begin - now:,.0f} s in the future; check the clocks")
    if not now < end + grace:
        return Refusal(Reason.EXPIRED, f"it ended {now - end:,.0f} s ago")
    return None


def _stale(found: Verified, last_epoch: int | None, last_payload_hash: str | None) -> Refusal | None:
    if last_epoch is None or found.epoch > last_epoch:
        return None
    if found.epoch < last_epoch:
        return Refusal(Reason.STALE_EPOCH, f"its epoch is {found.epoch}, and {last_epoch} was seen already")
    if found.payload_hash == last_payload_hash:
        return None
    return Refusal(Reason.EQUAL_EPOCH_OTHER_PAYLOAD, f"another payload of epoch {found.epoch} was seen already")
