"""A real server is killed in each step of a change: started again, it is where it was bound for, by its own memory."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from benchmarks.talking import Server
from planner.agent.tiny_model import make_tiny_model
from tests.planner.agent.changing import asking, assert_right, serving

pytestmark = pytest.mark.timeout(240)

LENGTH = 40
"""Tokens of the longest session."""


def remembered(folder: Path) -> list[Any]:
    """The spans in all memories in a server's folder."""
    return [json.loads(file.read_bytes())["span"] for file in folder.glob("*.json")]


BLOCKS = "0:4"
STEPS = [
    # Where it goes, the state in which it is killed, and how many blocks are loaded then.
    ([2, 6], "draining", None),
    ([4, 8], "loading", [0, 2]),
    ([2, 6], "loading", [1, 2]),
    ([0, 4], "serving", None),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    make_tiny_model(folder / "model")
    for memory in ("memory", "stays"):
        (folder / memory).mkdir()
    return folder


@contextmanager
def started(folder: Path, peer: str, present: list[int]) -> Iterator[tuple[Server, Popen[str]]]:
    """The same server once more: it comes back with `present`, and with nothing else on its way there."""
    options = {"blocks": BLOCKS, "state": str(folder / "memory"), "identity": str(folder / "identity")}
    with serving(folder, initial_peers=[peer], **options) as process:
        server = Server(process)
        seen = server.until(lambda seen: seen["span"] and seen["said"]["state"] == "serving")
        assert (seen["span"], sorted(seen["loads"])) == (present, list(range(*present)))
        server("set", pause=0.7, grace=2.0, offline=7.0)
        yield server, process


def kill_in(server: Server, process: Popen[str], folder: Path, step: tuple[list[int], str, list[int] | None]) -> None:
    """Have it change its span, and kill it in that."""
    target, state, progress = step
    server("begin", target=target)
    server.until(lambda _: remembered(folder) == [target])
    server.until(
        lambda seen: (
            (state, progress) == (seen["said"]["state"], progress and seen["said"]["progress"])
            and (state != "serving" or seen["span"] == target)
        )
    )
    process.kill()
    process.wait()


def test_it_comes_back_where_it_was_bound_for(folder: Path) -> None:
    with serving(folder, num_blocks=1, state=str(folder / "stays")) as stays:
        peer = Server(stays)("look")["maddrs"][0]
        with asking(folder, peer, LENGTH) as client:
            with started(folder, peer, [0, 4]) as (server, process):
                peer_id, dht = server("look")["peer_id"], server("look")["dht"]
                # Nobody can be told, so nothing is dropped, and it is where it was.
                os.kill(dht, signal.SIGSTOP)
                server("begin", target=[2, 6])
                time.sleep(1.0)
                process.kill()
                process.wait()
            present = [0, 4]
            for step in STEPS:
                with started(folder, peer, present) as (server, process):
                    assert_right(client, *present)
                    kill_in(server, process, folder / "memory", step)
                    present = step[0]
            with started(folder, peer, present) as (server, _):
                assert_right(client, *present)
                assert server("look")["peer_id"] == peer_id
