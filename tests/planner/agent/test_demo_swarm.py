"""The demo swarm is real: what its servers announce, who can generate through it, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner import load_state, make_plan
from planner.agent.demo_swarm import LAYOUT, DemoSwarm, DemoSwarmFailed, ServerSpec
from tests.planner.agent.left_behind import assert_nothing_left, processes_of, swarm_of

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "HIVEMIND_LOGLEVEL": "ERROR"}
STATES = {0: "offline", 1: "joining", 2: "online"}


@pytest.fixture(scope="module")
def swarm():
    with DemoSwarm() as swarm:
        folder, pids = swarm.folder, set()
        yield swarm
        pids |= set(processes_of(folder))
    assert "p2pd" not in processes_of(folder).values()
    assert_nothing_left(folder, pids, timeout=5)


@contextmanager
def other_process(swarm, script):
    """A script with a node of its own in the swarm's DHT, whose sockets go with the swarm's folder."""
    arguments = [str(swarm.model), swarm.initial_peers[0], swarm.prefix]
    with subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "TMPDIR": str(swarm.folder)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def reader(swarm):
    """Dumps of the swarm, read by another process; each `next` is newer than the call."""
    with other_process(swarm, "read_dht.py") as process:

        def fresh():
            asked = time.time()
            for line in process.stdout:
                dump = json.loads(line)
                # The reading began after the call: it ended at least a pause after it.
                if dump["read_at"] > asked + 0.2:
                    yield dump
                    asked = time.time()

        yield fresh()


def announced(dump, peer_id):
    """What a peer says, by block."""
    return {
        int(record["uid"].rpartition(".")[2]): record["value"]
        for record in dump["records"]
        if record["peer_id"] == peer_id
    }


def wait_for(dumps, peer_id, blocks):
    """The first reading that has exactly these states of a peer's blocks."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        records = announced(next(dumps), peer_id)
        if {block: STATES[value[0]] for block, value in records.items()} == blocks:
            return records
    raise AssertionError(f"still {records}")


def test_real_servers_announce_the_layout_and_one_move_mends_it(swarm):
    with reader(swarm) as dumps:
        dump = next(dumps)
    assert dump["models"] == {"num_blocks": 8, "repository": None}
    servers = swarm.servers
    assert [(server.spec, server.state) for server in servers.values()] == [(spec, "online") for spec in LAYOUT]
    assert {record["peer_id"] for record in dump["records"]} == {server.peer_id for server in servers.values()}
    for spec in LAYOUT:
        records = announced(dump, servers[spec.name].peer_id)
        assert set(records) == set(range(spec.start, spec.end))
        for state, throughput, info in records.values():
            assert (STATES[state], throughput) == ("online", spec.throughput)
            assert (info["start_block"], info["end_block"]) == (spec.start, spec.end)
            assert (info["public_name"], info["using_relay"]) == (spec.name, False)
    plan = make_plan(load_state(dump))
    moves = {server.peer_id: tuple(server.target) for server in plan.servers if server.target != server.current}
    assert moves == {servers["bravo"].peer_id: (4, 8)}
    assert (plan.before.min_throughput, plan.after.min_throughput) == (70.0, 160.0)


def test_a_stock_client_generates_what_the_local_model_does(swarm):
    with other_process(swarm, "generate.py") as process:
        said = process.stdout.readline()
    answer = json.loads(said)
    assert answer["difference"] <= 1e-4 < answer["size"]
    assert answer["generated"] == answer["expected"]


def test_a_server_is_seen_in_every_state_until_it_is_gone(swarm):
    with reader(swarm) as dumps:
        next(dumps)
        swarm.add(ServerSpec("late", 2, 4, 50.0, seconds_per_block=3.0))
        peer_id = swarm.wait("late", "joining", 60).peer_id
        (records,) = {str(value[1:2]) for value in wait_for(dumps, peer_id, {2: "joining", 3: "joining"}).values()}
        assert records == "[50.0]"
        swarm.wait("late", "online", 60)
        wait_for(dumps, peer_id, {2: "online", 3: "online"})
        swarm.take_offline("late")
        assert swarm.wait("late", "offline").peer_id == peer_id
        wait_for(dumps, peer_id, {2: "offline", 3: "offline"})
        assert swarm.wait("late", "ended").exit_code == 0
        wait_for(dumps, peer_id, {})
    assert swarm.servers["late"].states == ("starting", "joining", "online", "offline", "ended")


def test_a_killed_server_says_nothing_and_its_records_expire(swarm):
    swarm.add(ServerSpec("doomed", 6, 8, 1.0))
    peer_id = swarm.wait("doomed", "online", 60).peer_id
    before = processes_of(swarm.folder)
    with reader(swarm) as dumps:
        wait_for(dumps, peer_id, {6: "online", 7: "online"})
        swarm.kill("doomed")
        assert swarm.wait("doomed", "ended").exit_code == -signal.SIGKILL
        killed = time.monotonic()
        seen = set()
        while records := announced(next(dumps), peer_id):
            seen |= {STATES[value[0]] for value in records.values()}
        assert time.monotonic() - killed < 2 * swarm.update_period + 5
    assert seen <= {"online"}
    # It may join faster than anybody looks.
    assert [state for state in swarm.servers["doomed"].states if state != "joining"] == ["starting", "online", "ended"]
    after = processes_of(swarm.folder)
    assert list(after.values()).count("p2pd") == list(before.values()).count("p2pd") - 2


def test_a_server_that_cannot_start_is_named_with_its_reason_and_nothing_stays():
    swarm = DemoSwarm(LAYOUT[:1], prefix="no.dots")
    with pytest.raises(DemoSwarmFailed, match=r"server alpha ended by itself: .*DHT prefix should not contain"), swarm:
        pytest.fail("it started")
    assert_nothing_left(swarm.folder, set())


def test_a_start_that_takes_too_long_is_given_up_and_nothing_stays():
    swarm = DemoSwarm(LAYOUT[:1], timeout=0.5)
    with pytest.raises(DemoSwarmFailed, match="waited too long for Petals and the DHT"):
        swarm.start()
    assert_nothing_left(swarm.folder, set())
    with pytest.raises(DemoSwarmFailed, match="is not running"):
        swarm.add(LAYOUT[0])
    assert swarm.servers == {}


@pytest.mark.parametrize(
    ("number", "whose", "when", "code"),
    [
        (signal.SIGINT, "ours", "up", 0),
        (signal.SIGTERM, "ours", "up", 128 + signal.SIGTERM),
        (signal.SIGTERM, "ours", "starting", 128 + signal.SIGTERM),
        (signal.SIGKILL, "ours", "up", -signal.SIGKILL),
        (signal.SIGKILL, "the nursery's", "up", 1),
    ],
)
def test_however_it_ends_nothing_of_it_stays(number, whose, when, code, tmp_path):
    peers = tmp_path / "swarm.peers"
    peers.write_text("of a swarm that was killed")
    script = "import sys; from planner.agent import demo; "
    script += "demo.run(lambda line: print(line, flush=True), demo.LAYOUT[3:], peers_file=sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(peers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        nursery, folder = swarm_of(process.pid)
        assert not peers.exists()
        if when == "up":
            lines = iter(process.stdout)
            command = next(line for line in lines if "plan-swarm --prefix tiny-llama-hf --initial-peers /ip4/" in line)
            assert command.strip().startswith("plan-swarm ")
            assert command.strip().endswith(f" --initial-peers {peers.read_text().strip()}")
            assert "Ctrl-C" in next(line for line in lines if line.strip())
        pids = set(processes_of(folder))
        assert pids
        os.kill(process.pid if whose == "ours" else nursery, number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert ("Traceback" in errors) == (code == 1)
    # When it is killed itself the rest is left to others, who take their time.
    assert_nothing_left(folder, pids, timeout=30 if code == -signal.SIGKILL else 5)
    assert [*tmp_path.iterdir()] == ([peers] if code == -signal.SIGKILL else [])
