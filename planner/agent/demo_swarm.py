"""A private swarm of real Petals servers on this machine's CPU, unbalanced on purpose: for a demo and for tests.

>>> with DemoSwarm() as swarm:                       # doctest: +SKIP
...     print(swarm.initial_peers)
...     swarm.kill("charlie")

Starting it takes seconds, as the servers are forked by one process that has imported Petals (`planner.agent.nursery`).
Whatever ends this process ends the swarm, and nothing of it stays behind: no process, socket or folder.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

from planner.agent.compat import PetalsUnusable
from planner.agent.nursery import DHT, remove
from planner.agent.tiny_model import NUM_BLOCKS, PREFIX
from planner.errors import ServerFailed

State = Literal["starting", "joining", "online", "offline", "ended"]
"""Of a server: what it last announced and saw stored; before that ``starting``, after its process ``ended``."""

START_TIMEOUT = 120.0
STOP_TIMEOUT = 10.0
_LONGEST_FOLDER = 60
"""Characters: the sockets' paths in it must stay below 108, which is what Linux allows."""


class DemoSwarmFailed(ServerFailed):
    """The swarm or a server of it did not come up in time, or ended by itself."""


@dataclass(frozen=True)
class ServerSpec:
    """A server to be started.

    Parameters
    ----------
    name
        Its name in the swarm and its public name.
    start, end
        Its span, half-open.
    throughput
        RPS, announced as it is given.
    seconds_per_block
        Waited before each block is loaded, so that the server is seen JOINING for a while.
    trust
        The public key whose plans it follows; None for a server of stock Petals.
    """

    name: str
    start: int
    end: int
    throughput: float
    seconds_per_block: float = 0.0
    trust: str | None = None


@dataclass(frozen=True)
class DemoServer:
    """A server as it is known now; `peer_id` is None and `maddrs` empty until it has joined the DHT."""

    spec: ServerSpec
    states: tuple[State, ...] = ("starting",)
    """All that it went through; the last one is what it is in now."""
    peer_id: str | None = None
    maddrs: tuple[str, ...] = ()
    exit_code: int | None = None
    """Of its process, once it has ended; -9 if it was killed."""

    @property
    def state(self) -> State:
        """What it is in now."""
        return self.states[-1]

    def then(self, state: State, **more: Any) -> DemoServer:
        """The server in its next state."""
        return replace(self, states=(*self.states, state), **more)


LAYOUT = (
    ServerSpec("alpha", 0, 4, 100.0),
    ServerSpec("bravo", 0, 4, 90.0),
    ServerSpec("charlie", 0, 4, 60.0),
    ServerSpec("delta", 4, 8, 70.0),
)
"""250 RPS over blocks 0:4 and 70 over 4:8; with bravo moved it is 160 over each, and nothing else is as good."""


class DemoSwarm:
    """A DHT of one node and the servers that joined it, for as long as the context lasts.

    Parameters
    ----------
    servers
        What is started with it, all at once.
    prefix, num_blocks
        The model's prefix in the DHT, and how many blocks it has.
    update_period
        Seconds between two announcements of a server; a record expires after twice that.
    timeout
        Seconds in which entering the context must have every server ONLINE.
    """

    def __init__(
        self,
        servers: Sequence[ServerSpec] = LAYOUT,
        *,
        prefix: str = PREFIX,
        num_blocks: int = NUM_BLOCKS,
        update_period: float = 5.0,
        timeout: float = START_TIMEOUT,
    ) -> None:
        self.prefix, self.update_period, self.num_blocks = prefix, update_period, num_blocks
        self._specs, self._timeout = tuple(servers), timeout
        self._servers: dict[str, DemoServer] = {}
        self._nursery: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._initial_peers: tuple[str, ...] = ()
        self._ready = self._made = False
        self._unread = b""
        self.tidings: list[Mapping[str, Any]] = []
        """What was seen besides the servers' states: ``event``, ``name``, and more."""

    def __enter__(self) -> DemoSwarm:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def initial_peers(self) -> tuple[str, ...]:
        """Addresses of the DHT's own node, by which anyone on this machine joins."""
        return self._initial_peers

    @property
    def folder(self) -> Path:
        """Where everything is that the swarm writes: the model, logs, sockets; it goes with the swarm."""
        assert self._folder is not None, "the swarm has not been started"
        return self._folder

    @property
    def model(self) -> Path:
        """The model's folder, inside of `folder`."""
        return self.folder / "model"

    @property
    def servers(self) -> Mapping[str, DemoServer]:
        """Every server started so far, by its name, as known now."""
        self.listen(0.0)
        return dict(self._servers)

    def start(self) -> None:
        """Start everything and wait until every server is ONLINE.

        Raises
        ------
        DemoSwarmFailed
            If that takes longer than `timeout` or a part of it ends by itself; then all of it is taken down.
        PetalsUnusable
            If Petals, or what it needs, is missing or does not fit.
        """
        deadline = time.monotonic() + self._timeout
        try:
            self._start_nursery()
            self._listen_until(lambda: bool(self._initial_peers) and self._made, deadline, "Petals and the DHT")
            for spec in self._specs:
                self.add(spec)
            for spec in self._specs:
                self.wait(spec.name, "online", deadline - time.monotonic())
        except BaseException:
            self.stop()
            raise

    def add(self, spec: ServerSpec) -> None:
        """Start one more server; its name must be new. Does not wait."""
        assert spec.name not in {*self._servers, DHT, "model", "nursery"}, f"{spec.name} is taken"
        assert 0 <= spec.start < spec.end <= self.num_blocks, f"{spec.start}:{spec.end} is not a span of the model"
        self._order(
            "serve",
            **vars(spec),
            **self._whereabouts(),
            update_period=self.update_period,
            cache=str(self.folder / "cache"),
            state=str(self.folder / f"{spec.name}-state"),
        )
        self._servers[spec.name] = DemoServer(spec)

    def move(self, name: str, start: int, end: int) -> None:
        """Have a stock server hold other blocks as it does when it finds that itself. Does not wait."""
        self._order("move", self._servers[name].spec.name, start=start, end=end)

    def generate(self) -> None:
        """Start a stock client that generates all the time: each ``token`` is among the `tidings`."""
        self._order("generate", "client", **self._whereabouts())

    def ask(self, name: str, start: int, end: int) -> None:
        """Start to ask a server for these blocks all the time: each ``answer`` is among the `tidings`."""
        peer_id = self._servers[name].peer_id
        self._order("ask", f"{name}-asked", peer_id=peer_id, start=start, end=end, **self._whereabouts())

    def take_offline(self, name: str) -> None:
        """Ask a server to go as stock Petals goes: it announces OFFLINE, then its process ends. Does not wait."""
        self._order("stop", self._servers[name].spec.name)

    def kill(self, name: str) -> None:
        """Kill a server and all its processes at once: its records stay until they expire. Does not wait."""
        self._order("kill", self._servers[name].spec.name)

    def wait(self, name: str, state: State, timeout: float = 30.0) -> DemoServer:
        """Wait until a server has announced a state and that is stored, or until it has ``ended``.

        A state that it has been in already counts, whatever it is in by now.

        Raises
        ------
        DemoSwarmFailed
            If it does not come to that within `timeout` seconds, or can no longer.
        """

        def arrived() -> bool:
            server = self._servers[name]
            if server.state == "ended" and state not in server.states:
                raise DemoSwarmFailed(f"the demo's server {name} ended before it was {state}")
            return state in server.states

        self._listen_until(arrived, time.monotonic() + timeout, f"server {name} to be {state}")
        return self._servers[name]

    def listen(self, seconds: float) -> None:
        """Take in what has happened, waiting up to so many seconds for something to happen.

        Raises
        ------
        DemoSwarmFailed
            If a server has ended by itself, neither asked to nor killed.
        """
        if self._nursery is None:
            return
        assert self._nursery.stdout is not None
        output = self._nursery.stdout.fileno()
        while select.select([output], [], [], seconds)[0]:
            read = os.read(output, 65536)
            if not read:
                raise DemoSwarmFailed("the demo swarm's process ended by itself")
            *lines, self._unread = (self._unread + read).split(b"\n")
            for line in lines:
                self._note(json.loads(line))
            seconds = 0.0

    def stop(self) -> None:
        """Take everything down; a second call does nothing."""
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            assert nursery.stdin is not None
            assert nursery.stdout is not None
            with suppress(OSError):
                nursery.stdin.write(b'{"do": "end", "name": "nursery"}\n')
                nursery.stdin.close()
            try:
                nursery.wait(STOP_TIMEOUT if self._ready else 0.0)  # until it is ready it does not listen
            except subprocess.TimeoutExpired:
                nursery.kill()  # its children see that and kill their own groups
                nursery.wait()
            _wait_for_end(nursery.stdout.fileno(), STOP_TIMEOUT)
            nursery.stdout.close()
        if self._folder is not None:
            remove(self._folder)
        for name, server in self._servers.items():
            self._servers[name] = server if server.state == "ended" else server.then("ended")

    def _whereabouts(self) -> dict[str, Any]:
        return {"prefix": self.prefix, "initial_peers": self._initial_peers, "model": str(self.model)}

    def _start_nursery(self) -> None:
        assert self._folder is None, "a swarm is started once"
        short = len(tempfile.gettempdir()) < _LONGEST_FOLDER - 30
        self._folder = Path(tempfile.mkdtemp(prefix="plan-swarm-demo-", dir=None if short else "/tmp"))  # noqa: S108
        source = str(Path(__file__).resolve().parents[2])
        paths = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((source, *paths)),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HOME": str(self._folder / "huggingface"),  # transformers writes into it as it is imported
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TMPDIR": str(self._folder),  # also for the Unix sockets of torch's shared memory
            "OMP_NUM_THREADS": "1",  # many servers share few cores, and the model is tiny
        }
        # A session of its own: the terminal's Ctrl-C reaches this process alone, which takes the others down in order.
        self._nursery = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            [sys.executable, "-m", "planner.agent.nursery", str(self._folder), str(os.getpid()), str(self.num_blocks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=self._folder,
            env=environment,
            start_new_session=True,
        )

    def _order(self, what: str, name: str, **more: Any) -> None:
        if self._nursery is None:
            raise DemoSwarmFailed("the demo swarm is not running")
        assert self._nursery.stdin is not None
        try:
            self._nursery.stdin.write(json.dumps({"do": what, "name": name, **more}).encode() + b"\n")
        except OSError:
            raise DemoSwarmFailed("the demo swarm's process has gone") from None

    def _listen_until(self, happened: Callable[[], bool], deadline: float, what: str) -> None:
        self.listen(0.0)
        while not happened():
            left = deadline - time.monotonic()
            if left <= 0:
                raise DemoSwarmFailed(f"the demo swarm waited too long for {what}")
            self.listen(min(left, 1.0))

    def _note(self, said: Mapping[str, Any]) -> None:
        event, name = said["event"], said["name"]
        if event == "unusable":
            raise PetalsUnusable(said["said"])
        if event == "failed":
            raise DemoSwarmFailed(f"the demo swarm cannot start: {said['said']}")
        if event in ("loaded", "token", "answer"):
            self.tidings.append(said)
        elif name in self._servers:
            self._note_server(event, name, said)
        elif event == "ended" and said["exit_code"]:
            raise DemoSwarmFailed(f"the demo swarm's {name} process ended by itself: {said['said']}")
        elif event == "joined":
            self._initial_peers = tuple(said["maddrs"])
        elif event == "made":
            self._made = True
        elif event == "ready":
            self._ready = True

    def _note_server(self, event: str, name: str, said: Mapping[str, Any]) -> None:
        server = self._servers[name]
        if event == "joined":
            server = replace(server, peer_id=said["peer_id"], maddrs=tuple(said["maddrs"]))
        elif event == "ended":
            server = server.then("ended", exit_code=said["exit_code"])
        else:
            server = server.then(cast(State, event))
        self._servers[name] = server
        if event == "ended" and said["exit_code"] not in (0, -signal.SIGKILL):
            raise DemoSwarmFailed(f"the demo's server {name} ended by itself: {said['said']}")


def _wait_for_end(output: int, seconds: float) -> None:
    """Wait until every process that could write into this pipe has gone."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and select.select([output], [], [], left)[0]:
        if not os.read(output, 65536):
            return
