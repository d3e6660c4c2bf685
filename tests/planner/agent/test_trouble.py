"""What happens to servers in the middle of things: two swap, a plan is revoked, the DHT goes, a load fails.

Three servers of one swarm, started by `plan-swarm serve`, go through all of it, whose blocks take a second to load.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import psutil
import pytest

from planner import Policy, make_plan
from planner.agent.tiny_model import make_tiny_model
from planner.keys import SigningKey, generate
from planner.live import read_live
from planner.published import PublishedPlan, read_plan
from planner.publishing import publish, revoke
from solver.problem import Span
from tests.planner.agent.beside import beside
from tests.planner.agent.changing import asking, assert_right
from tests.planner.agent.served import PREFIX, Servers, until
from tests.plans import identified

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:path is deprecated:DeprecationWarning")]

SECONDS_PER_BLOCK = 1.0
RPS = {"alpha": 100.0, "bravo": 100.0, "charlie": 60.0}
GONE = 120.0
"""Seconds for which everybody else is gone."""


@dataclass(frozen=True)
class Swarm:
    """The servers, and the key that they trust."""

    servers: Servers
    key: SigningKey

    def plan(self, targets: dict[str, tuple[int, int]], order: list[str], floor: float) -> PublishedPlan:
        """A plan that moves these servers, one after the other, and keeps all others where they are."""
        state = read_live(PREFIX, [self.servers.initial_peer]).state()
        peers = {name: self.servers.peer_id(name) for name in self.servers.processes}
        here = {server.peer_id: server.span for server in state.servers}
        pins = tuple((peer, Span(*targets[name]) if name in targets else here[peer]) for name, peer in peers.items())
        fields = make_plan(state, Policy(pins=pins, time_limit=5.0)).to_json()
        (wave,) = fields["waves"]
        fields["waves"] = [{**wave, "moves": [peers[name]]} for name in order]
        for row in fields["servers"]:
            if row["peer_id"] in wave["moves"]:
                row["wave"] = [peers[name] for name in order].index(row["peer_id"])
                row["after"] = [peers[name] for name in order[: row["wave"]]]
        assert sorted(wave["moves"]) == sorted(peers[name] for name in order)
        return read_plan(identified({**fields, "floor": floor}))

    def publish(self, plan: PublishedPlan) -> None:
        publish(plan, self.key, [self.servers.initial_peer])

    def revoke(self) -> None:
        revoke(PREFIX, self.key, [self.servers.initial_peer])

    def at(self, **spans: tuple[int, int]) -> bool:
        """Whether these servers are ONLINE with these spans, as anyone reads it."""
        rows = self.servers.status()
        return all(
            name in rows and (rows[name]["state"], rows[name]["present"]) == ("online", [*span])
            for name, span in spans.items()
        )


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    folder = tmp_path_factory.mktemp("swarm")
    key = generate()
    servers = Servers(folder, make_tiny_model(folder / "model"), key.public.text(), SECONDS_PER_BLOCK)
    swarm = Swarm(servers, key)
    try:
        servers.clock("bravo").write_text("0")
        for name, blocks in {"alpha": "0:4", "bravo": "4:8", "charlie": "0:4"}.items():
            servers.start(name, "--block_indices", blocks, "--throughput", f"{RPS[name]:g}")
        until(lambda: swarm.at(alpha=(0, 4), bravo=(4, 8), charlie=(0, 4)))
        yield swarm
    finally:
        servers.end()


def test_two_that_swap_never_leave_a_block_below_the_floor(swarm: Swarm) -> None:
    servers = swarm.servers
    with beside("floor_watch.py", [str(servers.model), servers.initial_peer, PREFIX], servers.folder) as watched:
        until(lambda: watched()["looks"])
        # Without the order bravo would leave 4:8 with nobody; and 0:4 has just the floor when alpha has left.
        swarm.publish(swarm.plan({"alpha": (4, 8), "bravo": (0, 4)}, ["alpha", "bravo"], floor=60.0))
        least = [float("inf")] * 8
        waits = f"waits for {servers.peer_id('alpha')} to serve 4:8"
        seen = set()

        def swapped() -> bool:
            look = watched()
            if look["looks"]:
                least[:] = map(min, zip(least, look["least"], strict=True))
            seen.update(str(row["why"]) for row in servers.status().values())
            return swarm.at(alpha=(4, 8), bravo=(0, 4), charlie=(0, 4))

        until(swapped, 200)
        assert least == [60.0] * 4 + [100.0] * 4
    # The record, which `status` shows, and the log say it in the same words.
    said = {why for why in seen if why.startswith(waits)}
    assert said
    assert all(why in servers.log("bravo") for why in said)


def test_a_revoke_in_mid_change_leaves_it_with_what_it_was_bound_for(swarm: Swarm) -> None:
    servers = swarm.servers
    swarm.publish(swarm.plan({"charlie": (2, 6)}, ["charlie"], floor=0.0))
    until(lambda: servers.status()["charlie"]["agent"] == "loading")
    swarm.revoke()
    until(lambda: swarm.at(charlie=(2, 6)))
    until(lambda: "was revoked" in servers.log("charlie"))
    assert [servers.log("charlie").count(f"block {block}\n") for block in (4, 5)] == [1, 1]
    assert swarm.at(alpha=(4, 8), bravo=(0, 4), charlie=(2, 6))
    with asking(servers.folder, servers.initial_peer, 8) as client:
        assert_right(client, 0, 8)


@contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """Nobody hears anything of these for a while."""
    below = [child for process in processes for child in process.children(recursive=True)]
    for process in (*processes, *below):
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in (*below, *processes):
            process.send_signal(signal.SIGCONT)


def test_with_the_dht_gone_for_two_minutes_it_serves_on_and_then_follows(swarm: Swarm) -> None:
    servers = swarm.servers
    process, said = servers.processes["charlie"], len(servers.log("charlie"))
    with asking(servers.folder, servers.peers("charlie")[0], 8, [servers.peer_id("charlie")]) as client:
        swarm.publish(swarm.plan({"charlie": (0, 4)}, ["charlie"], floor=0.0))
        with stopped([psutil.Process(servers.processes[name].pid) for name in ("alpha", "bravo")]):
            begun = time.monotonic()
            while time.monotonic() < begun + GONE:
                assert_right(client, 2, 6)
                time.sleep(10.0)
            assert process.poll() is None
            assert "waiting: block 4 would have no server" in servers.log("charlie")[said:]
            assert "draining" not in servers.log("charlie")[said:]
        until(lambda: swarm.at(alpha=(4, 8), bravo=(0, 4), charlie=(0, 4)), 200)
        assert_right(client, 0, 4)


def test_a_clock_that_is_off_moves_nobody_and_is_named(swarm: Swarm) -> None:
    servers = swarm.servers
    said = "this machine's clock differs by more than 3 s from other servers': set it"
    before = {name: row["present"] for name, row in servers.status().items()}
    servers.clock("bravo").write_text("60")
    until(lambda: f"serving: {said}" in servers.log("bravo"))
    assert said not in servers.log("alpha") + servers.log("charlie")
    until(lambda: servers.status()["bravo"]["why"] == said)
    servers.clock("echo").write_text("-60")
    servers.start("echo", "--block_indices", "0:4", "--throughput", "60")
    assert servers.processes.pop("echo").wait(60) == 15
    assert "plan-swarm: this machine's clock and the swarm's differ by more than 3 s" in servers.log("echo")
    servers.clock("bravo").write_text("0")
    servers.clock("echo").unlink()
    until(lambda: servers.status()["bravo"]["why"] is None)
    assert {name: row["present"] for name, row in servers.status().items()} == before


def test_a_first_load_that_fails_is_tried_again(swarm: Swarm) -> None:
    servers = swarm.servers
    broken = servers.folder / "broken"
    shutil.copytree(servers.model, broken)
    index = json.loads((broken / "pytorch_model.bin.index.json").read_text())
    part = broken / next(file for name, file in index["weight_map"].items() if ".layers.3." in name)
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    servers.start("delta", "--block_indices", "2:4", "--throughput", "60", model=broken)
    until(lambda: "trying again in 60 s" in servers.log("delta"))
    # What could be loaded is served, and the rest is said.
    row = until(lambda: (rows := servers.status()).get("delta") and rows["delta"])
    assert (row["state"], row["present"], row["agent"]) == ("online", [2, 3], "failed")
    assert row["why"].startswith("block 3 could not be loaded: ")
    part.write_bytes(whole)
    until(lambda: swarm.at(delta=(2, 4)), 120)
    assert servers.status()["delta"]["agent"] == "serving"


def test_without_a_plan_it_follows_the_rule_of_petals_and_loads_only_what_is_new(swarm: Swarm) -> None:
    servers = swarm.servers
    swarm.revoke()
    options = ("--num_blocks", "6", "--throughput", "60", "--mean_balance_check_period", "2")
    servers.start("echo", *options, "--newcomer", "petals", "--without-plan", "petals")
    until(lambda: swarm.at(echo=(2, 8)))
    for name in ("bravo", "charlie"):
        servers.kill(name, signal.SIGTERM)
    until(lambda: swarm.at(echo=(0, 6)))
    log = servers.log("echo")
    assert [log.count(f"model block {block}\n") for block in range(8)] == [1] * 8
    assert swarm.at(alpha=(4, 8), delta=(2, 4)), "told where to be, and not to follow the rule"
