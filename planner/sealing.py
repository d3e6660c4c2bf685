"""Signed envelopes: how a plan or a heartbeat travels through a DHT that anyone writes to.

An envelope is a msgpack map ``{"v": 1, "payload": bytes, "key": 32 bytes, "signature": 64 bytes}`` in the one way
that msgpack writes it. The payload is compressed canonical JSON. The signature is over the length-prefixed domain
tag of its kind and the length-prefixed payload, so that a heartbeat never passes for a plan. Nothing of a payload is
looked at before its signature has been verified. Pure: no clock, no DHT.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgpack

from planner.canonical import canonical_json
from planner.errors import EnvelopeRefused, KeyUnusable
from planner.keys import PublicKey, SigningKey
from planner.strict_json import NotStrictJson, parse_strict

VERSION = 1
MAX_ENVELOPE = 64 * 1024
"""Bytes of an envelope."""
MAX_PAYLOAD = 4 * 2**20
"""Bytes that may come out of a payload: a plan of a thousand servers has about half of that."""
_FIELDS = ("v", "payload", "key", "signature")


class Kind(str, Enum):
    """What an envelope holds; the value is the domain tag that is signed with it."""

    PLAN = "plan-swarm.plan.v1"
    HEARTBEAT = "plan-swarm.heartbeat.v1"

    @property
    def noun(self) -> str:
        """What a person calls it."""
        return "plan" if self is Kind.PLAN else "heartbeat"


class Reason(str, Enum):
    """Why an envelope is refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    FOREIGN_KEY = "foreign_key"
    BAD_SIGNATURE = "bad_signature"
    WRONG_KIND = "wrong_kind"
    BOMB = "bomb"
    PAYLOAD_MALFORMED = "payload_malformed"
    PLAN_MALFORMED = "plan_malformed"
    FOREIGN_PREFIX = "foreign_prefix"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    VALID_TOO_LONG = "valid_too_long"
    STALE_EPOCH = "stale_epoch"
    EQUAL_EPOCH_OTHER_PAYLOAD = "equal_epoch_other_payload"
    OTHER_PLAN = "other_plan"


OUTDATED = frozenset({Reason.STALE_EPOCH, Reason.OTHER_PLAN})
"""What an operator's own later records cause: no fault of anyone's."""


@dataclass(frozen=True)
class Refusal:
    """Why an envelope does not count; `detail` is one line that is safe to show."""

    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


@dataclass(frozen=True)
class Envelope:
    """An envelope whose signature has been verified; its payload is what its signer wrote, and not yet checked.

    `payload_hash` is the SHA-256 of the payload's JSON, in hexadecimal.
    """

    kind: Kind
    key: PublicKey
    payload: dict[str, Any]
    payload_hash: str


def seal(kind: Kind, payload: dict[str, Any], key: SigningKey) -> bytes:
    """Sign `payload`, which is plain JSON values.

    Raises
    ------
    EnvelopeRefused
        If the envelope would be larger than any reader takes.
    """
    text = canonical_json(payload).encode()
    packed = zlib.compress(text, 9)
    data = _pack(packed, key.public.raw, key.sign(_signed(kind, packed)))
    if len(data) > MAX_ENVELOPE or len(text) > MAX_PAYLOAD:
        raise EnvelopeRefused(
            f"the {kind.noun} has {len(data):,} bytes in its envelope ({len(text):,} unpacked);"
            f" {MAX_ENVELOPE:,} ({MAX_PAYLOAD:,}) is the most that a reader takes"
        )
    return data


def open_envelope(data: object, kind: Kind, trusted: Collection[PublicKey] | None = None) -> Envelope | Refusal:
    """Take an envelope apart, verifying it first.

    Parameters
    ----------
    data
        Bytes from anyone; whatever else it is, is refused.
    kind
        What it should hold.
    trusted
        The keys that count, checked before anything costly is done; None: any key.
    """
    parts = _unpack(data)
    if isinstance(parts, Refusal):
        return parts
    payload, raw, signature = parts
    try:
        key = PublicKey(raw)
    except KeyUnusable as error:
        return Refusal(Reason.FOREIGN_KEY, str(error))
    if trusted is not None and key not in trusted:
        return Refusal(Reason.FOREIGN_KEY, f"it is signed with {key.text()}, which is not trusted")
    if not key.verifies(signature, _signed(kind, payload)):
        for other in Kind:
            if key.verifies(signature, _signed(other, payload)):
                return Refusal(Reason.WRONG_KIND, f"it is signed as a {other.noun}, not as a {kind.noun}")
        return Refusal(Reason.BAD_SIGNATURE, "the signature is not by its key over its payload")
    text = _unzip(payload)
    if isinstance(text, Refusal):
        return text
    try:
        fields = parse_strict(text)
    except NotStrictJson as error:
        return Refusal(Reason.PAYLOAD_MALFORMED, f"its payload is not JSON with one meaning: {error}")
    if not isinstance(fields, dict):
        return Refusal(Reason.PAYLOAD_MALFORMED, "its payload is not a map")
    return Envelope(kind, key, fields, hashlib.sha256(text).hexdigest())


def _signed(kind: Kind, payload: bytes) -> bytes:
    tag = kind.value.encode()
    return b"".join(part for piece in (tag, payload) for part in (len(piece).to_bytes(8, "big"), piece))


def _pack(payload: bytes, key: bytes, signature: bytes) -> bytes:
    data: bytes = msgpack.packb(dict(zip(_FIELDS, (VERSION, payload, key, signature), strict=True)), use_bin_type=True)
    return data


def _unpack(data: object) -> tuple[bytes, bytes, bytes] | Refusal:
    if not isinstance(data, bytes):
        return Refusal(Reason.MALFORMED, "it is not bytes")
    if len(data) > MAX_ENVELOPE:
        return Refusal(Reason.TOO_LARGE, f"it has {len(data):,} bytes; {MAX_ENVELOPE:,} is the most")
    try:
        # Limits as well as what follows: nothing may be allocated on the word of a length.
        fields = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_map_len=len(_FIELDS),
            max_array_len=0,
            max_ext_len=0,
            max_str_len=16,
            max_bin_len=MAX_ENVELOPE,
        )
    except (ValueError, TypeError, RecursionError):  # msgpack's own errors are ValueErrors
        return Refusal(Reason.MALFORMED, "it is not an envelope in msgpack")
    if not isinstance(fields, dict) or tuple(fields) != _FIELDS:
        return Refusal(Reason.MALFORMED, f"it is not a map of {', '.join(_FIELDS)}")
    version, payload, key, signature = fields.values()
    if type(version) is not int or version != VERSION:
        return Refusal(Reason.MALFORMED, f"it is of another version than {VERSION}")
    if not (isinstance(payload, bytes) and isinstance(key, bytes) and isinstance(signature, bytes)):
        return Refusal(Reason.MALFORMED, "its payload, key or signature is not bytes")
    if len(key) != 32 or len(signature) != 64:
        return Refusal(Reason.MALFORMED, "its key or signature is not as long as Ed25519's")
    # One envelope, one spelling: no name twice, no length written longer than needed.
    if _pack(payload, key, signature) != data:
        return Refusal(Reason.MALFORMED, "it is not written as msgpack writes it")
    return payload, key, signature


def _unzip(payload: bytes) -> bytes | Refusal:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(payload, MAX_PAYLOAD + 1)
    except zlib.error:
        return Refusal(Reason.PAYLOAD_MALFORMED, "its payload cannot be decompressed")
    if len(text) > MAX_PAYLOAD:
        return Refusal(Reason.BOMB, f"its payload unpacks to over {MAX_PAYLOAD:,} bytes")
    if not stream.eof or stream.unused_data:
        return Refusal(Reason.PAYLOAD_MALFORMED, "its payload is cut short or goes on after its end")
    return text
