"""A real server on the CPU changes its span under a stock client: what it loads, frees, announces and answers.

One server and one client do all of it, as each takes seconds to come up; every test begins with blocks 0:4.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from benchmarks import talking
from benchmarks.talking import PATIENCE, Client
from planner.agent.tiny_model import make_tiny_model
from tests.planner.agent.changing import CLOSE, asking, assert_right, serving

pytestmark = pytest.mark.timeout(180)

GRACE, OFFLINE_SECONDS = 2.0, 7.0
LENGTH = 100
"""Tokens of the longest session."""


class Server(talking.Server):
    """A server of `tests.planner.agent.span_server`."""

    def set(self, pause: float = 0.0, grace: float = GRACE, offline: float = OFFLINE_SECONDS) -> None:
        """Seconds for each load beside those that it takes, and those of `span_change`."""
        self("set", pause=pause, grace=grace, offline=offline)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    folder = tmp_path_factory.mktemp("swarm")
    make_tiny_model(folder / "model")
    with serving(folder, blocks="0:4") as process:
        server = Server(process)
        seen = server.until(lambda seen: seen["span"] is not None)
        with asking(folder, seen["maddrs"][0], LENGTH) as client:
            yield server, client


@pytest.fixture
def client(swarm: tuple[Server, Client]) -> Client:
    return swarm[1]


@pytest.fixture
def server(swarm: tuple[Server, Client]) -> Server:
    server, _ = swarm
    server.set(grace=0.2)
    server("change", target=[0, 4])
    server.set()
    return server


def test_only_what_is_new_is_loaded_and_a_client_of_kept_blocks_notices_nothing(server: Server, client: Client) -> None:
    before = server("look")
    server.set(pause=0.7)
    watching, generating = client("watch"), client("steps", start=2, end=4, length=45, pause=0.15)
    first = generating.some(5)
    changed = server("change", target=[2, 6])
    after = server("look")
    (steps, last), (told, asked) = generating.end(), watching.enough()

    assert (changed["span"], changed["kept"], changed["dropped"]) == ([2, 6], [2, 3], [0, 1])
    assert (changed["loaded"], changed["leaked"], changed["failure"]) == ([4, 5], [], None)
    assert after["loads"] == [*before["loads"], 4, 5]
    assert all(after["addresses"][block] == before["addresses"][block] for block in ("2", "3"))
    # Blocks 0 and 1 are gone from memory before 4 is loaded.
    assert [event for _, event in after["events"][-2:]] == ["load 4, alive [2, 3]", "load 5, alive [2, 3, 4]"]
    assert after["handlers"] == before["handlers"]
    assert after["said"]["seconds_per_cached_block"] > 0

    assert last["ended"] == "whole"
    assert [step["step"] for step in (*first, *steps)] == list(range(45))
    assert last["wrong"] < CLOSE
    assert max(step["seconds"] for step in steps) <= 1.0 + max(step["seconds"] for step in first)

    views = [line["view"] for line in told]
    online, joining = ["ONLINE", 2, 4], ["JOINING", 2, 6]
    during = {"0": ["OFFLINE", 0, 4], "1": ["OFFLINE", 0, 4], "2": online, "3": online, "4": joining, "5": joining}
    assert during in views
    served = {block: said for block, said in views[-1].items() if said[0] != "OFFLINE"}
    assert served == {block: ["ONLINE", 2, 6] for block in "2345"}
    assert [line for line in told if "refused" in line] == []
    assert asked["asked"] > 5
    assert asked["wrong"] < CLOSE

    assert_right(client, 4, 6)


def test_the_same_span_again_changes_nothing(server: Server, client: Client) -> None:
    before, watching = server("look"), client("watch")
    watching.some(1)
    assert server("change", target=[0, 4])["loaded"] == []
    after = server("look")
    told, _ = watching.enough()
    assert told == []
    for same in ("loads", "addresses", "handlers", "said"):
        assert after[same] == before[same]


def test_a_session_over_dropped_blocks_is_drained_when_short_and_closed_when_long(
    server: Server, client: Client
) -> None:
    server.set(grace=0.2)
    room = server("look")["cache_left"]
    short = client("steps", start=0, end=3, length=15, pause=0.2)
    short.some(1)
    changed = server("change", target=[2, 6], drain_timeout=30.0)
    steps, last = short.end()
    assert (len(steps), last["ended"], changed["closed_sessions"]) == (14, "whole", 0)
    assert last["wrong"] < CLOSE

    long = client("steps", start=2, end=4, length=100, pause=0.2)
    long.some(1)
    changed = server("change", target=[4, 8], drain_timeout=2.0)
    steps, last = long.end()
    assert changed["closed_sessions"] == 1
    assert len(steps) < 99
    assert last["ended"] == "P2PHandlerError"
    assert "Remote peer does not serve tiny-llama-hf.2" in last["said"]
    after = server("look")
    assert (after["cache_left"], after["cache_tensors"]) == (room, 0)


CALLS = ["info", "forward", "forward_stream", "backward", "backward_stream", "push", "inference"]


def test_every_kind_of_call_is_answered_or_refused(server: Server, client: Client) -> None:
    server.set(grace=0.2)
    _, ends = client("calls", start=0, end=3).end()
    assert ends == {"ended": "whole", **{f"rpc_{call}": "answered" for call in CALLS}}
    server("change", target=[1, 5])
    _, ends = client("calls", start=0, end=3).end()
    assert ends.pop("ended") == "whole"
    assert "answered" not in ends.values()
    # A stream may be closed while its caller still writes to it: then that is all that the caller hears.
    at_once = [ends[f"rpc_{call}"] for call in ("info", "forward", "backward", "push")]
    assert ["Remote peer does not serve tiny-llama-hf.0" in said for said in at_once] == [True] * 4


def test_a_load_that_fails_three_times_leaves_a_run_of_blocks_served(server: Server, client: Client) -> None:
    server.set(grace=0.5)
    server("fail", block=5, times=3)
    room = server("look")["cache_left"]
    watching = client("watch")
    for _ in range(3):
        changed = server("change", target=[2, 6])
        assert changed["span"] == [2, 5]
        assert changed["failure"] == "block 5 could not be loaded: OSError: [Errno 28] No space left on device"
        seen = server("look")
        said = seen["said"]
        assert (said["state"], said["span"], said["why"]) == ("failed", [2, 5], changed["failure"])
        assert seen["cache_left"] == room * 3 // 4
    changed = server("change", target=[2, 6])
    assert (changed["span"], changed["loaded"], changed["failure"]) == ([2, 6], [5], None)
    assert server("look")["said"]["state"] == "serving"
    told, asked = watching.enough()
    assert [line for line in told if "refused" in line] == []
    assert asked["wrong"] < CLOSE


def test_a_block_that_does_not_compute_is_not_served(server: Server, client: Client) -> None:
    server.set(grace=0.2)
    server("spoil", block=5)
    changed = server("change", target=[2, 6])
    assert (changed["span"], changed["loaded"], changed["leaked"]) == ([2, 5], [4], [])
    assert changed["failure"].startswith("block 5 could not be loaded: RuntimeError: ")
    seen = server("look")
    assert (seen["span"], seen["alive"], seen["said"]["state"]) == ([2, 5], [2, 3, 4], "failed")
    assert_right(client, 2, 5)
    server("spoil", block=None)
    assert server("change", target=[2, 6])["failure"] is None


def test_throughput_follows_the_length_by_the_rule_of_petals(server: Server) -> None:
    server.set(grace=0.2)
    server("measured", forward_rps=500.0, network_rps=220.0)
    said = server("look")["said"]
    assert (said["throughput"], said["throughput_by_length"]) == (200.0, [220.0, 220.0, 220.0, 200.0])
    server("change", target=[1, 4])
    assert server("look")["said"]["throughput"] == 220.0
    server("measured", forward_rps=None, network_rps=None)


def test_nothing_is_dropped_where_the_swarm_cannot_be_told(server: Server, client: Client) -> None:
    server.set(offline=1.0)
    before = server("look")
    generating = client("steps", start=0, end=4, length=20, pause=0.1)
    generating.some(1)
    os.kill(before["dht"], signal.SIGSTOP)
    wake = threading.Timer(2.0, os.kill, (before["dht"], signal.SIGCONT))
    wake.start()
    server.write(do="change", target=[2, 6])
    refused = {"error": "ChangeFailed: the swarm takes no announcement, so nothing is unloaded"}
    assert server.lines.get(timeout=PATIENCE) == refused
    wake.join()
    steps, last = generating.end()
    assert (len(steps), last["ended"]) == (19, "whole")
    assert last["wrong"] < CLOSE
    after = server("look")
    assert (after["span"], after["addresses"]) == (before["span"], before["addresses"])
    assert (after["said"]["state"], "takes no announcement" in after["said"]["why"]) == ("failed", True)


def test_a_server_that_gives_up_everything_holds_nothing_and_waits(server: Server) -> None:
    server.set(grace=0.2)
    assert server("change", target=None)["dropped"] == [0, 1, 2, 3]
    seen = server("look")
    assert (seen["span"], seen["alive"], seen["said"]["state"], seen["said"]["span"]) == (None, [], "waiting", None)


def test_twenty_changes_in_a_row_leave_nothing_behind(server: Server, client: Client) -> None:
    server.set(grace=0.1)
    watching, generating = client("watch"), client("steps", start=3, end=4, pause=0.05, rounds=True)
    seen = []
    for turn in range(20):
        start = (2, 1, 3, 0)[turn % 4]
        changed = server("change", target=[start, start + 4])
        assert (changed["span"], changed["leaked"], changed["failure"]) == ([start, start + 4], [], None)
        seen.append(server("look"))
    (told, asked), (_, last) = watching.enough(), generating.enough()
    assert [line for line in told if "refused" in line] == []
    assert (asked["ended"], last["ended"]) == ("whole", "whole")
    assert max(asked["wrong"], last["wrong"]) < CLOSE
    assert min(asked["asked"], last["steps"]) > 20
    settled = seen[2]
    for one in seen[3:]:
        assert abs(one["fds"] - settled["fds"]) <= 5
        assert one["threads"] == settled["threads"]
        assert one["children"] == settled["children"]
        assert one["rss"] <= 1.05 * settled["rss"]
        assert len(one["alive"]) == 4


def others_than(before: dict[str, Any], seen: dict[str, Any]) -> bool:
    """Whether there are other handlers than before, and as many."""
    old, new = set(before["handlers"]), set(seen["handlers"])
    return len(new) == len(old) and not old & new


def test_a_handler_that_is_killed_is_replaced_around_the_same_blocks(server: Server, client: Client) -> None:
    before = server("look")
    os.kill(before["handlers"][0], signal.SIGKILL)
    # What the old parts had open goes a moment after they are replaced.
    after = server.until(lambda seen: others_than(before, seen) and seen["fds"] <= before["fds"] + 5)
    assert (after["span"], after["loads"], after["addresses"]) == ([0, 4], before["loads"], before["addresses"])
    assert after["children"] == before["children"]
    assert after["threads"] <= before["threads"]
    assert_right(client, 0, 4)


@pytest.mark.parametrize("what", ["a handler", "the runtime"])
@pytest.mark.parametrize("step", ["draining", "loading"])
def test_a_change_outlives_what_dies_in_it(server: Server, client: Client, what: str, step: str) -> None:
    server.set(pause=0.5, grace=1.0)
    before = server("look")
    server("begin", target=[2, 6])
    server.until(lambda seen: seen["said"]["state"] == step)
    if what == "a handler":
        os.kill(before["handlers"][0], signal.SIGKILL)
    else:
        server("kill runtime")
    after = server.until(lambda seen: seen["span"] == [2, 6] and others_than(before, seen))
    assert after["loads"] == [*before["loads"], 4, 5]
    assert (after["alive"], after["children"]) == ([2, 3, 4, 5], before["children"])
    assert_right(client, 2, 6)


def test_a_runtime_that_dies_is_replaced_around_the_same_blocks(server: Server, client: Client) -> None:
    before = server("look")
    server("kill runtime")
    after = server.until(lambda seen: others_than(before, seen))
    assert (after["span"], after["loads"], after["addresses"]) == ([0, 4], before["loads"], before["addresses"])
    assert_right(client, 0, 4)


def test_a_server_that_is_killed_leaves_no_process_behind(server: Server) -> None:
    """The last test, as it ends the server of all of them."""
    left = psutil.Process(server.process.pid).children(recursive=True)
    server.process.kill()
    _, alive = psutil.wait_procs(left, timeout=PATIENCE)
    assert alive == []
