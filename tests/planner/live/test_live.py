from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import replace

import msgpack
import pytest

from planner import Policy, live, make_plan
from planner.canonical import canonical_json
from planner.dht_client import calls_a_node
from planner.dump import write_dump
from planner.errors import InputInvalid, NothingToPlan, PartialReading
from planner.live import Progress, most_calls, read_live
from planner.node import ClientNode
from planner.reading import load_state
from planner.state import ServerState
from solver.problem import Span
from tests.planner.live.swarm import FakeServer, Raw, model, random_servers

BIG = "big-hf"
"""100 servers on 80 blocks, none of which is left out."""


def canonical(state):
    return canonical_json(state.to_json())


def moves(plan):
    return {(server.peer_id, server.target) for server in plan.moves}


def servers(reading):
    return canonical_json(reading.state().to_json()["servers"])


@pytest.fixture(scope="module")
def big(swarm):
    swarm.fill([model(BIG, 80), *(raw for server in random_servers(100, 80, 2) for raw in server.records(BIG))])
    return swarm


# What is read.


def test_servers_in_every_state(swarm):
    agent = {"version": 1, "state": "serving", "span": (0, 4), "capacity": 6, "throughput": 7.5, "cached_blocks": [5]}
    swarm.fill(
        [
            model("states-hf", 6),
            *FakeServer("online", 0, 4, 7.5).records("states-hf"),
            *FakeServer("joining", 2, 6, state=1).records("states-hf"),
            *FakeServer("gone", 0, 6, state=0).records("states-hf"),
            *FakeServer("silent", 4, 6, stated=False).records("states-hf"),
            Raw("_plan_swarm.agents.states-hf", "online", agent),
            Raw("_plan_swarm.agents.states-hf", "new", {"state": "waiting", "capacity": 2, "throughput": 1.0}),
        ]
    )
    reading = read_live("states-hf", swarm.peers)
    assert not reading.partial
    assert (reading.num_blocks, reading.silent, reading.warnings) == (6, (), ())
    assert abs(reading.read_at - time.time()) < 20
    found = {server.peer_id: (server.state, server.span) for server in reading.state().servers}
    assert found == {
        "online": (ServerState.ONLINE, Span(0, 4)),
        "joining": (ServerState.JOINING, Span(2, 6)),
        "silent": (ServerState.ONLINE, Span(4, 6)),
        "new": (ServerState.WAITING, None),
    }
    online = next(server for server in reading.state().servers if server.peer_id == "online")
    assert online.agent.capacity == 6
    assert (online.throughput, online.quant_type, online.public_name) == (7.5, "nf4", "name of line")


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz"])
def test_live_and_dumped_give_the_same_state_byte_for_byte(big, tmp_path, name):
    reading = read_live(BIG, big.peers)
    path = tmp_path / name
    write_dump(path, reading.dump())
    assert len(reading.state().servers) == 100
    assert canonical(load_state(path)) == canonical(load_state(reading.dump())) == canonical(reading.state())
    assert reading.dump()["source"] == "live"
    json.dumps(reading.dump(), allow_nan=False)


def test_a_hundred_servers_are_read_in_time_and_in_the_calls_that_are_stated(big, monkeypatch):
    gets = []
    get = ClientNode.get

    async def counted(self, keys, timeout=None):
        gets.append(len(keys))
        return await get(self, keys, timeout)

    monkeypatch.setattr(ClientNode, "get", counted)
    begun = time.monotonic()
    reading = read_live(BIG, big.peers)
    seconds = time.monotonic() - begun
    print(f"read in {seconds:.2f} s, {len(gets)} gets, {reading.calls} calls")
    assert seconds < 5
    # Twice the models, then three tries of all keys; the later two ask the agents' key, which is silent, apart.
    assert gets == [1, 1, 81, 80, 1, 80, 1]
    assert reading.calls <= sum(len(big.nodes) * calls_a_node(keys) for keys in gets)
    assert reading.calls <= most_calls(80, len(big.nodes), tries=3)
    assert len(reading.state().servers) == 100


def test_progress_tells_every_stage(swarm):
    swarm.fill([model("steps-hf", 4), *FakeServer("a", 0, 4).records("steps-hf")])
    steps: list[Progress] = []
    reading = read_live("steps-hf", swarm.peers, progress=steps.append)
    assert [stage for stage, _ in itertools.groupby(step.stage for step in steps)] == ["models", "blocks"]
    last = steps[-1]
    assert (last.stage, last.tries, last.asked, last.answered) == ("blocks", len(reading.tries), 5, 4)
    assert [step.seconds for step in steps] == sorted(step.seconds for step in steps)


def test_holes_are_silent_and_a_reading_with_holes_is_whole(swarm):
    swarm.fill([model("holes-hf", 12), *FakeServer("a", 0, 4).records("holes-hf")])
    reading = read_live("holes-hf", swarm.peers)
    assert reading.silent == tuple(range(4, 12))
    assert not reading.partial
    assert reading.expected_missed < 0.05
    reading.check_whole()


def test_num_blocks_may_be_given(swarm):
    swarm.fill(FakeServer("a", 0, 4).records("_private"))
    assert read_live("_private", swarm.peers, num_blocks=5).num_blocks == 5
    with pytest.raises(InputInvalid, match="from 1 to 1,000 for a live swarm"):
        read_live("_private", swarm.peers, num_blocks=5000)
    with pytest.raises(InputInvalid):
        read_live("_private", swarm.peers, num_blocks=0)


# Names that nobody serves.


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("big", "no model of the prefix 'big' is announced.*did you mean 'big-hf'"),
        ("someone/Big", "did you mean 'big-hf'"),
        ("meta-llama/Llama-2-70b", "announces .*big-hf.*Petals would call that model 'Llama-2-70b-hf'"),
        ("\x1b[2J" * 10_000, r"no model of the prefix '\\x1b\[2J"),
        ("", "no model of the prefix ''"),
    ],
)
def test_a_prefix_that_nobody_serves(big, prefix, message):
    with pytest.raises(NothingToPlan, match=message) as caught:
        read_live(prefix, big.peers)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_prefix_that_nobody_serves_with_its_number_of_blocks(big):
    with pytest.raises(NothingToPlan, match="did you mean 'big-hf'"):
        read_live("big", big.peers, num_blocks=8)


def test_a_model_that_is_announced_and_held_by_nobody(swarm):
    swarm.fill([model("empty-hf", 4)])
    with pytest.raises(NothingToPlan, match="'empty-hf' is announced, but no server holds a block"):
        read_live("empty-hf", swarm.peers)


@pytest.mark.parametrize("num_blocks", [0, -1, 1001, 10**18, 2.0, True, "8", None, [8]])
def test_numbers_of_blocks_that_nobody_should_believe(swarm, num_blocks):
    prefix = f"absurd-{abs(hash(str(num_blocks)))}"
    swarm.fill([model(prefix, num_blocks), *FakeServer("a", 0, 2).records(prefix)])
    with pytest.raises(NothingToPlan, match="--num-blocks"):
        read_live(prefix, swarm.peers)


# Nothing is stored by reading.


def test_reading_leaves_every_node_as_it_was(small_swarm):
    # On the nodes that do not hold a key, its nearest would be asked to cache it.
    small_swarm.fill(
        [model("m-hf", 8), *(raw for server in random_servers(10, 8, 3) for raw in server.records("m-hf"))]
    )
    one = small_swarm.nodes[0].protocol
    for key in list(one.storage.data)[::2]:
        del one.storage[key]
    before = small_swarm.holdings()
    for _ in range(2):
        assert len(read_live("m-hf", small_swarm.peers).state().servers) == 10
        time.sleep(0.3)
        assert small_swarm.holdings() == before


# Flapping.


def flapping(monkeypatch, share, seed):
    get, generator = ClientNode.get, random.Random(seed)

    async def flap(self, keys, timeout=None):
        found = await get(self, keys, timeout)
        return {key: None if generator.random() < share else raw for key, raw in found.items()}

    monkeypatch.setattr(ClientNode, "get", flap)


@pytest.mark.parametrize(
    ("stated", "tries", "partial"), [(True, 16, range(3)), (False, 16, range(3)), (False, 4, range(8, 11))]
)
def test_ten_readings_of_a_flapping_swarm_give_the_same_or_say_partial(swarm, monkeypatch, stated, tries, partial):
    prefix = f"flap{stated}{tries}-hf"
    all_servers = random_servers(10, 16, 5, stated=stated)
    swarm.fill([model(prefix, 16), *(raw for server in all_servers for raw in server.records(prefix))])
    whole = read_live(prefix, swarm.peers)
    assert len(whole.state().servers) == 10
    flapping(monkeypatch, 0.4, seed=11)
    monkeypatch.setattr("planner.gather.MAX_TRIES", tries)
    readings = [read_live(prefix, swarm.peers, num_blocks=16) for _ in range(10)]
    print([(len(reading.tries), round(reading.expected_missed, 4)) for reading in readings])
    assert all(reading.partial or servers(reading) == servers(whole) for reading in readings)
    assert sum(reading.partial for reading in readings) in partial
    assert all(len(reading.tries) <= tries for reading in readings)
    # Nor does any of them give a move that the full reading does not; equal states give equal plans.
    states = {(servers(reading), reading.partial): reading.state() for reading in [whole, *readings]}
    plans = {key: make_plan(state, Policy(time_limit=60.0, workers=1)) for key, state in states.items()}
    wanted = moves(plans[servers(whole), False])
    assert len(wanted) >= 2
    assert all(moves(plan) <= wanted for plan in plans.values())
    assert all(stage.proven for plan in plans.values() for stage in plan.search.stages)


def test_a_reading_that_is_cut_short_says_partial(swarm, monkeypatch):
    swarm.fill([model("short-hf", 40), *FakeServer("a", 0, 40).records("short-hf")])
    flapping(monkeypatch, 0.4, seed=2)
    monkeypatch.setattr("planner.gather.MAX_TRIES", 2)
    reading = read_live("short-hf", swarm.peers, num_blocks=40)
    assert reading.partial
    assert reading.dump()["reading"]["partial"] is True
    with pytest.raises(PartialReading, match=r"'?short-hf.* is partial: \d+ of 41 keys answered in 2 tries"):
        reading.check_whole()


# Records that somebody hostile made.

LATER = 290.0


def deep(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def test_hostile_values_are_dropped_with_a_line_each_and_the_rest_is_read(swarm):
    prefix = "evil-hf"
    info = {"start_block": 0, "end_block": 4}
    hostile = {
        "list": [2, 5.0, info],  # accepted: the decoder does not mind
        "integer": (2, 5, info),  # accepted
        "state7": (7, 5.0, info),
        "word": "ONLINE",
        "null": None,
        "bytes": b"\x00" * 10,
        "negative": (2, -5.0, info),
        "infinite": (2, float("inf"), info),
        "nan": (2, float("nan"), info),
        "megabyte": (2, 5.0, {**info, "public_name": "x" * 10**6}),
        "deep": (2, 5.0, {**info, "adapters": deep(500)}),
        "wide": (2, 5.0, {**info, "adapters": [[]] * 50_000}),
        "outside": (2, 5.0, {"start_block": 0, "end_block": 99}),
        "reversed": (2, 5.0, {"start_block": 3, "end_block": 1}),
        "evil\x1b[2J": (2, 5.0, info),
    }
    swarm.fill([model(prefix, 4), *FakeServer("honest", 0, 4).records(prefix)])
    swarm.fill(Raw(f"{prefix}.1", subkey, value) for subkey, value in hostile.items())
    swarm.fill([Raw(f"{prefix}.1", "forever", (2, 5.0, info), lifetime=10 * 365 * 86400)])
    swarm.fill([Raw(f"{prefix}.1", 7, (2, 5.0, info)), Raw(f"{prefix}.1", b"bytes", (2, 5.0, info))])
    tuples = 5
    for _ in range(200):
        tuples = (tuples,)
    swarm.fill([Raw(f"{prefix}.2", "tuples", tuples)])
    reading = read_live(prefix, swarm.peers)
    state = reading.state()
    assert [server.peer_id for server in state.servers] == ["honest", "integer", "list"]
    named = {warning.split(":")[0] for warning in state.warnings}
    assert named >= set(hostile) - {"list", "integer", "evil\x1b[2J"} | {"forever", "tuples"}
    reasons = "\n".join(state.warnings)
    assert "forever: dropped its record of block 1: it expires over 1 h after the reading" in reasons
    assert "infinite: dropped its record of block 1: throughput 'inf' is not a number" in reasons
    assert "megabyte: dropped its record of block 1: its value is '<a value of 1,000," in reasons
    assert "bytes: dropped its record of block 1: its value is '<10 bytes>'" in reasons
    assert reading.warnings == ("evil-hf.1: dropped subkeys that are not text (2)",)
    assert "\x1b" not in reasons
    assert canonical(load_state(json.loads(json.dumps(reading.dump())))) == canonical(state)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\xa4\xff\xff\xff\xff",
        b"\x93\x02",
        b"\xdd\xff\xff\xff\xff" * 1000,
        b"\x91" * 5000,
        b"\xc9\x00\x00\x00\x02\x50\x00\x00",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xc7\x00\x7f",
        msgpack.packb([2, 5.0]) + b"trailing",
        b"\x81\xc0\xc0",
    ],
    ids=lambda packed: packed[:4].hex(),
)
def test_bytes_that_are_no_msgpack_do_not_hang_the_reader(swarm, packed):
    # hivemind's own reader waits for ever here, as the task that unpacks them dies.
    prefix = f"bytes{packed[:4].hex()}{len(packed)}-hf"
    swarm.fill([model(prefix, 4), *FakeServer("honest", 0, 4).records(prefix)])
    swarm.plant([Raw(f"{prefix}.1", "evil", packed=packed)])
    begun = time.monotonic()
    reading = read_live(prefix, swarm.peers, timeout=10)
    assert time.monotonic() - begun < 5
    assert [server.peer_id for server in reading.state().servers] == ["honest"]
    assert [warning.split(":")[0] for warning in reading.state().warnings] == ["evil"]
    swarm.plant([Raw(f"{prefix}.2", None, packed=packed, lifetime=400)])
    reading = read_live(prefix, swarm.peers, timeout=10)
    assert [server.peer_id for server in reading.state().servers] == ["honest"]
    assert "plain value stands where a dictionary belongs" in reading.warnings[0]


def test_a_dictionary_replaced_by_a_plain_value(swarm):
    swarm.fill([model("plain-hf", 3), *FakeServer("honest", 0, 3).records("plain-hf")])
    swarm.fill([Raw("plain-hf.0", None, (2, 9.0), lifetime=400.0)])
    reading = read_live("plain-hf", swarm.peers)
    assert [(server.peer_id, server.span) for server in reading.state().servers] == [("honest", Span(0, 3))]
    (warning,) = reading.warnings
    assert warning.startswith("plain-hf.0: a plain value stands where a dictionary belongs")
    assert reading.silent == ()


def test_models_replaced_by_a_plain_value(small_swarm):
    small_swarm.fill([model("m-hf", 3), *FakeServer("honest", 0, 3).records("m-hf")])
    small_swarm.fill([Raw("_petals.models", None, "gone", lifetime=400.0)])
    with pytest.raises(NothingToPlan, match=r"announces no models.*--num-blocks"):
        read_live("m-hf", small_swarm.peers)
    assert len(read_live("m-hf", small_swarm.peers, num_blocks=3).state().servers) == 1


def test_a_model_that_is_announced_for_years_is_not_believed(swarm):
    swarm.fill([model("years-hf", 3, lifetime=1e8), *FakeServer("honest", 0, 3).records("years-hf")])
    with pytest.raises(NothingToPlan, match="--num-blocks"):
        read_live("years-hf", swarm.peers)


def test_a_flood_of_subkeys(small_swarm):
    small_swarm.fill([model("flood-hf", 6), *FakeServer("honest", 0, 6).records("flood-hf")])
    packed = msgpack.packb([2, 5.0])
    small_swarm.plant([Raw("flood-hf.2", f"flood{number}", packed=packed) for number in range(10_100)])
    begun = time.monotonic()
    reading = read_live("flood-hf", small_swarm.peers)
    seconds = time.monotonic() - begun
    print(f"flood: {seconds:.1f} s, {len(reading.records):,} records")
    assert seconds < 20
    assert len(reading.records) == 10_005
    assert reading.warnings == ("flood-hf.2: dropped over 10,000 subkeys (101)",)
    assert "honest" in {server.peer_id for server in reading.state().servers}


def test_a_key_too_large_to_be_sent_does_not_hide_the_others(small_swarm):
    # What one node may send is 4 MiB: this key can never come, and whatever is asked along with it fails too.
    honest = [FakeServer("a", 0, 30), *random_servers(9, 30, 4)]
    small_swarm.fill([model("huge-hf", 30), *(raw for server in honest for raw in server.records("huge-hf"))])
    small_swarm.plant([Raw("huge-hf.7", f"evil{number}", packed=b"x" * 10**6) for number in range(6)])
    begun = time.monotonic()
    reading = read_live("huge-hf", small_swarm.peers)
    print(f"{time.monotonic() - begun:.1f} s, {reading.summary()}, {reading.expected_missed}")
    assert time.monotonic() - begun < 30
    assert reading.silent == (7,)
    assert len(reading.state().servers) == 10
    assert reading.responses < reading.calls


def test_hostile_agents_records_are_dropped_with_a_line_each_and_the_rest_is_read(swarm):
    prefix, key = "evil-agents-hf", f"{live.AGENTS_KEY}evil-agents-hf"
    good = {"version": 1, "state": "serving", "span": (0, 4), "capacity": 6, "throughput": 5.0}
    hostile = {
        "version2": {**good, "version": 2},
        "list": list(good.items()),
        "word": "serving",
        "null": None,
        "infinite": {**good, "throughput": float("inf")},
        "negative": {**good, "capacity": -1},
        "megabyte": {**good, "state": "x" * 10**6},
        "deep": {**good, "adapters": deep(500)},
        "outside": {**good, "span": (0, 99)},
    }
    swarm.fill([model(prefix, 4), *FakeServer("honest", 0, 4).records(prefix), Raw(key, "honest", good)])
    swarm.fill(Raw(key, subkey, value) for subkey, value in hostile.items())
    swarm.fill([Raw(key, "forever", {"state": "waiting", "capacity": 2, "throughput": 1.0}, lifetime=1e9)])
    swarm.fill([Raw(key, 7, good), Raw(key, b"bytes", good)])
    reading = read_live(prefix, swarm.peers)
    (server,) = reading.state().servers
    assert (server.peer_id, server.agent.capacity) == ("honest", 6)
    assert [warning.split(": dropped its agent's record: ")[0] for warning in reading.state().warnings] == sorted(
        [*hostile, "forever"]
    )
    assert reading.warnings == (f"{key}: dropped subkeys that are not text (2)",)
    swarm.fill([Raw(key, None, "mine", lifetime=2e9)])
    reading = read_live(prefix, swarm.peers)
    assert [server.peer_id for server in reading.state().servers] == ["honest"]
    assert "plain value stands where a dictionary belongs" in reading.warnings[0]


def test_a_strangers_later_records_under_someone_elses_peer_id(swarm):
    prefix, key = "name-hf", f"{live.AGENTS_KEY}name-hf"
    agent = {"version": 1, "state": "serving", "capacity": 6}
    servers = [FakeServer("stated", 0, 4), FakeServer("unstated", 0, 4, stated=False), FakeServer("lied", 0, 4)]
    servers.append(FakeServer("other", 0, 4))
    swarm.fill([model(prefix, 4), *(raw for server in servers for raw in server.records(prefix))])
    swarm.fill([Raw(key, server.peer_id, agent) for server in servers])
    before = {server.peer_id: server for server in read_live(prefix, swarm.peers).state().servers}
    swarm.fill(
        [
            # What is not in order is dropped; where that takes a key away, the server counts as uncertain.
            Raw(f"{prefix}.1", "stated", (7, 1.0, {}), lifetime=1000),
            Raw(f"{prefix}.1", "unstated", "junk", lifetime=1000),
            Raw(key, "other", {**agent, "capacity": "all"}, lifetime=1000),
            # A lie that is in order is believed, as a record proves nothing, of the one that it is about.
            Raw(f"{prefix}.0", "lied", (2, 9.0, {"start_block": 0, "end_block": 2}), lifetime=1000),
        ]
    )
    state = read_live(prefix, swarm.peers).state()
    after = {server.peer_id: server for server in state.servers}
    assert after["stated"] == before["stated"]
    assert (after["unstated"].uncertain, after["unstated"].span) == (True, Span(0, 4))
    assert after["other"] == replace(before["other"], agent=None)
    assert (after["lied"].span, after["lied"].throughput) == (Span(0, 2), 9.0)
    assert {warning.split(":")[0] for warning in state.warnings} == {"stated", "unstated", "other"}


def test_someone_elses_expiration_does_not_reach_the_plan(swarm):
    swarm.fill([model("late-hf", 4), *FakeServer("honest", 0, 4, 50.0).records("late-hf")])
    swarm.fill([Raw("late-hf.0", "honest", (2, 1e6, {"start_block": 0, "end_block": 1}), lifetime=1e9)])
    (server,) = read_live("late-hf", swarm.peers).state().servers
    assert (server.throughput, server.span) == (50.0, Span(0, 4))


def test_warnings_are_never_a_flood(swarm):
    swarm.fill([model("warn-hf", 60), *FakeServer("honest", 0, 60).records("warn-hf")])
    swarm.fill(Raw(f"warn-hf.{block}", 5, (2, 1.0)) for block in range(60))
    reading = read_live("warn-hf", swarm.peers)
    assert len(reading.warnings) == live.MAX_WARNINGS + 1
    assert reading.warnings[-1] == "... and 40 more keys with bad records"
