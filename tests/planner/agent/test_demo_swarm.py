"""The demo swarm is real: what its servers announce, who can generate through it, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest

from planner import Policy, load_state, make_plan
from planner.agent.demo_swarm import LAYOUT, DemoSwarm, DemoSwarmFailed, ServerSpec
from planner.event_loop import run
from planner.keys import generate
from planner.live import AGENTS_KEY, read_from, read_live
from planner.node import client_node
from planner.plan_records import fetch_index
from planner.published import read_plan
from planner.publishing import publish
from planner.state import ServerState
from planner.status import swarm_status
from solver.problem import Span
from tests.planner.agent.beside import beside, started
from tests.planner.agent.left_behind import assert_nothing_left, processes_of, swarm_of

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:path is deprecated:DeprecationWarning")]

STATES = {0: "offline", 1: "joining", 2: "online"}


@pytest.fixture(scope="module")
def swarm():
    with DemoSwarm() as swarm:
        folder, pids = swarm.folder, set()
        yield swarm
        pids |= set(processes_of(folder))
    assert "p2pd" not in processes_of(folder).values()
    assert_nothing_left(folder, pids, timeout=5)


def other_process(swarm, script):
    """Asks a script with a node of its own in the swarm's DHT, whose sockets go with the swarm's folder."""
    return beside(script, [str(swarm.model), swarm.initial_peers[0], swarm.prefix], swarm.folder)


@pytest.fixture(scope="module")
def stock(swarm):
    """What a reading by Petals' own functions gives, anew at each call."""
    with other_process(swarm, "stock_reader.py") as ask:
        yield ask


@pytest.fixture(scope="module")
def client(swarm):
    """A stock client: each call generates half of a text.

    It looks for servers once a minute only: a test that kills one comes after those that it is for.
    """
    with other_process(swarm, "generate.py") as ask:
        yield ask


def announced(dump, peer_id):
    """What a peer says, by block."""
    return {
        int(record["uid"].rpartition(".")[2]): record["value"]
        for record in dump["records"]
        if record["peer_id"] == peer_id
    }


def states_of(records, peer_id):
    return {block: STATES[value[0]] for block, value in announced({"records": records}, peer_id).items()}


def wait_for(stock, peer_id, blocks):
    """Wait until the DHT has exactly these states of a peer's blocks."""
    deadline = time.monotonic() + 60
    while (states := states_of(stock()["dump"]["records"], peer_id)) != blocks:
        assert time.monotonic() < deadline, f"still {states}"


def bare(state):
    """The servers without what a health monitor does not show."""
    return [replace(server, agent=None) for server in state.servers]


async def seen_alike(node, swarm, stock, peer_id, blocks):
    """Wait for these states of a peer's blocks: as what the planner and a health monitor then see it; None if gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before = await read_from(node, swarm.prefix, swarm.num_blocks)
        if (states := states_of(before.records, peer_id)) == blocks:
            monitor, after = stock()["monitor"], await read_from(node, swarm.prefix, swarm.num_blocks)
            # What is the same before and after was so meanwhile: no server comes back to a state that it has left.
            if bare(before.state()) == bare(after.state()):
                assert bare(load_state(monitor)) == bare(after.state())
                return next((server for server in after.state().servers if server.peer_id == peer_id), None)
    raise AssertionError(f"still {states}")


def test_real_servers_announce_the_layout_and_one_move_mends_it(swarm, stock):
    seen = stock()
    dump = seen["dump"]
    assert seen["models"] == {swarm.prefix: {"num_blocks": 8, "repository": None}}
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


def test_a_stock_client_generates_what_the_local_model_does(client):
    begun = client()
    assert begun["difference"] <= 1e-4 < begun["size"]
    assert begun["generated"] == begun["expected"]
    done = client()
    assert done["generated"] == done["expected"]
    assert len(done["expected"]) == len(begun["expected"]) + 6


def store_agents(swarm, reading):
    """Announce an agent of every server, as agents will."""
    records = {
        server.peer_id: {"version": 1, "state": "serving", "span": list(server.span), "capacity": 4, "pinned": False}
        for server in reading.state().servers
    }

    async def store():
        async with client_node(swarm.initial_peers) as node:
            for peer_id, value in records.items():
                assert await node.store(f"{AGENTS_KEY}{swarm.prefix}", peer_id, value, time.time() + 300)

    run(store())
    return set(records)


def test_stock_petals_goes_on_unchanged_beside_plans_and_agents_records(swarm, stock, client):
    with other_process(swarm, "generate.py") as newcomer:  # starts up meanwhile, and joins when it is first asked
        begun, before = client(), stock()
        peers = store_agents(swarm, read_live(swarm.prefix, swarm.initial_peers))
        key, state = generate(), read_live(swarm.prefix, swarm.initial_peers).state()
        plan = read_plan(make_plan(state, Policy(time_limit=5.0, workers=1)).to_json())
        assert {tuple(move.target) for move in plan.moves} == {(4, 8)}
        publish(plan, key, swarm.initial_peers)
        published = time.time()

        async def index():
            async with client_node(swarm.initial_peers) as node:
                return await fetch_index(node, swarm.prefix)

        def assert_stands():
            status = swarm_status(swarm.prefix, swarm.initial_peers, [key.public])
            assert [(row.verdict, row.fresh) for row in status.keys] == [("valid", True)]
            assert {server.peer_id for server in status.servers if server.agent == "serving"} == peers
            assert run(index()).keys == (key.public,)

        assert_stands()
        after = stock()
        assert after["stock"] == before["stock"]
        assert after["models"] == before["models"]
        assert bare(load_state(after["monitor"])) == bare(load_state(before["monitor"])) == bare(state)
        done, new, rest = client(), newcomer(), newcomer()
    # In the middle of its generation and from the beginning: token for token what it was.
    assert done["generated"][: len(begun["generated"])] == begun["generated"]
    assert done["generated"] == rest["generated"] == done["expected"]
    assert new["difference"] <= 1e-4 < new["size"]

    # A stock server joins, is seen, and goes.
    swarm.add(ServerSpec("after", 4, 6, 5.0))
    peer_id = swarm.wait("after", "online", 60).peer_id
    wait_for(stock, peer_id, {4: "online", 5: "online"})
    seen = stock()
    assert seen["stock"]["spans"].pop(peer_id)[:3] == [4, 6, "online"]
    assert seen["stock"]["spans"] == before["stock"]["spans"]
    swarm.take_offline("after")

    # All others have announced themselves again.
    ages = {}
    deadline = time.monotonic() + 30
    while not ages or min(ages.values()) < published:
        assert time.monotonic() < deadline, ages
        records = [record for record in stock()["dump"]["records"] if record["peer_id"] in peers]
        ages = {(one["uid"], one["peer_id"]): one["expiration"] - 2 * swarm.update_period for one in records}
    assert {peer_id for _, peer_id in ages} == peers
    assert stock()["models"] == before["models"]
    assert_stands()
    swarm.wait("after", "ended")


def test_a_server_is_read_in_every_state_until_it_is_gone_as_a_health_monitor_shows_it(swarm, stock):
    async def follow():
        async with client_node(swarm.initial_peers, 240.0) as node:  # one for all: states last for seconds
            swarm.add(ServerSpec("late", 2, 4, 50.0, seconds_per_block=5.0))
            peer_id = swarm.wait("late", "joining", 60).peer_id
            late = await seen_alike(node, swarm, stock, peer_id, {2: "joining", 3: "joining"})
            assert (late.state, late.span, late.throughput) == (ServerState.JOINING, Span(2, 4), 50.0)
            swarm.wait("late", "online", 60)
            late = await seen_alike(node, swarm, stock, peer_id, {2: "online", 3: "online"})
            assert (late.state, late.span, late.throughput) == (ServerState.ONLINE, Span(2, 4), 50.0)
            swarm.take_offline("late")
            assert swarm.wait("late", "offline").peer_id == peer_id
            assert await seen_alike(node, swarm, stock, peer_id, {2: "offline", 3: "offline"}) is None
            assert swarm.wait("late", "ended").exit_code == 0
            assert await seen_alike(node, swarm, stock, peer_id, {}) is None

    run(follow())
    assert swarm.servers["late"].states == ("starting", "joining", "online", "offline", "ended")


def test_a_killed_server_says_nothing_and_its_records_expire(swarm, stock):
    swarm.add(ServerSpec("doomed", 6, 8, 1.0))
    peer_id = swarm.wait("doomed", "online", 60).peer_id
    wait_for(stock, peer_id, {6: "online", 7: "online"})
    before = processes_of(swarm.folder)
    swarm.kill("doomed")
    assert swarm.wait("doomed", "ended").exit_code == -signal.SIGKILL
    killed = time.monotonic()
    shown = set()
    while states := states_of((seen := stock())["dump"]["records"], peer_id):
        assert set(states.values()) == {"online"}
        monitor = load_state(seen["monitor"])
        if peer_id in {server.peer_id for server in monitor.servers}:
            shown |= {warning for warning in monitor.warnings if warning.startswith(peer_id)}
        time.sleep(0.2)
    assert time.monotonic() - killed < 2 * swarm.update_period + 5
    # A monitor that cannot reach it shows what it announced last, and so does a reading of the DHT.
    assert shown == {f"{peer_id}: the monitor could not reach it; it counts as 'online', as it announces"}
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


# As the command runs it, but with one server.
ONE_SERVER = """
import sys
from contextlib import suppress
from cli.interrupt import cleaning_up
from planner.agent import demo
with suppress(KeyboardInterrupt), cleaning_up() as ending:
    write = lambda line: print(line, flush=True)
    demo.run(write, demo.LAYOUT[3:], peers_file=sys.argv[1], leave_if_told=ending.leave_if_told)
"""


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
    peers.write_text(f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}\n")  # of a swarm that was killed
    with started("-c", ONE_SERVER, str(peers)) as process:
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
