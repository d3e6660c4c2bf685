"""A server that changes its span and a client that asks it, each a process that does what it is told."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.talking import Client, process

CLOSE = 1e-5
"""How far answers may be from those of the local blocks."""


def serving(folder: Path, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """The process of a server of the tiny model in `folder`."""
    return process("tests.planner.agent.span_server", {"model": str(folder / "model"), **options}, folder)


@contextmanager
def asking(folder: Path, peer: str, length: int, servers: list[str] | None = None) -> Iterator[Client]:
    """A client of all or some servers in the swarm of `peer`, which knows what is right for texts of so many tokens."""
    options = {"model": str(folder / "model"), "reference": {"length": length}, "servers": servers}
    with process("tests.planner.agent.span_client", options, folder) as started:
        client = Client(started)
        client.join(peer)
        yield client


def assert_right(client: Client, start: int, end: int) -> None:
    """Sessions through these blocks are answered right, whichever handler each of them comes to."""
    for _ in range(6):
        _, last = client("steps", start=start, end=end, length=3).end()
        assert last == {"ended": "whole", "steps": 3, "wrong": pytest.approx(0, abs=CLOSE)}
