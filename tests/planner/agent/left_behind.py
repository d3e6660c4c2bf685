"""What demo swarms and their tests may leave behind: found in /proc, by the folder in the processes' environment."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def go_with_parent() -> None:
    """Kill this process's group, which it leads, as soon as its parent has gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def processes_of(folder: Path) -> dict[int, str]:
    """Every process of the swarm in this folder that is not a zombie, and its name."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if f"TMPDIR={folder}".encode() not in (process / "environ").read_bytes().split(b"\0"):
                continue
            name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if rest.split()[0] != "Z":
            found[int(process.name)] = name
    return found


def swarm_of(parent: int, timeout: float = 20.0) -> tuple[int, Path]:
    """The process and the folder of the swarm that process `parent` has started or is about to."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in map(int, children):
            arguments = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
            if "planner.agent.nursery" in arguments:
                return child, Path(arguments[arguments.index("planner.agent.nursery") + 1])
        time.sleep(0.05)
    raise AssertionError(f"process {parent} started no swarm in {timeout:g} s")


def assert_nothing_left(folder: Path, pids: set[int], timeout: float = 0.0) -> None:
    """Within `timeout` seconds no process, folder or shared memory of the swarm is left; `pids` are all it ever had."""
    deadline = time.monotonic() + timeout
    while True:
        shared = [file.name for file in SHARED_MEMORY.glob("torch_*") if int(file.name.split("_")[1]) in pids]
        left = (processes_of(folder), folder.exists(), shared)
        if left == ({}, False, []):
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
