"""Processes that do what they are told by lines of JSON: a server that changes its span, and a client that asks it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.private_swarm import ROOT

PREFIX = "tiny-llama-hf"
"""What the blocks are called in their swarm."""
PATIENCE = 120.0
"""Seconds that an answer may take."""


class Talker:
    """A process of its own that does what it is told by lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.hear(json.loads(line))
        self.over()

    def hear(self, line: dict[str, Any]) -> None:
        self.lines.put(line)

    def over(self) -> None:
        """The process tells nothing more: whoever waits for it should know."""
        self.lines.put({"error": "the process has ended"})

    def write(self, **command: Any) -> None:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()


class Server(Talker):
    """A `benchmarks.span_server`, or one that can do more."""

    def __call__(self, do: str, **more: Any) -> Any:
        self.write(do=do, **more)
        answer = self.lines.get(timeout=PATIENCE)
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while not wanted(seen := self("look")):
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
        return seen


class Client(Talker):
    """A `benchmarks.span_client`, or one that can do more; each thing that it is told to do is a `Work`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.works = {0: Work(self, 0)}
        super().__init__(process)

    def hear(self, line: dict[str, Any]) -> None:
        self.works[line.pop("id")].lines.put(line)

    def over(self) -> None:
        for work in list(self.works.values()):
            work.lines.put({"ended": "with the client's process"})

    def join(self, peer: str) -> None:
        """Have it join the swarm of `peer`."""
        self.write(peer=peer)
        said = self.works[0].end()
        assert said == ([], {"ended": "ready"}), said

    def __call__(self, do: str, **more: Any) -> Work:
        number = len(self.works)
        work = self.works[number] = Work(self, number)
        self.write(id=number, do=do, **more)
        return work


class Work:
    """What a client is at, and what it tells of it."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.number = client, number
        self.lines: queue.Queue[dict[str, Any]] = queue.Queue()

    def some(self, count: int) -> list[dict[str, Any]]:
        told = [self.lines.get(timeout=PATIENCE) for _ in range(count)]
        assert not any("ended" in line for line in told), told[-1]
        return told

    def end(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Everything else that it tells until its end, and how it ended."""
        told = []
        while "ended" not in (line := self.lines.get(timeout=PATIENCE)):
            told.append(line)
        return told, line

    def enough(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        self.client.write(id=self.number, do="enough")
        return self.end()


@contextmanager
def process(module: str, options: dict[str, Any], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a module with its options, as JSON; its sockets, its log and what torch shares go to `folder`."""
    with (folder / f"{module}.log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(options)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "HIVEMIND_LOGLEVEL": "ERROR"},
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):  # where it has been killed already
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()
