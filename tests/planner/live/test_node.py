from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from planner import node as node_module
from planner.errors import PolicyInvalid, SwarmUnreachable
from planner.event_loop import run
from planner.live import read_from, read_live
from planner.node import PETALS_INITIAL_PEERS, RawKey, check_addresses, client_node
from planner.wire import Unreadable
from tests.petals_shim import install
from tests.planner.live.swarm import FakeServer, Raw, daemons, model

ROOT = Path(__file__).parents[3]
SOMEBODY = "QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY"


@pytest.fixture(scope="module", autouse=True)
def _hivemind_is_imported():
    """Imported beforehand, so that what is timed is the network."""
    importlib.import_module("hivemind.dht.node")


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def with_node(peers, use, timeout=20.0):
    async with client_node(peers, timeout) as node:
        return await use(node)


def get(peers, *keys):
    return run(with_node(peers, lambda node: node.get(keys)))


# What it gets and stores.


def test_values_of_all_kinds(swarm):
    before = time.time()
    values = {"int": 5, "text": "x", "none": None, "bytes": b"\xff\x00", "tuple": (1, (2.5, [b"z"])), "map": {"a": [1]}}
    swarm.fill(Raw("kinds", name, value) for name, value in values.items())
    swarm.fill([Raw("one", None, ("plain", 1))])
    found = get(swarm.peers, "kinds", "one", "nothing")
    kinds = found["kinds"]
    assert {name: value for name, (value, _) in kinds.subkeys.items()} == values
    assert all(before + 300 <= expires <= time.time() + 300 for _, expires in kinds.subkeys.values())
    assert (kinds.value, kinds.is_dictionary, kinds.dropped) == (None, True, {})
    assert found["one"] == RawKey(found["one"].expiration, ("plain", 1), is_dictionary=False)
    assert found["nothing"] is None


def test_bad_values_are_said_and_not_raised(swarm):
    swarm.plant([Raw("bad", "not msgpack", packed=b"\xc1"), Raw("bad", "good", packed=b"\x05")])
    swarm.plant([Raw("bad", 5, packed=b"\x05"), Raw("bad", "x" * 257, packed=b"\x05")])
    found = get(swarm.peers, "bad")["bad"]
    assert found.subkeys["good"][0] == 5
    assert found.subkeys["not msgpack"][0] == Unreadable("not msgpack")
    assert found.dropped == {"subkeys that are not text": 1, "subkeys of over 256 characters": 1}


def test_the_newest_of_several_nodes_is_found(swarm):
    from hivemind.dht.routing import DHTID

    async def plant():
        for number, node in enumerate(swarm.nodes):
            for subkey, value in (("same", number), (f"own{number}", 9)):
                node.protocol.storage.store(
                    DHTID.generate("merge"), bytes([value]), time.time() + 100 + number, subkey=subkey
                )

    swarm.do(plant())
    subkeys = get(swarm.peers, "merge")["merge"].subkeys
    assert subkeys["same"][0] == 3
    assert set(subkeys) == {"same", "own0", "own1", "own2", "own3"}


def test_storing(swarm):
    async def use(node):
        expiration = time.time() + 60
        first = await node.store("key", "a", (1, b"two"), expiration)
        older = await node.store("key", "a", 5, expiration - 1)
        newer = await node.store("key", "b", {"x": 1}, int(expiration))
        past = await node.store("key", "c", 5, time.time() - 60)
        return first, older, newer, past, await node.get(["key"])

    first, older, newer, past, found = run(with_node(swarm.peers, use))
    assert (first, older, newer, past) == (True, False, True, False)
    assert {name: value for name, (value, _) in found["key"].subkeys.items()} == {"a": (1, b"two"), "b": {"x": 1}}
    # It outlives the client that stored it, which held nothing of it itself.
    assert set(get(swarm.peers, "key")["key"].subkeys) == {"a", "b"}


def test_no_time_is_left(swarm):
    async def use(node):
        await asyncio.sleep(node.remaining)
        return node.remaining, await node.get(["key"]), await node.store("key", "z", 5, time.time() + 60)

    assert run(with_node(swarm.peers, use, timeout=1.5)) == (0.0, {}, False)


def test_hiveminds_log_is_silenced_while_a_node_is_there_and_not_after(swarm):
    logger = logging.getLogger("hivemind")
    level = logger.level

    async def use(_node):
        return logger.isEnabledFor(logging.CRITICAL)

    assert run(with_node(swarm.peers, use)) is False
    assert logger.level == level


def test_initial_peers_that_hivemind_forgot_are_greeted_again(swarm):
    swarm.fill([Raw("forgotten", "a", 1)])

    async def use(node):
        table = node._node.protocol.routing_table
        for uid in list(table.uid_to_peer_id):
            del table[uid]
        return await node.get(["forgotten"])

    assert run(with_node(swarm.peers, use))["forgotten"].subkeys["a"][0] == 1


# Peers that cannot be reached.


def test_the_public_peers_are_those_of_petals():
    install()
    constants = importlib.import_module("petals.constants")
    assert list(PETALS_INITIAL_PEERS) == constants.PUBLIC_INITIAL_PEERS
    assert check_addresses(PETALS_INITIAL_PEERS) == list(PETALS_INITIAL_PEERS)


@pytest.mark.parametrize(
    "peer",
    [
        "",
        "foo",
        "/ip4/127.0.0.1/tcp/31337",
        "/ip4/127.0.0.1/tcp/31337/p2p/",
        "/ip4/127.0.0.1/tcp/31337/p2p/abc",
        f"127.0.0.1/tcp/1/p2p/{SOMEBODY}",
        f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}/",
        f"/ip4/127.0.0.1/tcp/1 /p2p/{SOMEBODY}",
        f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY},/ip4",
        f"-b/p2p/{SOMEBODY}",
        "/ip4\x1b[2J",
        "/x" * 100_000,
        "/x" * 499,
        f"/ip4/127.0.0.1,/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}",
        f"/ip4/{'1' * 5000}/p2p/{SOMEBODY}",
        f"/ip4/999.1.1.1/tcp/1/p2p/{SOMEBODY}",
        f"/nonsense/tcp/1/p2p/{SOMEBODY}",
        f"/p2p/{SOMEBODY}",
        f"/ip4/127.0.0.1/tcp/65536/p2p/{SOMEBODY}",
        f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY[:-1]}",
    ],
    ids=lambda peer: peer[:40].replace("\x1b", "ESC"),
)
def test_malformed_addresses(peer):
    begun = time.monotonic()
    with pytest.raises(PolicyInvalid, match=r"the initial peer '.*': .*; write it like /ip4/192") as caught:
        read_live("m", [peer], timeout=5)
    assert time.monotonic() - begun < 0.5
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_no_peer_at_all():
    with pytest.raises(PolicyInvalid, match="no initial peer is given; name a node of the swarm with --initial-peers"):
        read_live("m", [])


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/127.0.0.1/tcp/PORT",
        "/ip4/203.0.113.1/tcp/31337",
        "/dns/nowhere.invalid/tcp/31337",
        "/ip4/127.0.0.1/nonsense/PORT",
    ],
)
def test_nobody_is_there(address):
    peer = f"{address.replace('PORT', str(unused_port()))}/p2p/{SOMEBODY}"
    begun = time.monotonic()
    with pytest.raises(SwarmUnreachable) as caught:
        read_live("m", [peer], timeout=8)
    assert time.monotonic() - begun < 8.5
    assert f"tried {peer[:50]}" in str(caught.value)
    assert "check the network, the addresses" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_somebody_else_is_there(swarm):
    peer = f"{swarm.peers[0].rpartition('/')[0]}/{SOMEBODY}"
    with pytest.raises(SwarmUnreachable, match="no initial peer could be connected to; tried "):
        read_live("m", [peer], timeout=8)


def test_a_libp2p_peer_that_is_no_node_of_a_dht(swarm):
    async def start():
        return await importlib.import_module("hivemind.p2p").P2P.create(host_maddrs=["/ip4/127.0.0.1/tcp/0"])

    async def visible(p2p):
        return [str(address) for address in await p2p.get_visible_maddrs()]

    p2p = swarm.do(start())
    try:
        with pytest.raises(SwarmUnreachable, match="no initial peer answered as a node of a DHT"):
            read_live("m", swarm.do(visible(p2p)), timeout=8)
    finally:
        swarm.do(p2p.shutdown())


@pytest.mark.parametrize("timeout", [1.0, 4.0])
def test_an_answer_that_never_comes(timeout):
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, and says nothing
        peer = f"/ip4/127.0.0.1/tcp/{server.getsockname()[1]}/p2p/{SOMEBODY}"
        begun = time.monotonic()
        with pytest.raises(SwarmUnreachable, match="no initial peer answered within the time; tried "):
            read_live("m", [peer], timeout=timeout)
        assert time.monotonic() - begun < timeout + 0.5


def test_one_good_peer_among_bad_ones_is_enough(swarm):
    swarm.fill([model("good-hf", 2), *FakeServer("a", 0, 2).records("good-hf")])
    bad = [f"/ip4/127.0.0.1/tcp/{unused_port()}/p2p/{SOMEBODY}", f"/dns/nowhere.invalid/tcp/1/p2p/{SOMEBODY}"]
    assert len(read_live("good-hf", [*bad, *swarm.peers]).records) == 2


def suspend(processes):
    """Stop them, and wait until they have: one that is running may still answer."""
    for process in processes:
        process.suspend()
    deadline = time.monotonic() + 5
    while any(process.status() != psutil.STATUS_STOPPED for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_swarm_that_falls_silent_after_joining(small_swarm):
    small_swarm.fill([model("m-hf", 2), *FakeServer("a", 0, 2).records("m-hf")])
    stopped = [psutil.Process(node.p2p._child.pid) for node in small_swarm.nodes]

    async def use(node):
        suspend(stopped)
        return await read_from(node, "m-hf")

    begun = time.monotonic()
    try:
        with pytest.raises(SwarmUnreachable, match=r"but 0 of \d+ calls for 1 keys were answered in time"):
            run(with_node(small_swarm.peers, use, timeout=6))
        assert time.monotonic() - begun < 7
        with pytest.raises(SwarmUnreachable, match="no initial peer"):
            read_live("m-hf", small_swarm.peers, timeout=3)
    finally:
        for process in stopped:
            process.resume()


def test_a_swarm_that_falls_silent_between_the_models_and_the_blocks(small_swarm):
    small_swarm.fill([model("m-hf", 2), *FakeServer("a", 0, 2).records("m-hf")])
    stopped = [psutil.Process(node.p2p._child.pid) for node in small_swarm.nodes]

    def stop(step):
        if (step.stage, step.tries) == ("models", 2):
            suspend(stopped)

    try:
        with pytest.raises(SwarmUnreachable, match=r"but 0 of \d+ calls for 3 keys were answered in time"):
            read_live("m-hf", small_swarm.peers, timeout=8, progress=stop)
    finally:
        for process in stopped:
            process.resume()


def test_a_swarm_half_of_which_has_died(small_swarm):
    small_swarm.fill([model("m-hf", 6), *FakeServer("a", 0, 6).records("m-hf")])
    for _ in range(2):
        small_swarm.do(small_swarm.nodes.pop().shutdown())
    assert len(read_live("m-hf", small_swarm.peers).records) == 6


def test_without_hivemind(monkeypatch, swarm):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    node_module._hivemind.cache_clear()
    monkeypatch.setattr(node_module, "import_module", missing)
    with pytest.raises(SwarmUnreachable, match=r"needs hivemind 1\.1\.12.*No module named 'hivemind.*--dump"):
        read_live("m", swarm.peers)


# No process stays. (The fixture of this folder looks after every test.)


def test_an_error_inside(swarm):
    async def use(_node):
        assert daemons()
        raise KeyError("inside")

    with pytest.raises(KeyError):
        run(with_node(swarm.peers, use))


def test_nobody_makes_a_text_of_what_is_returned():
    class Vast:
        def __repr__(self):
            raise AssertionError("this takes seconds")

    async def main():
        return Vast()

    assert isinstance(run(main()), Vast)


def test_a_cancelled_reading(swarm):
    async def main():
        task = asyncio.create_task(with_node(swarm.peers, lambda _node: asyncio.sleep(100)))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_daemon_that_does_not_heed_the_request_to_end(swarm):
    async def use(node):
        os.kill(node._node.p2p._child.pid, signal.SIGSTOP)

    begun = time.monotonic()
    run(with_node(swarm.peers, use))
    assert time.monotonic() - begun < 6


READER = """
import signal, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as the command does
from planner.live import read_live
from planner.gather import gather
import planner.swarm_models
async def for_ever(node, keys, progress=None, enough=None):
    print("reading", flush=True)
    while True:
        await gather(node, keys)
planner.swarm_models.gather = for_ever
print("joining", flush=True)
try:
    read_live("m-hf", sys.argv[2:], 2, timeout=60, progress=lambda step: print(step.stage, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("stage", ["joining", "reading"])
def test_a_reader_that_is_told_to_end(swarm, number, code, stage):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}/p2p/{SOMEBODY}"
        peers = swarm.peers if stage == "reading" else [nobody]
        arguments = [sys.executable, "-c", READER, str(ROOT), *peers]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            try:
                while reader.stdout.readline().strip() != stage:
                    assert reader.poll() is None
                deadline = time.monotonic() + 20
                while not (started := daemons(reader.pid)) and time.monotonic() < deadline:
                    time.sleep(0.02)
                assert started
                time.sleep(0.3)
                reader.send_signal(number)
                _, errors = reader.communicate(timeout=20)
            finally:
                reader.kill()
    assert (reader.returncode, errors) == (code, "")
    assert not [pid for pid in started if psutil.pid_exists(pid)]


# What is imported.


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("from planner import load_state; load_state('examples/llama-65b-hf.json')", "hivemind torch msgpack asyncio"),
        ("import planner.dump", "hivemind torch msgpack asyncio"),
        ("import planner.live, planner.swarm_models, planner.prefixes", "hivemind torch ortools petals"),
        ("from planner.node import _hivemind; _hivemind()", "petals transformers ortools"),
    ],
)
def test_what_is_imported(code, absent):
    script = f"{code}; import sys; print([name for name in {absent.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
