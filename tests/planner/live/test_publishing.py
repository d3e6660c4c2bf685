from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from planner import publishing
from planner.drift import Override
from planner.envelope import Reason, Verified
from planner.errors import Drifted, EnvelopeRefused, InputInvalid, PartialReading, SwarmUnreachable
from planner.keys import generate
from planner.live import Reading
from planner.plan_records import Found, index_key, judge, plans_key
from planner.publishing import Beat, keep, publish, read_back, revoke
from planner.sealing import Kind, seal
from tests.planner.live.publish import fill, fresh_prefix, overwrite, planned, standing
from tests.planner.live.swarm import Raw
from tests.plans import plan as made_plan


@pytest.fixture
def prefix(swarm):
    name = fresh_prefix()
    fill(swarm, name)
    return name


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
    assert read_back(prefix, key.public, swarm.peers).plan == second.verified


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
    seen = read_back(prefix, key.public, swarm.peers)
    assert seen.plan == back.verified
    assert dict(seen.refusals)["replayed"].reason is Reason.STALE_EPOCH


def test_a_strangers_later_record_on_one_subkey_hides_nothing(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    overwrite(swarm, prefix, key.public.key_id, [done.subkeys[0]])
    seen = read_back(prefix, key.public, swarm.peers)
    assert seen.plan == done.verified
    assert seen.overwritten == (done.subkeys[0],)
    assert dict(seen.refusals)[done.subkeys[0]].reason is Reason.FOREIGN_KEY


def test_a_strangers_later_records_on_all_subkeys_hide_the_plan_until_it_is_stored_again(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    overwrite(swarm, prefix, key.public.key_id, standing(swarm, prefix, key.public.key_id))
    seen = read_back(prefix, key.public, swarm.peers)
    assert seen.plan is None
    assert seen.hidden
    assert set(seen.overwritten) == {done.subkeys[0], "heartbeat"}
    sent = keep(done, key, swarm.peers)
    assert isinstance(sent, Beat)
    assert sent.restored
    again = read_back(prefix, key.public, swarm.peers)
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


def test_a_plain_value_in_the_place_of_all_subkeys_is_said(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    swarm.fill([Raw(plans_key(prefix, key.public.key_id), None, "mine", 100_000.0)])
    with pytest.raises(SwarmUnreachable, match="in the place of all subkeys"):
        publish(plan, key, swarm.peers)


def test_the_index_is_a_hint(swarm, prefix):
    from planner.node import client_node, run
    from planner.plan_records import fetch_index

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
    assert (index.keys, index.ignored) == ((key.public,), 3)


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


def test_two_payloads_of_one_epoch_are_both_named(swarm, prefix):
    from planner.envelope import seal_revoke

    key, now = generate(), time.time()
    first, second = (
        seal_revoke(prefix, None, key, 5, created_at=now, valid_until=now + length) for length in (100, 200)
    )
    seen = judge(Found("id", {"a": (first, 0.0), "b": (second, 0.0)}), key.public, prefix, now)
    assert isinstance(seen.plan, Verified)
    assert [refusal.reason for _, refusal in seen.refusals] == [Reason.EQUAL_EPOCH_OTHER_PAYLOAD]
