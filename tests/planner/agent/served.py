"""Servers started by `plan-swarm serve`, each a process with a log and a state folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.keys import PublicKey
from planner.status import swarm_status
from tests.cli.process import ROOT
from tests.cli.warm import run_warm

CLOCK = Path(__file__).with_name("clock")
SLOWLY = str(Path(__file__).with_name("slowly.py"))
PREFIX = "tiny-llama-hf"
REFRESH = 5.0
OPTIONS = (
    *("--dht_prefix", PREFIX, "--device", "cpu", "--torch_dtype", "float32", "--num_handlers", "2"),
    *("--host_maddrs", "/ip4/127.0.0.1/tcp/0", "--no_auto_relay", "--update_period", "5"),
    *("--refresh", f"{REFRESH:g}", "--drain-timeout", "20"),
)


class Servers:
    """By name; the first that is started begins the swarm."""

    def __init__(self, folder: Path, model: Path, trust: str, seconds_per_block: float = 0.0) -> None:
        self.folder, self.model, self.trust = folder, model, trust
        self.launch = (SLOWLY, f"{seconds_per_block:g}") if seconds_per_block else ("-m", "cli")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.initial_peer = ""

    def clock(self, name: str) -> Path:
        """Holds the seconds by which the clock of a server is ahead, if it is there when that is started."""
        return self.folder / f"{name}.clock"

    def start(self, name: str, *options: str, model: Path | None = None) -> None:
        """Start one, or start it again."""
        join = ("--initial_peers", self.initial_peer) if self.initial_peer else ("--new_swarm",)
        state = ("--trust", self.trust, "--state-dir", str(self.folder / name))
        with open(self._log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *self.launch, "serve", str(model or self.model), *join, *OPTIONS, *state, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT}:{CLOCK}" if self.clock(name).exists() else str(ROOT),
                    "TMPDIR": str(self.folder),
                    "TEST_CLOCK": str(self.clock(name)),
                },
                start_new_session=True,
            )
        if not self.initial_peer:
            self.initial_peer = self.peers(name)[0]

    def log(self, name: str) -> str:
        return self._log(name).read_text()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def peers(self, name: str) -> list[str]:
        """Addresses of the server that runs under this name now."""
        found = until(lambda: re.findall(r"server on \[(.*)\]", self.log(name)))
        return re.findall(r"'([^']+)'", found[-1])

    def peer_id(self, name: str) -> str:
        """Of the server that runs under this name now."""
        return self.peers(name)[0].rpartition("/")[2]

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send it a signal, and wait for its end."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def end(self) -> None:
        """End all of them, in order; what does not go is killed."""
        for process in self.processes.values():
            process.terminate()
        for name in [*self.processes]:
            process = self.processes.pop(name)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Any other command of plan-swarm, in this swarm."""
        return run_warm(*arguments, env={"PLAN_SWARM_INITIAL_PEERS": self.initial_peer})

    def status(self) -> dict[str, dict[str, Any]]:
        """What `plan-swarm status --json` says of each server that is here, by name."""
        status = swarm_status(PREFIX, [self.initial_peer], [PublicKey.parse(self.trust)])
        rows = {row["peer_id"]: row for row in status.to_json()["servers"]}
        names = {self.peer_id(name): name for name in self.processes}
        return {name: rows[peer_id] for peer_id, name in names.items() if peer_id in rows}


def until(ask: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds:g} s"
        time.sleep(1.5)
    return answer
