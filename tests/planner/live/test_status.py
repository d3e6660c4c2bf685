from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgpack
import pytest

from planner.errors import SwarmUnreachable
from planner.keys import generate
from planner.live import AGENTS_KEY
from planner.plan_records import index_key, plans_key
from planner.publishing import publish, revoke
from planner.status import swarm_status
from solver.problem import Span
from tests.planner.live.publish import fill, fresh_prefix, overwrite, planned, standing
from tests.planner.live.swarm import FakeServer, Raw, peer_id


@pytest.fixture
def prefix(swarm):
    name = fresh_prefix()
    fill(swarm, name, agents=True)
    return name


def test_nothing_published(swarm, prefix):
    key = generate().public
    status = swarm_status(prefix, swarm.peers, [key])
    (row,) = status.keys
    assert (row.verdict, row.fresh, row.trusted, row.overwritten) == ("none", False, True, False)
    assert status.followed is None
    assert [server.present for server in status.servers] == [Span(0, 2)] * 3 + [Span(2, 4)]
    json.dumps(status.to_json(), allow_nan=False)


def test_a_published_plan_and_its_targets(swarm, prefix):
    key, plan = generate(), planned(swarm, prefix)
    done = publish(plan, key, swarm.peers)
    status = swarm_status(prefix, swarm.peers, [key.public])
    (row,) = status.keys
    assert (row.verdict, row.fresh, row.trusted, row.overwritten) == ("valid", True, True, False)
    assert row.judged.plan == done.verified
    targets = {server.peer_id: server.target for server in plan.servers}
    assert {server.peer_id: server.target for server in status.servers} == targets
    assert {server.agent for server in status.servers} == {"serving", None}
    assert all(server.why == "waits for\\x1b the others" for server in status.servers if server.agent)
    document = status.to_json()
    assert document["plans"][0]["epoch"] == done.verified.epoch
    assert document["followed"] == key.public.text()
    json.dumps(document, allow_nan=False)


def test_a_planned_server_that_has_gone_is_still_in_the_list(swarm, prefix):
    key = generate()
    publish(planned(swarm, prefix), key, swarm.peers)
    swarm.fill(FakeServer(peer_id(0), 0, 2, state=0).records(prefix))
    gone, *others = swarm_status(prefix, swarm.peers, [key.public]).servers
    assert (gone.peer_id, gone.state, gone.present, gone.planned) == (peer_id(0), "gone", None, True)
    assert gone.why == "it has left the swarm, or has no records in it now"
    assert [server.state for server in others] == ["online"] * 3


def test_an_untrusted_key_is_found_in_the_index_and_gives_no_targets(swarm, prefix):
    key = generate()
    publish(planned(swarm, prefix), key, swarm.peers)
    status = swarm_status(prefix, swarm.peers)
    (row,) = status.keys
    assert (row.key, row.verdict, row.trusted) == (key.public, "valid", False)
    assert status.followed is None
    assert all(not server.planned for server in status.servers)


def test_of_several_trusted_keys_the_first_with_a_plan_wins(swarm, prefix):
    none, first, second = generate(), generate(), generate()
    plan = planned(swarm, prefix)
    publish(plan, second, swarm.peers)
    publish(plan, first, swarm.peers)
    status = swarm_status(prefix, swarm.peers, [none.public, first.public, second.public])
    assert [row.verdict for row in status.keys] == ["none", "valid", "valid"]
    assert status.followed == first.public


def test_revoked(swarm, prefix):
    key = generate()
    publish(planned(swarm, prefix), key, swarm.peers)
    revoke(prefix, key, swarm.peers)
    status = swarm_status(prefix, swarm.peers, [key.public])
    assert (status.keys[0].verdict, status.keys[0].fresh) == ("revoked", False)
    assert all(not server.planned for server in status.servers)


def test_one_subkey_overwritten_and_then_all(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    overwrite(swarm, prefix, key.public.key_id, [done.subkeys[0]])
    (row,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    assert (row.verdict, row.fresh, row.overwritten) == ("valid", True, True)
    assert row.to_json()["refusals"][0]["reason"] == "foreign_key"
    overwrite(swarm, prefix, key.public.key_id, standing(swarm, prefix, key.public.key_id), 200_000.0)
    (row,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    assert (row.verdict, row.fresh, row.overwritten) == ("overwritten", False, True)
    assert row.to_json()["somebody_overwrites"] is True


def test_who_goes_on_looking_keeps_the_last_valid_plan_though_all_its_subkeys_are_overwritten(swarm, prefix):
    key = generate()
    done = publish(planned(swarm, prefix), key, swarm.peers)
    (before,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    overwrite(swarm, prefix, key.public.key_id, standing(swarm, prefix, key.public.key_id), 200_000.0)
    status = swarm_status(prefix, swarm.peers, [key.public], kept={key.public.key_id: before.envelope})
    (row,) = status.keys
    assert (row.verdict, row.overwritten, row.judged.intact) == ("valid", True, ())
    assert row.judged.plan == done.verified
    assert any(server.planned for server in status.servers)
    (forgetful,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    assert (forgetful.verdict, forgetful.overwritten) == ("overwritten", True)


def test_a_plain_value_in_the_place_of_the_plans(swarm, prefix):
    key = generate()
    swarm.fill([Raw(plans_key(prefix, key.public.key_id), None, "mine", 100_000.0)])
    (row,) = swarm_status(prefix, swarm.peers, [key.public]).keys
    assert row.verdict == "overwritten"
    assert row.overwritten


def most_memory():
    """MiB that this process has had at most; its nodes' included."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10


def test_a_flood_of_subkeys_beside_the_plan_the_agents_and_the_index(small_swarm):
    prefix, key = fresh_prefix(), generate()
    fill(small_swarm, prefix, agents=True)
    done = publish(planned(small_swarm, prefix), key, small_swarm.peers)
    agent = msgpack.packb({"version": 1, "state": "serving", "span": [0, 2], "capacity": 2})
    for number in range(10_100):
        # As if signed by the operator, so that every one has to be verified.
        forged = {"v": 1, "payload": b"x", "key": key.public.raw, "signature": number.to_bytes(64, "big")}
        flood = {
            plans_key(prefix, key.public.key_id): msgpack.packb(msgpack.packb(forged)),
            f"{AGENTS_KEY}{prefix}": agent,
            index_key(prefix): msgpack.packb(number.to_bytes(32, "big")),
        }
        small_swarm.plant(Raw(under, f"flood{number}", packed=packed) for under, packed in flood.items())
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory counts from now on
    begun, before = time.monotonic(), most_memory()
    status = swarm_status(prefix, small_swarm.peers, [key.public])
    seconds, memory = time.monotonic() - begun, most_memory() - before
    print(f"flood: {seconds:.1f} s, {memory} MiB")
    assert seconds < 25
    assert memory < 200
    # What was there before is found all the same.
    (row,) = status.keys
    assert (row.verdict, row.fresh, row.judged.plan) == ("valid", True, done.verified)
    assert [server.agent for server in status.servers] == ["serving"] * 3 + [None]
    # And the flood is told, in a few lines.
    assert row.judged.problems == ("dropped over 10,000 subkeys (108)",)
    assert set(row.to_json()["refusals"][0]) == {"subkey", "reason", "detail"}
    assert row.to_json()["refused"] == 9_992
    assert f"{AGENTS_KEY}{prefix}: dropped over 10,000 subkeys (103)" in status.notes
    assert "... and 9,977 more dropped records" in status.notes
    assert "the index of keys: dropped over 10,000 subkeys (101)" in status.notes
    assert "9,999 entries of the index of keys are no keys, or too many" in status.notes
    assert len(json.dumps(status.to_json())) < 20_000


def test_a_prefix_that_nobody_serves_shows_its_plans_all_the_same(swarm):
    key = generate()
    status = swarm_status("nobody-hf", swarm.peers, [key.public])
    assert status.servers == ()
    assert status.reading is None
    assert "nobody-hf" in status.notes[0]
    assert status.keys[0].verdict == "none"


def test_unreachable():
    with pytest.raises(SwarmUnreachable):
        swarm_status("m", [f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}"], timeout=5)
