"""`plan-swarm serve` end to end: real servers, a real client, and nothing but the commands of the README."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from planner.agent.follow import ANSWER_AGE
from planner.agent.tiny_model import make_tiny_model
from planner.agent.turns import MARGIN
from planner.keys import generate, load_key
from planner.node import client_node
from planner.plan_records import fetch_plans, plans_key
from planner.sealing import Kind, seal
from tests.cli.process import run
from tests.planner.agent.beside import beside
from tests.planner.agent.served import PREFIX, REFRESH, Servers, until

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:path is deprecated:DeprecationWarning")]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    key = str(folder / "operator.pem")
    trust = run("keygen", key, stdin=-3).stdout.strip()
    servers = Servers(folder, make_tiny_model(folder / "model"), trust)
    try:
        servers.start("alpha", "--block_indices", "0:4", "--throughput", "100")
        servers.start("bravo", "--block_indices", "0:4", "--throughput", "90")
        servers.start("delta", "--block_indices", "4:8", "--throughput", "70")
        servers.start("charlie", "--num_blocks", "4", "--throughput", "60")
        yield servers
        processes = [psutil.Process(process.pid) for process in servers.processes.values()]
        below = [child for process in processes for child in process.children(recursive=True)]
    finally:
        servers.end()
    assert below
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == []


@pytest.fixture(scope="module")
def client(servers):
    """A stock client: each call generates half of a text, in one session for both halves."""
    arguments = [str(servers.model), servers.initial_peer, PREFIX]
    with beside("generate.py", arguments, servers.folder, retries=10) as ask:
        yield ask


def planned(servers, *asked):
    """A plan of what is asked for, in a file."""
    path = servers.folder / f"plan-{time.monotonic_ns()}.json"
    done = servers.command("--prefix", PREFIX, "--time-limit", "5", "--out", str(path), *asked)
    assert done.returncode == 0, done.stderr
    return str(path)


def publish(servers, plan, *more):
    """Publish it; the signed plan."""
    path = f"{plan}.signed"
    key = str(servers.folder / "operator.pem")
    done = servers.command("publish", plan, "--key", key, "--yes", "--envelope", path, *more)
    assert done.returncode == 0, done.stderr
    return Path(path).read_bytes()


def at_targets(status):
    return all(row["state"] == "online" and row["present"] == row["target"] for row in status.values())


def test_a_newcomer_and_a_move_by_a_published_plan_while_a_client_generates(servers, client):
    waits = until(lambda: (rows := servers.status()) and len(rows) == 4 and rows)
    until(lambda: {row["state"] for name, row in servers.status().items() if name != "charlie"} == {"online"})
    assert (waits["charlie"]["present"], waits["charlie"]["agent"]) == (None, "waiting")
    plan = planned(servers)
    publish(servers, plan)
    # From here on nobody plans: the servers follow what has been published.
    begun = client()
    assert begun["generated"] == begun["expected"]
    texts = 0

    def there():
        nonlocal texts
        answer = client()
        assert answer["generated"] == answer["expected"]
        texts += 1
        rows = servers.status()
        return len(rows) == 4 and at_targets(rows) and rows

    rows = until(there, 150)
    assert texts > 2
    assert {row["agent"] for row in rows.values()} == {"serving"}
    moved = 0
    for row in json.loads(Path(plan).read_text())["servers"]:
        name = next(name for name in rows if servers.peer_id(name) == row["peer_id"])
        assert rows[name]["present"] == row["target"]
        if row["current"] is not None and row["target"] != row["current"]:
            moved += 1
            # Why it waited is told once, not every refresh; and what it did not have was loaded once.
            assert servers.log(name).count("has announced that it will drop blocks") == 1
            assert [servers.log(name).count(f"block {block}\n") for block in row["loaded"]] == [1] * len(row["loaded"])
    assert moved


async def stored(servers, key, envelope):
    """Put what a stranger can make of a signed plan, and old true heartbeats, where the servers look for plans."""
    async with client_node([servers.initial_peer]) as node:
        under = plans_key(PREFIX, key.public.key_id)
        found = (await fetch_plans(node, PREFIX, [key.public.key_id]))[key.public.key_id]
        flipped = bytearray(envelope)
        flipped[-1] ^= 1
        records = {
            "replayed": envelope,
            "forged": bytes(flipped),
            "foreign": seal(Kind.PLAN, {"prefix": PREFIX, "epoch": 2**52}, generate()),
            "junk": b"junk",
            "of another type": ["junk"] * 100,
            **{f"again-{subkey}": value for subkey, (value, _) in found.records.items()},
        }
        for subkey, value in records.items():
            assert await node.store(under, subkey, value, time.time() + 600)


def test_a_lapsed_lease_a_revoke_and_whatever_strangers_store_move_nobody(servers):
    key = load_key(servers.folder / "operator.pem")
    before = {name: row["present"] for name, row in servers.status().items()}
    mover = next(name for name in ("alpha", "bravo", "delta") if before[name] == [4, 8])
    back = planned(servers, "--pin", f"{servers.peer_id(mover)}=0:4")
    publish(servers, back, "--lease", "3")
    until(lambda: "no fresh heartbeat of plan" in servers.log(mover))
    again = publish(servers, back)
    done = servers.command("revoke", "--prefix", PREFIX, "--key", str(servers.folder / "operator.pem"))
    assert done.returncode == 0, done.stderr
    until(lambda: "was revoked" in servers.log(mover))
    asyncio.run(stored(servers, key, again))
    begun = time.monotonic()
    # Meanwhile one is killed: it comes back as the same peer with its span, and without being told any.
    peer_id = servers.peer_id("charlie")
    assert servers.kill("charlie") == -signal.SIGKILL
    servers.start("charlie", "--num_blocks", "4", "--throughput", "60")
    until(lambda: servers.log("charlie").count("Running a server on") == 2)
    assert servers.peer_id("charlie") == peer_id
    until(lambda: "serving {}:{} again, as before it ended".format(*before["charlie"]) in servers.log("charlie"))
    until(lambda: servers.log("charlie").count("serving 4 of 4 blocks") == 2)
    # A move that was allowed would begin after so many seconds.
    time.sleep(max(0.0, ANSWER_AGE + MARGIN + 4 * REFRESH - (time.monotonic() - begun)))
    assert {name: row["present"] for name, row in servers.status().items()} == before
    log = servers.log(mover)
    assert [log.count(reason) for reason in ("bad_signature", "foreign_key", "malformed: it is not bytes")] == [1, 1, 1]
    assert log.count("was revoked") == 1


def test_what_is_not_taken_is_one_line(tmp_path):
    model, trust = str(make_tiny_model(tmp_path / "model")), generate().public.text()
    junk, pipe = tmp_path / "junk", tmp_path / "pipe"
    junk.write_bytes(b"junk")
    os.mkfifo(pipe)
    bad = {
        ("m", "--nonsense", "1"): (2, "unrecognized arguments: --nonsense"),
        (): (2, "model is required"),
        ("m", "--state-dir", ""): (2, "invalid value for --state-dir: is empty; name a folder"),
        ("m", "--plan", "x"): (2, "--plan needs --trust"),
        ("m", "--refresh", "0"): (2, "--refresh must be from 1 to 86400 seconds"),
        ("m", "--trust", "x"): (11, "public key"),
        (str(tmp_path / "none"), "--new_swarm", "--num_blocks", "2"): (15, "petals cannot start the server"),
        ("m", "--trust", trust, "--plan", str(junk)): (13, "junk is refused: malformed"),
        (model, "--new_swarm", "--num_blocks", "0"): (2, "--num_blocks must be 1 or more, not 0"),
        (model, "--new_swarm", "--block_indices", "4:0"): (2, "--block_indices 4:0 has no block"),
        (model, "--new_swarm", "--identity_path", str(junk)): (11, "junk is not the identity of a server"),
        (model, "--new_swarm", "--identity_path", str(pipe)): (4, "pipe is not a plain file"),
    }
    for arguments, (code, named) in bad.items():
        done = run("serve", "--state-dir", str(tmp_path / "state"), *arguments, env={"HF_HUB_OFFLINE": "1"})
        said = done.stderr.splitlines()[-1]
        assert (done.returncode, named in said, said.startswith("plan-swarm: ")) == (code, True, True), said


@pytest.mark.parametrize(
    ("name", "what"),
    [("charlie", "the process of the server's DHT"), ("delta", "the libp2p daemon of the server's DHT")],
)
def test_a_server_whose_dht_has_died_ends_and_says_so(servers, name, what):
    until(lambda: "[INFO] Started" in servers.log(name))
    server = psutil.Process(servers.processes[name].pid)
    # The agent's own p2pd, while it looks, is the server's child.
    below = server.children(recursive=True)
    (daemon,) = [child for child in below if child.name() == "p2pd" and child.ppid() != server.pid]
    (daemon if "daemon" in what else daemon.parent()).kill()
    assert servers.processes.pop(name).wait(60) == 15
    assert f"plan-swarm: {what} has ended, and the server with it" in servers.log(name)


def test_one_server_a_folder(servers):
    done = run("serve", str(servers.model), "--new_swarm", "--state-dir", str(servers.folder / "alpha"))
    assert done.returncode == 7
    assert "another server keeps its state in" in done.stderr
