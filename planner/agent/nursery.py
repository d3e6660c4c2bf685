"""The process of which a demo swarm's servers are born: it imports Petals once and forks each of them.

A process a server, each the leader of a process group of its own, so that one signal reaches what Petals forks
and starts in its turn (its DHT, its handlers, p2pd). Forking saves each of them the seconds and the memory of
importing torch. The nursery itself has no threads and holds no node, so that forking it is safe.

It is told what to do by lines of JSON on standard input and tells what happened by lines of JSON on standard output.
When its input ends or its parent is gone, it kills everything, removes the folder and goes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from planner.agent.compat import PetalsUnusable, imported, keep_sockets_in, prepare
from planner.agent.demo_server import hold_the_dht, make_model, serve
from planner.agent.demo_witness import ask, generate
from planner.agent.nursling import GO, Tell

TICK = 0.2
"""Seconds between two looks at what may have happened."""
PATIENCE = 20.0
"""Seconds that a server has for going by itself when it is asked to."""
DHT = "dht"
"""The child that is only a node of the DHT: whom the others join by, whichever server is killed."""

_PRELOADED = (
    "petals.server.server",
    "petals.utils.peft",
    "transformers.models.llama.modeling_llama",
    "planner.agent.server",
)
"""What a server would import sooner or later, each for itself."""

_WORK = {"serve": serve, "generate": generate, "ask": ask}


@dataclass
class _Child:
    process: ForkProcess
    control: Connection
    deadline: float | None = None


class _Nursery:
    def __init__(self, folder: Path, tell: Tell) -> None:
        self.folder, self.tell = folder, tell
        self.children: dict[str, _Child] = {}

    def raise_child(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_live, args=(name, self.folder, self.tell, theirs, os.getpid(), work, *arguments), name=name
        )
        process.start()
        # Each start buries whoever of multiprocessing's list has ended by then; ours are buried by `look` alone.
        siblings: Any = multiprocessing.process
        siblings._children.discard(process)
        theirs.close()
        with suppress(OSError):  # the child does the same: whoever comes first
            os.setpgid(_pid(process), _pid(process))
        self.children[name] = _Child(process, ours)

    def ask_to_go(self, name: str) -> None:
        child = self.children[name]
        child.deadline = time.monotonic() + PATIENCE
        with suppress(OSError):
            child.control.send(GO)

    def pass_on(self, name: str, order: dict[str, Any]) -> None:
        with suppress(OSError):
            self.children[name].control.send(order)

    def kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(_pid(self.children[name].process), signal.SIGKILL)

    def look(self) -> None:
        """Bury who has ended, with all that is left of its group, and kill who was asked to go and did not."""
        for name, child in list(self.children.items()):
            if child.deadline is not None and time.monotonic() > child.deadline:
                self.kill(name)
            # WNOWAIT: as long as the leader is not buried, no other group can have its number.
            if os.waitid(os.P_PID, _pid(child.process), os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self.kill(name)
                child.process.join()
                child.control.close()
                del self.children[name]
                self.tell("ended", name, exit_code=child.process.exitcode, said=self.last_words(name))

    def last_words(self, name: str) -> str:
        """The last line of the child's log: of a traceback, that is the error."""
        with suppress(OSError):
            lines = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
        return ""

    def end(self) -> None:
        for name in list(self.children):
            self.kill(name)
        while self.children:
            self.look()
            time.sleep(0.01)
        remove(self.folder)


def remove(folder: Path) -> None:
    """Remove the swarm's folder once torch has removed its shared memory.

    torch gives each server a manager in a session of its own, which sees the server's end, unlinks what the server
    shared, removes its folder in ours and ends, all in about two seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while any(folder.glob("torch-shm-dir-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Serve the parent that started this process: ``python -m planner.agent.nursery FOLDER PARENT_PID NUM_BLOCKS``."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    # The pipe to the parent gets a number of its own: what libraries print goes to the log.
    told = os.dup(1)
    _redirect(folder / "nursery.log")

    def tell(event: str, name: str, **more: Any) -> None:
        # One write of less than a pipe's buffer is never mixed with another process's. The reader may have gone.
        with suppress(BrokenPipeError):
            os.write(told, json.dumps({"event": event, "name": name, **more}).encode() + b"\n")

    nursery = _Nursery(folder, tell)
    try:
        prepare()
        for module in _PRELOADED:
            imported(module)
        import_module("hivemind.utils.logging").use_hivemind_log_handler("in_root_logger")  # to the servers' logs
        keep_sockets_in(folder)
        (folder / "cache").mkdir()
        tell("ready", "nursery")
        nursery.raise_child(DHT, hold_the_dht)
        # A child makes the model: torch starts threads when it computes, and threads do not survive a fork.
        nursery.raise_child("model", make_model, str(folder / "model"), int(sys.argv[3]))
        _obey(nursery, parent)
    except PetalsUnusable as error:
        tell("unusable", "nursery", said=str(error)[:2000])
        raise
    except Exception as error:
        tell("failed", "nursery", said=f"{type(error).__name__}: {error}"[:2000])
        raise
    finally:
        nursery.end()


def _obey(nursery: _Nursery, parent: int) -> None:
    pending = b""
    while os.getppid() == parent:
        nursery.look()
        if not select.select([0], [], [], TICK)[0]:
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, pending = (pending + read).split(b"\n")
        for order in map(json.loads, lines):
            name = order["name"]
            if order["do"] == "end":
                return
            if order["do"] in _WORK:
                nursery.raise_child(name, _WORK[order["do"]], order)
            elif name in nursery.children and order["do"] == "move":
                nursery.pass_on(name, order)
            elif name in nursery.children and order["do"] == "stop":
                nursery.ask_to_go(name)
            elif name in nursery.children and order["do"] == "kill":
                nursery.kill(name)


def _live(
    name: str,
    folder: Path,
    tell: Tell,
    control: Connection,
    nursery: int,
    work: Callable[..., None],
    *arguments: Any,
) -> None:
    """What a child does from its birth; it never returns into the nursery's code."""
    code = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        _redirect(folder / f"{name}.log")

        def heard() -> Any:
            if os.getppid() != nursery:  # killed: nobody else will end this group
                os.killpg(0, signal.SIGKILL)
            try:
                return control.recv() if control.poll(TICK) else None
            except EOFError:
                return GO

        work(lambda event, **more: tell(event, name, **more), heard, *arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _pid(process: ForkProcess) -> int:
    assert process.pid is not None
    return process.pid


if __name__ == "__main__":
    main()
