from __future__ import annotations

import json
import re
import time
import zlib
from dataclasses import replace

import pytest

from planner import publishing
from planner.drift import Override
from planner.envelope import MAX_VALIDITY, Reason, Verified, check_plan, open_envelope, seal_plan, seal_revoke
from planner.errors import Drifted, EnvelopeRefused, InputInvalid, PartialReading, SwarmUnreachable
from planner.event_loop import run
from planner.keys import generate
from planner.live import Reading
from planner.node import client_node
from planner.plan_records import Found, fetch_index, fetch_plans, index_key, judge, plans_key
from planner.publishing import Beat, keep, publish, read_back, revoke
from planner.sealing import Kind, _pack, _signed, seal
from planner.status import swarm_status
from tests.planner.live.publish import fill, fresh_prefix, overwrite, planned, standing
from tests.planner.live.swarm import Raw, peer_id
from tests.plans import plan as made_plan


@pytest.fixture
def prefix(swarm):
    name = fresh_prefix()
    fill(swarm, name)
    return name


def look_back(swarm, prefix, key):
    (seen,) = read_back(prefix, [key.public], swarm.peers)
    return seen


def found_by(swarm, prefix, key):
    """What stands under a key's plans, as a reader finds it."""

    async def look():
        async with client_node(swarm.peers) as node:
            return (await fetch_plans(node, prefix, [key.public.key_id]))[key.public.key_id]

    return run(look())


def test_a_plan_is_published_and_seen_from_another_node(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    done = publish(plan, key, swarm.peers)
    assert done.verified.plan_id == plan.plan_id
    assert len(done.subkeys) == len(done.taken) == len(done.seen.intact) == 5
    assert set(done.subkeys) == set(done.seen.intact)
    assert done.seen.plan == done.verified
    assert done.fresh_until == pytest.approx(time.time() + 600, abs=20)
    assert abs(done.verified.epoch / 1000 - time.time()) < 20
    found = standing(swarm, prefix, key.public.key_id)
    assert sorted(found) == sorted([*done.subkeys, "heartbeat", *(set(found) - {*done.subkeys, "heartbeat"})])
    assert len(found) == 8
    named, *rest = done.subkeys
    assert named == f"epoch-{done.verified.epoch}"
    assert all(re.fullmatch("[0-9a-f]{16}", subkey) for subkey in rest)
    assert found[named][1] == pytest.approx(plan.valid_until - time.time(), abs=5)


def test_every_publishing_takes_new_subkeys_and_a_higher_epoch(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    first, second = publish(plan, key, swarm.peers), publish(plan, key, swarm.peers)
    assert set(first.subkeys).isdisjoint(second.subkeys)
    assert second.verified.epoch > first.verified.epoch
    assert look_back(swarm, prefix, key).plan == second.verified


def test_the_epoch_goes_on_from_one_of_a_clock_that_was_ahead(swarm, prefix):
    key, plan, ahead = generate(), planned(swarm, prefix), 2**52
    swarm.fill(
        [Raw(plans_key(prefix, key.public.key_id), "x", seal(Kind.PLAN, {"prefix": prefix, "epoch": ahead}, key))]
    )
    assert publish(plan, key, swarm.peers).verified.epoch == ahead + 1


def test_a_revoke_takes_the_place_of_the_plan_and_a_replay_changes_nothing(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    done = publish(plan, key, swarm.peers)
    back = revoke(prefix, key, swarm.peers)
    assert back.verified.plan is None
    assert back.verified.plan_id == plan.plan_id
    assert back.verified.epoch > done.verified.epoch
    assert back.fresh_until is None
    swarm.fill([Raw(plans_key(prefix, key.public.key_id), "replayed", done.envelope, 100_000.0)])
    seen = look_back(swarm, prefix, key)
    assert seen.plan == back.verified
    assert dict(seen.refusals)["replayed"].reason is Reason.STALE_EPOCH


def test_a_plan_replayed_over_all_of_its_revoke_counts_for_who_has_not_seen_it_while_a_heartbeat_lasts(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    back = revoke(prefix, key, swarm.peers)
    replay = [Raw(plans_key(prefix, key.public.key_id), subkey, done.envelope, 100_000.0) for subkey in back.subkeys]
    swarm.fill(replay)
    seen = look_back(swarm, prefix, key)
    # Nothing in the DHT tells of the revoke any more, but that its subkey holds something else...
    assert seen.plan == done.verified
    assert seen.overwritten == (f"epoch-{back.verified.epoch}",)
    # ... whoever has seen it refuses the plan by name, and nobody can make the last heartbeat last longer.
    asked = {"trusted": (key.public,), "prefix": prefix, "now": time.time()}
    known = {"last_epoch": back.verified.epoch, "last_payload_hash": back.verified.payload_hash}
    assert check_plan(done.envelope, **asked, **known).reason is Reason.STALE_EPOCH
    assert seen.heartbeat.fresh_until == done.fresh_until
    assert judge(found_by(swarm, prefix, key), key.public, prefix, done.fresh_until + 1).heartbeat is None
    # Revoking again mends it.
    again = revoke(prefix, key, swarm.peers)
    assert again.verified.epoch > back.verified.epoch
    assert look_back(swarm, prefix, key).plan == again.verified


def test_hostile_envelopes_beside_the_plan_are_refused_by_name_and_hide_nothing(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    done = publish(plan, key, swarm.peers)
    now, epoch = time.time(), done.verified.epoch
    other = seal_revoke("another-hf", None, key, epoch + 1, created_at=now, valid_until=now + 60)

    def signed(changes, raw=None, kind=Kind.PLAN):
        fields = {**open_envelope(done.envelope, Kind.PLAN).payload, **changes}
        packed = zlib.compress(raw or json.dumps(fields).encode(), 9)
        return _pack(packed, key.public.raw, key.sign(_signed(kind, packed)))

    hostile = {
        "flipped": (done.envelope[:-1] + bytes([done.envelope[-1] ^ 1]), Reason.BAD_SIGNATURE),
        "foreign key": (seal_plan(plan, generate(), epoch + 1), Reason.FOREIGN_KEY),
        "foreign prefix": (other, Reason.FOREIGN_PREFIX),
        "stale": (seal_plan(plan, key, epoch - 1), Reason.STALE_EPOCH),
        "expired": (signed({"created_at": now - 7200, "valid_until": now - 3600}), Reason.EXPIRED),
        "ahead": (signed({"created_at": now + 3600, "valid_until": now + 7200}), Reason.NOT_YET_VALID),
        "a year": (signed({"valid_until": now + 365 * 86400}), Reason.VALID_TOO_LONG),
        "bomb": (signed({}, b" " * (50 << 20)), Reason.BOMB),
        "truncated": (done.envelope[:-10], Reason.MALFORMED),
        "large": (done.envelope + bytes(70_000), Reason.TOO_LARGE),
        "edited": (signed({"plan_id": "0" * 32}), Reason.PLAN_MALFORMED),
        "a list": ([done.envelope], Reason.MALFORMED),
        "megabyte": (bytes(10**6), Reason.MALFORMED),
        "plan as heartbeat": (signed({}, kind=Kind.HEARTBEAT), Reason.PAYLOAD_MALFORMED),
        peer_id(0): (7, Reason.MALFORMED),
    }
    key_of_plans = plans_key(prefix, key.public.key_id)
    swarm.fill(Raw(key_of_plans, subkey, value) for subkey, (value, _) in hostile.items())
    seen = look_back(swarm, prefix, key)
    assert (seen.plan, set(seen.intact), seen.overwritten) == (done.verified, set(done.subkeys), ())
    assert seen.heartbeat.fresh_until == done.fresh_until
    assert {subkey: refusal.reason for subkey, refusal in seen.refusals} == {
        subkey: reason for subkey, (_, reason) in hostile.items()
    }


def test_a_strangers_later_record_on_one_subkey_hides_nothing(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    overwrite(swarm, prefix, key.public.key_id, [done.subkeys[0]])
    seen = look_back(swarm, prefix, key)
    assert seen.plan == done.verified
    assert seen.overwritten == (done.subkeys[0],)
    assert dict(seen.refusals)[done.subkeys[0]].reason is Reason.FOREIGN_KEY


def test_a_strangers_later_records_on_all_subkeys_hide_the_plan_until_it_is_stored_again(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    overwrite(swarm, prefix, key.public.key_id, standing(swarm, prefix, key.public.key_id))
    seen = look_back(swarm, prefix, key)
    assert seen.plan is None
    assert seen.hidden
    assert set(seen.overwritten) == {done.subkeys[0], "heartbeat"}
    sent = keep(done, key, swarm.peers)
    assert isinstance(sent, Beat)
    assert sent.restored
    again = look_back(swarm, prefix, key)
    assert again.plan == done.verified
    assert again.heartbeat.fresh_until == pytest.approx(sent.fresh_until)


def test_keeping_stops_for_a_revoke_by_the_same_key_and_at_the_plans_end(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    sent = keep(done, key, swarm.peers)
    assert isinstance(sent, Beat)
    assert not sent.restored
    assert len(sent.taken) == 3
    back = revoke(prefix, key, swarm.peers)
    assert keep(done, key, swarm.peers) == back.verified
    over = replace(done, verified=replace(done.verified, valid_until=time.time() - 1))
    assert keep(over, key, swarm.peers) is None


def test_a_lease_is_one_heartbeat_for_longer(swarm, prefix):
    done = publish(planned(swarm, prefix), generate(), swarm.peers, lease=7200)
    assert done.fresh_until == pytest.approx(time.time() + 7200, abs=20)


def test_drift_is_refused_by_name_and_forced_by_name(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    time.sleep(0.05)
    fill(swarm, prefix, throughput=20.0)
    with pytest.raises(Drifted, match="--force throughput"):
        publish(plan, key, swarm.peers)
    with pytest.raises(Drifted):
        publish(plan, key, swarm.peers, forced=[Override.SPAN, Override.PEERS])
    assert standing(swarm, prefix, key.public.key_id) == {}
    done = publish(plan, key, swarm.peers, forced=[Override.THROUGHPUT])
    assert {drift.override for drift in done.compared.overridden} == {Override.THROUGHPUT}


def test_an_expired_plan_is_refused_and_if_forced_counts_from_now(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    old = replace(plan, created_at=time.time() - 7200, valid_until=time.time() - 3600)
    with pytest.raises(Drifted, match="--force expired"):
        publish(old, key, swarm.peers)
    done = publish(old, key, swarm.peers, forced=[Override.EXPIRED])
    assert done.verified.valid_until == pytest.approx(time.time() + 3600, abs=20)


def test_a_partial_reading_is_refused_unless_forced(swarm, prefix, monkeypatch):
    key, plan = generate(), planned(swarm, prefix)
    read_from = publishing.read_from

    async def partial(*args) -> Reading:
        return replace(await read_from(*args), partial=True, expected_missed=1.0)

    monkeypatch.setattr(publishing, "read_from", partial)
    with pytest.raises(PartialReading):
        publish(plan, key, swarm.peers)
    assert standing(swarm, prefix, key.public.key_id) == {}
    done = publish(plan, key, swarm.peers, forced=[Override.PARTIAL])
    assert [drift.override for drift in done.compared.overridden] == [Override.PARTIAL]


def test_what_no_reader_would_take_is_not_published(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    with pytest.raises(EnvelopeRefused):
        publish(replace(plan, valid_until=plan.created_at + 400 * 86400), key, swarm.peers)
    with pytest.raises(InputInvalid, match="infeasible"):
        publish(replace(plan, status="infeasible"), key, swarm.peers)
    assert standing(swarm, prefix, key.public.key_id) == {}


def test_the_index_is_a_hint(swarm, prefix):
    key, other = generate(), generate()
    publish(planned(swarm, prefix), key, swarm.peers)
    swarm.fill(
        [
            Raw(index_key(prefix), "junk", 7),
            Raw(index_key(prefix), "f" * 32, key.public.raw),
            Raw(index_key(prefix), other.public.key_id, b"\x01" + bytes(31)),
        ]
    )

    async def look():
        async with client_node(swarm.peers) as node:
            return await fetch_index(node, prefix)

    index = run(look())
    assert (index.keys, index.ignored, index.problems) == ((key.public,), 3, ())
    swarm.fill([Raw(index_key(prefix), None, "mine", 100_000.0)])
    assert "plain value stands where a dictionary belongs" in run(look()).problems[0]
    assert any("the index of keys: a plain value stands" in note for note in swarm_status(prefix, swarm.peers).notes)


def test_no_swarm_no_plan():
    with pytest.raises(SwarmUnreachable):
        publish(made_plan(), generate(), [f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}"], timeout=5)


# Judging, without any swarm.


def test_copies_of_one_envelope_are_looked_at_once_and_junk_is_refused_by_name():
    key = generate()
    junk = seal(Kind.PLAN, {"prefix": "m", "epoch": 5}, key)
    records = {f"copy-{number}": (junk, 0.0) for number in range(5000)}
    begun = time.monotonic()
    seen = judge(Found("id", {**records, "n": (None, 0.0), "epoch-7": (junk, 0.0)}), key.public, "m", 0.0)
    assert time.monotonic() - begun < 2
    assert seen.plan is None
    assert seen.last_epoch == 5
    assert {refusal.reason for _, refusal in seen.refusals} == {Reason.PAYLOAD_MALFORMED, Reason.MALFORMED}
    assert seen.overwritten == ("epoch-7",)


def test_what_is_overwritten_is_named_the_newest_first():
    names = ["epoch-9", "epoch-10", "random", "epoch-0", "heartbeat"]
    seen = judge(Found("id", dict.fromkeys(names, (None, 0.0))), generate().public, "m", 0.0)
    assert seen.overwritten == ("heartbeat", "epoch-10", "epoch-9", "epoch-0")


def test_a_plain_value_in_the_place_of_all_plans_is_named_with_its_end_and_the_cure(swarm, prefix):
    key, plan, ends = generate(), planned(swarm, prefix), time.time() + 100_000
    swarm.fill([Raw(plans_key(prefix, key.public.key_id), None, "mine", 100_000.0)])
    named = "a plain value in the place of all plans of this key, until 20[0-9-]+ [0-9:]+ UTC"
    with pytest.raises(SwarmUnreachable, match=rf"{named}: until then, publish with another key"):
        publish(plan, key, swarm.peers)
    with pytest.raises(SwarmUnreachable, match=rf"{named}: nothing can be revoked before"):
        revoke(prefix, key, swarm.peers)
    seen = look_back(swarm, prefix, key)
    assert seen.blocked_until == pytest.approx(ends, abs=60)
    assert "a plain value stands where a dictionary belongs" in seen.problems[0]
    (row,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    assert (row.verdict, row.overwritten) == ("overwritten", True)
    assert publish(plan, generate(), swarm.peers).taken


def test_what_no_reader_would_take_is_refused_before_the_swarm_is_asked(swarm, prefix):
    plan = planned(swarm, prefix)
    for change in ({"valid_until": plan.created_at + MAX_VALIDITY + 60}, {"created_at": plan.created_at + 3000}):
        with pytest.raises(EnvelopeRefused):
            publish(replace(plan, **change), generate(), [])


def test_what_is_about_to_be_stored_is_told_and_may_still_be_stopped(swarm, prefix):
    key, plan, told = generate(), planned(swarm, prefix), []

    def stop(verified, envelope):
        told.append((verified, envelope))
        raise OSError("no room")

    for put in (
        lambda: publish(plan, key, swarm.peers, storing=stop),
        lambda: revoke(prefix, key, swarm.peers, storing=stop),
    ):
        with pytest.raises(OSError, match="no room"):
            put()
    assert standing(swarm, prefix, key.public.key_id) == {}
    assert [verified.plan is None for verified, _ in told] == [False, True]
    for verified, envelope in told:
        assert check_plan(envelope, trusted=(key.public,), prefix=prefix, now=time.time()) == verified


def test_two_payloads_of_one_epoch_are_both_named(swarm, prefix):
    key, now = generate(), time.time()
    first, second = (
        seal_revoke(prefix, None, key, 5, created_at=now, valid_until=now + length) for length in (100, 200)
    )
    seen = judge(Found("id", {"a": (first, 0.0), "b": (second, 0.0)}), key.public, prefix, now)
    assert isinstance(seen.plan, Verified)
    assert [refusal.reason for _, refusal in seen.refusals] == [Reason.EQUAL_EPOCH_OTHER_PAYLOAD]
