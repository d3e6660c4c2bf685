from __future__ import annotations

import json
import random
import string
import tracemalloc
import zlib
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import Policy, load_state, make_plan
from planner.canonical import canonical_json
from planner.envelope import (
    MAX_ENVELOPE,
    MAX_LEASE,
    MAX_PAYLOAD,
    MAX_VALIDITY,
    Kind,
    Reason,
    Refusal,
    Verified,
    check_heartbeat,
    check_plan,
    open_envelope,
    seal,
    seal_heartbeat,
    seal_plan,
    seal_revoke,
)
from planner.errors import EnvelopeRefused
from planner.keys import generate
from planner.published import read_plan
from tests.plans import NOW, PREFIX, document, identified, plan

ROOT = Path(__file__).parents[2]
KEY, STRANGER = generate(), generate()
PLAN = plan()
EPOCH = 1_700_000_000_123
SEALED = seal_plan(PLAN, KEY, EPOCH)
IDENTITY = (1).to_bytes(32, "little")


def check(data, **changes):
    asked = {"trusted": (KEY.public,), "prefix": PREFIX, "now": NOW + 1, "last_epoch": None, "last_payload_hash": None}
    return check_plan(data, **{**asked, **changes})


def refused(result, reason):
    assert isinstance(result, Refusal), result
    assert result.reason is reason, result
    assert str(result).isprintable()
    assert len(str(result)) < 400
    return True


VERIFIED = check(SEALED)
assert isinstance(VERIFIED, Verified)
HEARTBEAT = seal_heartbeat(VERIFIED, KEY, issued_at=NOW)


def payload(**changes):
    """The payload of a plan with `changes`; the plan's document has them too, where it has such a field."""
    fields = {
        "prefix": PREFIX,
        "epoch": EPOCH,
        "plan_id": PLAN.plan_id,
        "created_at": NOW,
        "valid_until": NOW + 3600.0,
        "plan": document(epoch=EPOCH),
    }
    for name, value in changes.items():
        fields[name] = value
        if name != "plan" and name in fields["plan"]:
            fields["plan"][name] = value
    return fields


def sign(raw, signer=KEY, **changes):
    """An envelope around `raw` compressed bytes, built here and not by what is tested."""
    tag = Kind.PLAN.value.encode()
    message = len(tag).to_bytes(8, "big") + tag + len(raw).to_bytes(8, "big") + raw
    fields = {"v": 1, "payload": raw, "key": signer.public.raw, "signature": signer.sign(message)}
    return msgpack.packb({**fields, **changes}, use_bin_type=True)


def sealed(text):
    return sign(zlib.compress(text if isinstance(text, bytes) else text.encode()))


# What is taken -------------------------------------------------------------------------------------------


def test_a_plan_comes_out_as_it_went_in():
    assert (VERIFIED.key, VERIFIED.prefix, VERIFIED.epoch) == (KEY.public, PREFIX, EPOCH)
    assert (VERIFIED.plan_id, VERIFIED.created_at, VERIFIED.valid_until) == (PLAN.plan_id, NOW, NOW + 3600.0)
    assert VERIFIED.plan.servers == PLAN.servers
    assert VERIFIED.plan.waves == PLAN.waves
    assert VERIFIED.plan.epoch == EPOCH
    assert VERIFIED.plan.fingerprint == PLAN.fingerprint


def test_the_signed_bytes_are_what_the_format_says():
    assert isinstance(check(sealed(canonical_json(payload()))), Verified)


def test_times_and_epoch_may_be_given_anew():
    found = check(seal_plan(PLAN, KEY, 7, created_at=NOW + 10, valid_until=NOW + 20), now=NOW + 15)
    assert (found.epoch, found.created_at, found.valid_until) == (7, NOW + 10, NOW + 20)
    assert found.plan.plan_id == PLAN.plan_id


def test_any_trusted_key_any_key_and_any_prefix():
    assert isinstance(check(SEALED, trusted=[STRANGER.public, KEY.public]), Verified)
    assert isinstance(check(SEALED, trusted=None, prefix=None), Verified)


def test_a_higher_epoch_is_taken():
    assert isinstance(check(SEALED, last_epoch=EPOCH - 1, last_payload_hash="0" * 64), Verified)


def test_an_equal_epoch_with_the_same_payload_is_taken():
    assert check(SEALED, last_epoch=EPOCH, last_payload_hash=VERIFIED.payload_hash) == VERIFIED
    # However it was compressed: what counts is what it says.
    again = sign(zlib.compress(canonical_json(payload_of(SEALED)).encode(), 1))
    assert again != SEALED
    assert check(again, last_epoch=EPOCH, last_payload_hash=VERIFIED.payload_hash) == VERIFIED


def payload_of(data):
    return json.loads(zlib.decompress(msgpack.unpackb(data)["payload"]))


def test_a_revoke_has_no_plan_and_no_moves():
    data = seal_revoke(PREFIX, PLAN.plan_id, KEY, EPOCH + 1, created_at=NOW, valid_until=NOW + 60)
    found = check(data, last_epoch=EPOCH, last_payload_hash=VERIFIED.payload_hash)
    assert isinstance(found, Verified)
    assert (found.plan, found.plan_id, found.epoch) == (None, PLAN.plan_id, EPOCH + 1)
    assert check(seal_revoke(PREFIX, None, KEY, 1, created_at=NOW, valid_until=NOW + 60)).plan_id is None


def test_strangers_text_is_left_out_or_cut():
    fields = document(warnings=["x" * 10_000], explanations=[{"reason": "y" * 10_000}])
    fields["servers"][0]["public_name"] = "z" * 16_000
    found = check(seal_plan(read_plan(fields), KEY, EPOCH))
    assert found.plan.servers[0].public_name == "z" * 40
    assert found.plan.document()["warnings"] == []
    assert "explanations" not in found.plan.document()


# What is refused: the envelope ---------------------------------------------------------------------------


@given(st.integers(0, len(SEALED) * 8 - 1))
def test_a_flipped_bit_anywhere_is_refused(bit):
    data = bytearray(SEALED)
    data[bit // 8] ^= 1 << bit % 8
    for trusted in ((KEY.public,), None):
        found = check(bytes(data), trusted=trusted)
        assert isinstance(found, Refusal)
        assert found.reason in (Reason.MALFORMED, Reason.BAD_SIGNATURE, Reason.FOREIGN_KEY)


def test_a_flipped_bit_in_each_region_is_refused_by_name():
    payload_at, key_at = SEALED.index(b"payload"), SEALED.index(b"\xa3key") + 6
    signature_at = SEALED.index(b"\xa9signature") + 12
    assert SEALED[key_at : key_at + 32] == KEY.public.raw
    regions = {
        Reason.MALFORMED: [
            *range(payload_at + 10),
            *range(key_at - 6, key_at),
            *range(signature_at - 12, signature_at),
        ],
        Reason.BAD_SIGNATURE: [*range(payload_at + 10, key_at - 6), *range(signature_at, len(SEALED))],
        Reason.FOREIGN_KEY: range(key_at, key_at + 32),
    }
    assert sorted(position for region in regions.values() for position in region) == list(range(len(SEALED)))
    for reason, region in regions.items():
        for position in region:
            data = bytearray(SEALED)
            data[position] ^= 1 << position % 8
            refused(check(bytes(data)), reason)


def test_a_flipped_bit_of_the_key_is_refused_where_any_key_counts():
    at = SEALED.index(KEY.public.raw)
    for bit in range(256):
        data = bytearray(SEALED)
        data[at + bit // 8] ^= 1 << bit % 8
        found = check(bytes(data), trusted=None)
        assert found.reason in (Reason.BAD_SIGNATURE, Reason.FOREIGN_KEY)


def test_a_foreign_key():
    assert refused(check(seal_plan(PLAN, STRANGER, EPOCH)), Reason.FOREIGN_KEY)
    assert STRANGER.public.text() in str(check(seal_plan(PLAN, STRANGER, EPOCH)))
    assert refused(check(SEALED, trusted=()), Reason.FOREIGN_KEY)


def test_a_stranger_who_signs_in_the_name_of_a_trusted_key():
    raw = zlib.compress(canonical_json(payload()).encode())
    assert refused(check(sign(raw, STRANGER, key=KEY.public.raw)), Reason.BAD_SIGNATURE)


def test_a_key_for_which_anyone_can_sign():
    """cryptography takes this signature, over any payload: see tests/planner/test_keys.py."""
    raw = zlib.compress(canonical_json(payload()).encode())
    data = sign(raw, key=IDENTITY, signature=IDENTITY + bytes(32))
    assert refused(check(data, trusted=None), Reason.FOREIGN_KEY)
    assert "small order" in str(check(data, trusted=None))


def test_a_heartbeat_passed_off_as_a_plan():
    assert refused(check(HEARTBEAT), Reason.WRONG_KIND)
    # The very payload of a plan, signed as a heartbeat.
    assert refused(check(seal(Kind.HEARTBEAT, payload(), KEY)), Reason.WRONG_KIND)


def test_a_plan_passed_off_as_a_heartbeat():
    assert refused(check_heartbeat(SEALED, plan=VERIFIED, now=NOW), Reason.WRONG_KIND)
    fields = payload_of(HEARTBEAT)
    assert refused(check_heartbeat(seal(Kind.PLAN, fields, KEY), plan=VERIFIED, now=NOW), Reason.WRONG_KIND)


def test_tag_and_payload_cannot_trade_bytes():
    """Without their lengths, a tag's end could be read as a payload's beginning."""
    raw = zlib.compress(canonical_json(payload()).encode())
    signature = KEY.sign(Kind.PLAN.value.encode() + raw)
    assert refused(check(sign(raw, signature=signature)), Reason.BAD_SIGNATURE)


@pytest.mark.parametrize("end", [0, 1, 10, 100, -100, -64, -1])
def test_truncated(end):
    assert refused(check(SEALED[:end]), Reason.MALFORMED)


@given(st.integers(0, len(SEALED) - 1))
def test_truncated_anywhere(length):
    assert refused(check(SEALED[:length]), Reason.MALFORMED)


@pytest.mark.parametrize("tail", [b"\0", b"\xc0", b" ", SEALED])
def test_trailing_bytes(tail):
    assert refused(check(SEALED + tail), Reason.MALFORMED)


def test_a_truncated_payload_that_is_signed():
    raw = zlib.compress(canonical_json(payload()).encode())
    for length in (0, 1, len(raw) // 2, len(raw) - 1):
        assert refused(check(sign(raw[:length])), Reason.PAYLOAD_MALFORMED)


def test_a_payload_that_goes_on_after_its_end():
    raw = zlib.compress(canonical_json(payload()).encode())
    assert refused(check(sign(raw + b"\0")), Reason.PAYLOAD_MALFORMED)
    assert refused(check(sign(raw + raw)), Reason.PAYLOAD_MALFORMED)


def test_a_payload_that_is_not_compressed():
    assert refused(check(sign(canonical_json(payload()).encode())), Reason.PAYLOAD_MALFORMED)


@pytest.mark.parametrize("mebibytes", [5, 60])
def test_a_decompression_bomb_in_bounded_memory(mebibytes):
    """Spaces are JSON as well: without the cap a parser would take them all."""
    raw = zlib.compress(b" " * (mebibytes << 20) + canonical_json(payload()).encode(), 9)
    data = sign(raw)
    assert len(data) < MAX_ENVELOPE
    tracemalloc.start()
    try:
        found = check(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused(found, Reason.BOMB)
    assert peak < 3 * MAX_PAYLOAD


def test_a_bomb_of_a_stranger_is_not_even_unpacked(monkeypatch):
    data = sign(zlib.compress(b" " * (60 << 20), 9), STRANGER)
    monkeypatch.setattr(zlib, "decompressobj", None)
    assert refused(check(data), Reason.FOREIGN_KEY)
    data = sign(zlib.compress(b" " * (60 << 20), 9), STRANGER, key=KEY.public.raw)
    assert refused(check(data), Reason.BAD_SIGNATURE)


def test_just_under_the_cap_is_no_bomb():
    text = canonical_json(payload()).encode()
    assert isinstance(check(sealed(text + b" " * (MAX_PAYLOAD - len(text)))), Verified)
    assert refused(check(sealed(text + b" " * (MAX_PAYLOAD - len(text) + 1))), Reason.BOMB)


def test_a_payload_of_too_many_values():
    assert refused(check(sealed(b"[" + b"[]," * 1_000_000 + b"[]]")), Reason.PAYLOAD_MALFORMED)


def test_too_large():
    assert refused(check(bytes(MAX_ENVELOPE + 1)), Reason.TOO_LARGE)
    assert refused(check(sign(random.Random(0).randbytes(MAX_ENVELOPE))), Reason.TOO_LARGE)


@pytest.mark.parametrize("value", [None, "text", 5, [SEALED], {"v": 1}, bytearray(SEALED), memoryview(SEALED)])
def test_what_is_not_bytes(value):
    assert refused(check(value), Reason.MALFORMED)


def header(code, length, width):
    return bytes([code]) + length.to_bytes(width, "big")


@pytest.mark.parametrize(
    "data",
    [
        header(0xDF, 2**32 - 1, 4),  # a map of four thousand million entries
        header(0xDD, 2**32 - 1, 4),  # a list
        header(0xDB, 2**32 - 1, 4),  # text
        header(0xC6, 2**32 - 1, 4),  # bytes
        header(0xC9, 2**32 - 1, 4) + b"\x01",  # an extension
        header(0xDE, 2**16 - 1, 2),
        b"\x84\xa1v" + header(0xC6, 2**32 - 1, 4),
        b"\x84\xa1v\x01\xa7payload" + header(0xC6, 2**32 - 1, 4) + b"x",
        b"\x84\xa1v\x01\xa7payload" + header(0xDD, 2**32 - 1, 4),
        b"\x84" + header(0xDB, 2**32 - 1, 4),
    ],
    ids=range(10),
)
def test_msgpack_with_huge_declared_lengths(data):
    tracemalloc.start()
    try:
        assert refused(check(data), Reason.MALFORMED)
        assert refused(check(data + bytes(MAX_ENVELOPE - len(data))), Reason.MALFORMED)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("code", [b"\x91", b"\x81\x01", b"\x81\xa1v", b"\x82\xa1v\x01\xa7payload", b"\xdc\x00\x01"])
@pytest.mark.parametrize("depth", [10, 1000, 60_000])
def test_msgpack_that_is_deeply_nested(code, depth):
    assert refused(check((code * depth)[: MAX_ENVELOPE - 1] + b"\xc0"), Reason.MALFORMED)


FIELDS = msgpack.unpackb(SEALED)


def packed(pairs):
    """A map of these pairs, which may have a name twice."""
    return bytes([0x80 + len(pairs)]) + b"".join(msgpack.packb(part) for pair in pairs for part in pair)


def test_duplicate_map_keys():
    items = list(FIELDS.items())
    assert packed(items) == SEALED
    for name in FIELDS:
        other = 2 if name == "v" else bytes(len(FIELDS[name]))
        assert refused(check(packed([(name, other), *items])), Reason.MALFORMED)
        assert refused(check(packed([*items, (name, FIELDS[name])])), Reason.MALFORMED)
        # As many as there should be, but one of them twice.
        assert refused(check(packed([items[0], *items[:3]])), Reason.MALFORMED)


def test_map_keys_missing_unknown_or_in_another_order():
    items = list(FIELDS.items())
    for index in range(len(items)):
        assert refused(check(packed(items[:index] + items[index + 1 :])), Reason.MALFORMED)
        assert refused(check(packed([*items[:index], ("x", 1), *items[index + 1 :]])), Reason.MALFORMED)
    assert refused(check(packed(items[::-1])), Reason.MALFORMED)
    assert refused(check(packed([])), Reason.MALFORMED)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [None, 0, 2, True, 1.0, "x", b"", b"x" * 33, {}, {"v": 1}, [], msgpack.Timestamp(1)])
def test_fields_of_another_type_or_length(name, value):
    changed = {**FIELDS, name: value}
    reasons = {Reason.MALFORMED, Reason.BAD_SIGNATURE} if name == "payload" else {Reason.MALFORMED}
    assert check(msgpack.packb(changed)).reason in reasons


def test_an_envelope_has_one_spelling():
    """The same values with longer lengths than needed: a reader who compares bytes would see two envelopes."""
    key = b"\xc4\x20" + KEY.public.raw
    longer = SEALED.replace(key, b"\xc5\x00\x20" + KEY.public.raw)
    assert msgpack.unpackb(longer) == FIELDS
    assert refused(check(longer), Reason.MALFORMED)
    assert refused(check(SEALED.replace(b"\xa1v\x01", b"\xa1v\xcc\x01")), Reason.MALFORMED)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    assert isinstance(check(data, trusted=None), Refusal)
    assert isinstance(check_heartbeat(data, plan=VERIFIED, now=NOW), Refusal)


# What is refused: the payload ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "5",
        canonical_json(payload())[:-1],
        canonical_json(payload()) + "{}",
        canonical_json(payload()).replace(f'"epoch":{EPOCH}', '"epoch":NaN'),
        canonical_json(payload()).replace(f'"valid_until":{NOW + 3600.0}', '"valid_until":Infinity'),
        canonical_json(payload()).replace(f'"valid_until":{NOW + 3600.0}', '"valid_until":1e999'),
        canonical_json(payload()).replace(f'"epoch":{EPOCH}', '"epoch":' + "9" * 5000),
        canonical_json(payload()).replace(f'"epoch":{EPOCH}', f'"epoch":1,"epoch":{EPOCH}'),
        canonical_json(payload()).replace('"prefix":"m"', '"prefix":"other","\\u0070refix":"m"'),
        canonical_json(payload()).replace('"prefix":"m"', '"prefix":' + "[" * 100_000 + "]" * 100_000),
        '{"plan":' * 100_000,
        canonical_json(payload()).encode("utf-16"),
        b"\xff",
        canonical_json({**payload(), "extra": 1}),
        *(canonical_json({k: v for k, v in payload().items() if k != name}) for name in payload()),
    ],
    ids=range(23),
)
def test_a_payload_that_is_not_what_it_should_be(text):
    assert refused(check(sealed(text)), Reason.PAYLOAD_MALFORMED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefix", None),
        ("prefix", ""),
        ("prefix", ["m"]),
        ("prefix", "m" * 2000),
        ("epoch", 0),
        ("epoch", -1),
        ("epoch", True),
        ("epoch", 1.0),
        ("epoch", 2**60),
        ("epoch", "1"),
        ("plan_id", None),
        ("plan_id", "x"),
        ("plan_id", 5),
        ("created_at", "now"),
        ("created_at", -1.0),
        ("created_at", True),
        ("valid_until", NOW - 1),
        ("valid_until", 1e300),
        ("valid_until", None),
    ],
)
def test_fields_of_the_payload_of_another_type_or_range(name, value):
    assert refused(check(sealed(canonical_json(payload(**{name: value})))), Reason.PAYLOAD_MALFORMED)


@pytest.mark.parametrize("prefix", ["M", "m ", "m.0", "other", "m\x1b[2J"])
def test_a_foreign_prefix(prefix):
    assert refused(check(SEALED, prefix=prefix), Reason.FOREIGN_PREFIX)
    fields = payload(prefix=prefix, plan=identified(document(prefix=prefix, epoch=EPOCH)))
    assert refused(check(seal(Kind.PLAN, fields, KEY)), Reason.FOREIGN_PREFIX)


def test_a_stale_epoch():
    assert refused(check(SEALED, last_epoch=EPOCH + 1), Reason.STALE_EPOCH)
    assert refused(check(SEALED, last_epoch=EPOCH + 1, last_payload_hash=VERIFIED.payload_hash), Reason.STALE_EPOCH)


def test_an_equal_epoch_with_another_payload():
    other = seal_plan(PLAN, KEY, EPOCH, valid_until=NOW + 7200)
    assert isinstance(check(other), Verified)
    seen = {"last_epoch": EPOCH, "last_payload_hash": VERIFIED.payload_hash}
    assert refused(check(other, **seen), Reason.EQUAL_EPOCH_OTHER_PAYLOAD)
    revoke = seal_revoke(PREFIX, PLAN.plan_id, KEY, EPOCH, created_at=NOW, valid_until=NOW + 60)
    assert refused(check(revoke, **seen), Reason.EQUAL_EPOCH_OTHER_PAYLOAD)
    assert refused(check(SEALED, last_epoch=EPOCH), Reason.EQUAL_EPOCH_OTHER_PAYLOAD)


def test_a_plan_replayed_after_a_revoke():
    revoke = check(seal_revoke(PREFIX, PLAN.plan_id, KEY, EPOCH + 1, created_at=NOW, valid_until=NOW + 60))
    assert isinstance(revoke, Verified)
    seen = {"last_epoch": revoke.epoch, "last_payload_hash": revoke.payload_hash}
    assert refused(check(SEALED, **seen), Reason.STALE_EPOCH)
    # And the revoke's own epoch cannot be taken by a plan.
    assert refused(check(seal_plan(PLAN, KEY, revoke.epoch), **seen), Reason.EQUAL_EPOCH_OTHER_PAYLOAD)


def test_expired():
    assert isinstance(check(SEALED, now=NOW + 3602), Verified)
    assert refused(check(SEALED, now=NOW + 3603), Reason.EXPIRED)
    assert refused(check(SEALED, now=NOW + 3600, skew=0.0), Reason.EXPIRED)
    assert refused(check(SEALED, now=NOW + 1e9), Reason.EXPIRED)


def test_not_yet_valid():
    assert isinstance(check(SEALED, now=NOW - 3), Verified)
    assert refused(check(SEALED, now=NOW - 4), Reason.NOT_YET_VALID)


def test_valid_for_a_year():
    year = payload(valid_until=NOW + 365 * 86400.0)
    assert refused(check(sealed(canonical_json(year))), Reason.VALID_TOO_LONG)
    # Nor by having been made long ago, or ahead.
    assert refused(check(sealed(canonical_json(payload(created_at=NOW - 86400.0)))), Reason.VALID_TOO_LONG)
    ahead = payload(created_at=NOW + 364 * 86400.0, valid_until=NOW + 365 * 86400.0)
    assert refused(check(sealed(canonical_json(ahead))), Reason.NOT_YET_VALID)
    with pytest.raises(EnvelopeRefused, match="it would be valid for 31,536,000 seconds; readers take up to 86,400"):
        seal_plan(PLAN, KEY, EPOCH, valid_until=NOW + 365 * 86400.0)


@given(st.floats(1.0, 4e9))
def test_exactly_a_day_is_not_too_long_at_any_time(created_at):
    data = seal_revoke(PREFIX, None, KEY, 1, created_at=created_at, valid_until=created_at + MAX_VALIDITY)
    assert isinstance(check(data, now=created_at), Verified)


@pytest.mark.parametrize("name", ["prefix", "epoch", "plan_id", "created_at", "valid_until"])
def test_a_plan_that_is_not_the_one_its_payload_names(name):
    fields = payload()
    other = {"prefix": "n", "epoch": 5, "plan_id": "0" * 32, "created_at": NOW - 1, "valid_until": NOW + 1}[name]
    fields["plan"][name] = other
    identified(fields["plan"])
    if name == "plan_id":
        fields["plan_id"] = "0" * 32
    assert refused(check(seal(Kind.PLAN, fields, KEY)), Reason.PLAN_MALFORMED)


@pytest.mark.parametrize("value", [{}, [], 5, "plan", document(num_blocks=3), document(servers=[]), document(waves=[])])
def test_a_plan_that_contradicts_itself(value):
    assert refused(check(seal(Kind.PLAN, payload(plan=value), KEY)), Reason.PLAN_MALFORMED)


# Heartbeats ----------------------------------------------------------------------------------------------


def beat(**changes):
    fields = {"prefix": PREFIX, "epoch": EPOCH, "plan_id": PLAN.plan_id, "issued_at": NOW, "fresh_until": NOW + 600}
    return seal(Kind.HEARTBEAT, {**fields, **changes}, KEY)


def test_a_heartbeat_is_fresh_for_ten_minutes():
    found = check_heartbeat(HEARTBEAT, plan=VERIFIED, now=NOW + 599)
    assert (found.epoch, found.plan_id, found.issued_at, found.fresh_until) == (EPOCH, PLAN.plan_id, NOW, NOW + 600)
    assert refused(check_heartbeat(HEARTBEAT, plan=VERIFIED, now=NOW + 600), Reason.EXPIRED)
    assert refused(check_heartbeat(HEARTBEAT, plan=VERIFIED, now=NOW - 4), Reason.NOT_YET_VALID)


def test_a_lease_is_a_longer_heartbeat_up_to_a_day():
    data = seal_heartbeat(VERIFIED, KEY, issued_at=NOW, seconds=7200)
    assert check_heartbeat(data, plan=VERIFIED, now=NOW + 7199).fresh_until == NOW + 7200
    assert refused(check_heartbeat(beat(fresh_until=NOW + 365 * 86400), plan=VERIFIED, now=NOW), Reason.VALID_TOO_LONG)
    for seconds in (0, -1, MAX_LEASE + 1, float("nan"), float("inf")):
        with pytest.raises(EnvelopeRefused, match="a lease is"):
            seal_heartbeat(VERIFIED, KEY, issued_at=NOW, seconds=seconds)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"plan_id": "0" * 32}, Reason.OTHER_PLAN),
        ({"epoch": EPOCH - 1}, Reason.OTHER_PLAN),
        ({"epoch": EPOCH + 1}, Reason.OTHER_PLAN),
        ({"prefix": "other"}, Reason.FOREIGN_PREFIX),
        ({"plan_id": None}, Reason.PAYLOAD_MALFORMED),
        ({"extra": 1}, Reason.PAYLOAD_MALFORMED),
        ({"epoch": True}, Reason.PAYLOAD_MALFORMED),
        ({"fresh_until": NOW - 1}, Reason.PAYLOAD_MALFORMED),
        ({"issued_at": "now"}, Reason.PAYLOAD_MALFORMED),
    ],
)
def test_heartbeats_that_are_for_something_else(changes, reason):
    assert refused(check_heartbeat(beat(**changes), plan=VERIFIED, now=NOW), reason)


def test_a_heartbeat_of_another_key():
    data = seal(Kind.HEARTBEAT, payload_of(HEARTBEAT), STRANGER)
    assert refused(check_heartbeat(data, plan=VERIFIED, now=NOW), Reason.FOREIGN_KEY)


def test_a_revoked_plan_has_no_heartbeat():
    revoke = check(seal_revoke(PREFIX, PLAN.plan_id, KEY, EPOCH, created_at=NOW, valid_until=NOW + 60))
    assert refused(check_heartbeat(HEARTBEAT, plan=revoke, now=NOW), Reason.OTHER_PLAN)
    with pytest.raises(EnvelopeRefused, match="for a plan that the same key signed"):
        seal_heartbeat(revoke, KEY, issued_at=NOW)
    with pytest.raises(EnvelopeRefused, match="for a plan that the same key signed"):
        seal_heartbeat(VERIFIED, STRANGER, issued_at=NOW)


def test_a_flipped_bit_anywhere_in_a_heartbeat():
    for bit in range(len(HEARTBEAT) * 8):
        data = bytearray(HEARTBEAT)
        data[bit // 8] ^= 1 << bit % 8
        assert isinstance(check_heartbeat(bytes(data), plan=VERIFIED, now=NOW), Refusal)


# Sizes ---------------------------------------------------------------------------------------------------


def renamed(state, peers):
    """The same dump with the peer ids that libp2p gives, random names, and every figure with all its digits."""
    rng = random.Random(1)
    alphabet = string.digits + string.ascii_letters
    ids = {peer: "12D3KooW" + "".join(rng.choices(alphabet, k=44)) for peer in peers}
    names = {peer: "".join(rng.choices(alphabet, k=60)) for peer in peers}
    rps = {peer: rng.uniform(100, 1000) for peer in peers}
    for record in state["records"]:
        peer = record["peer_id"]
        record["peer_id"] = ids[peer]
        record["value"][1] = rps[peer]
        record["value"][2]["public_name"] = names[peer]
    for record in state.get("agents") or ():
        record["peer_id"] = ids[record["peer_id"]]
    return state


@pytest.mark.parametrize("realistic", [False, True])
def test_a_plan_of_100_servers_on_80_blocks_is_under_64_kib(realistic):
    state = json.loads((ROOT / "benchmarks" / "data" / "churn-80x100-4.json").read_text())
    if realistic:
        state = renamed(state, sorted({record["peer_id"] for record in state["records"]}))
    made = make_plan(load_state(state), Policy(time_limit=3.0), now=NOW)
    assert len(made.servers) == 100
    data = seal_plan(read_plan(made.to_json()), KEY, EPOCH)
    assert len(data) < MAX_ENVELOPE / 3
    assert len(check(data, prefix=made.prefix).plan.servers) == 100


def test_what_does_not_fit_is_said_when_it_is_signed():
    rng = random.Random(0)
    with pytest.raises(EnvelopeRefused, match=r"the plan has .* bytes in its envelope .* 65,536 .* is the most"):
        seal(Kind.PLAN, {"noise": rng.randbytes(80_000).hex()}, KEY)
    with pytest.raises(EnvelopeRefused, match="is the most that a reader takes"):
        seal(Kind.PLAN, {"zeros": "0" * (MAX_PAYLOAD + 1)}, KEY)


def test_open_envelope_gives_what_was_signed_whoever_signed():
    found = open_envelope(seal(Kind.HEARTBEAT, {"a": 1.5, "b": ["é\ud800"]}, STRANGER), Kind.HEARTBEAT)
    assert (found.key, found.payload) == (STRANGER.public, {"a": 1.5, "b": ["é\ud800"]})
