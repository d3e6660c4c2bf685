"""The agent of a server: it looks again and again, follows the plan that counts, and says what it waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from planner.agent.follow import Go, Intend, Stay, Step, View
from planner.agent.memory import Memory, MemoryUnusable, load_memory, save_memory
from planner.agent.record import Intent
from planner.agent.sight import look
from planner.agent.span_change import Changed, ChangeFailed
from planner.errors import PlanSwarmError
from planner.event_loop import run
from planner.keys import PublicKey
from solver.problem import Span

logger = logging.getLogger(__name__)

OF_A_KIND = 10
"""Refusals that are logged for each key and reason."""
BACKOFF = (60.0, 120.0, 300.0, 600.0)
"""Seconds after which a move that failed is tried again; the last holds from then on."""


@dataclass(frozen=True)
class Following:
    """What a server's agent was told.

    Parameters
    ----------
    trusted
        Keys whose plans count; of several the first named that has one.
    state_dir
        Where it keeps what survives.
    files
        Signed plans from files.
    refresh
        Seconds between two looks; the same for all agents of a swarm.
    pinned
        Whether its owner keeps it where it is.
    timeout
        Seconds for one look.
    """

    trusted: tuple[PublicKey, ...]
    state_dir: Path
    files: tuple[bytes, ...] = ()
    refresh: float = 60.0
    pinned: bool = False
    timeout: float = 30.0


class Followed(Protocol):
    """The server: a `planner.agent.server.SpanServer`."""

    @property
    def span(self) -> Span | None:
        """What is served now."""

    @property
    def peer_id(self) -> str:
        """Whose it is."""

    @property
    def peers(self) -> Sequence[str]:
        """Addresses to join the swarm by."""

    dht_prefix: str
    num_model_blocks: int

    def change_to(self, target: Span | None) -> Changed:
        """Change the span, and remember it."""

    def tell(self, state: str, why: str, intent: Intent | None = None) -> bool:
        """Announce what it is at; with a new intent, whether that is stored."""


@dataclass
class Agent:
    """Follows plans for one server, in a thread of its own.

    What it knows is replaced as a whole, by this thread; the span also by the server's, where it moves without a plan.
    """

    server: Followed
    told: Following
    memory: Memory | None = None
    intent: Intent | None = None
    failures: int = 0
    not_before: float = 0.0
    _unusable: str = ""
    _said: str = ""
    _has_plan: bool = False
    _ending: threading.Event = field(default_factory=threading.Event)
    _saving: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            self.memory = load_memory(
                self.told.state_dir, self.server.dht_prefix, self.server.peer_id, self.server.num_model_blocks
            )
        except MemoryUnusable as error:
            self._unusable = str(error)
        self._thread = threading.Thread(target=self._run, daemon=True, name="agent")

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan for this server, as far as the last look has shown."""
        return self._has_plan

    @property
    def last_span(self) -> Span | None:
        """Where the server was when it ended."""
        return self.memory.span if self.memory is not None else None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self, timeout: float) -> None:
        """Look no more; a change that has begun is not waited for longer than `timeout` seconds."""
        self._ending.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            pause = self.told.refresh
            try:
                pause = self.turn()
            except PlanSwarmError as error:
                self._say("serving" if self.server.span is not None else "waiting", str(error))
            except Exception:
                logger.exception("looking for plans failed; trying again in %g s", pause)

    def turn(self) -> float:
        """Look once and do what is to be done; seconds until the next time.

        Raises
        ------
        PlanSwarmError
            If the swarm cannot be reached, or what was seen cannot be saved: then nothing is followed.
        """
        if self.memory is None:
            self._say("failed" if self.server.span is None else "serving", self._unusable)
        if self.memory is None or not self.told.trusted:
            return self.told.refresh
        if (left := self.not_before - time.monotonic()) > 0:
            return min(left, self.told.refresh)
        view = View(
            now=time.time(),
            peer_id=self.server.peer_id,
            span=self.server.span,
            refresh=self.told.refresh,
            state=None,
            plan=None,
            heartbeat=None,
            pinned=self.told.pinned,
            own_intent=self.intent,
        )
        seen = run(
            look(
                self.server.peers,
                self.server.num_model_blocks,
                self.memory,
                self.told.trusted,
                view,
                files=self.told.files,
                timeout=self.told.timeout,
                save=self._save_plans,
            )
        )
        self._has_plan = seen.plans.has(self.server.peer_id)
        for reason in seen.plans.refused:
            self._warn_once(reason)
        return self._do(seen.step)

    def _do(self, step: Step) -> float:
        if isinstance(step, Go):
            self.intent = None
            return self._move(step.target)
        if isinstance(step, Intend):
            stored = self._say(step.state, step.why, step.intent)
            if self.intent != step.intent:
                # It counts from when others can read it.
                self.intent = replace(step.intent, since=time.time()) if stored else None
            return max(1.0, min(step.again_at - time.time(), self.told.refresh))
        self.intent = None
        if isinstance(step, Stay):
            self._say(step.state, step.why)
        return self.told.refresh

    def _move(self, target: Span | None) -> float:
        try:
            changed = self.server.change_to(target)
        except ChangeFailed as error:
            return self._failed(str(error))
        if changed.failure is not None:
            return self._failed(changed.failure)
        self.failures = 0
        return 0.0

    def _failed(self, why: str) -> float:
        seconds = BACKOFF[min(self.failures, len(BACKOFF) - 1)]
        self.failures += 1
        self.not_before = time.monotonic() + seconds
        self._say("failed", f"{why}; trying again in {seconds:g} s")
        return min(seconds, self.told.refresh)

    def remember(self, span: Span | None) -> None:
        """Keep on disk where the server is, or is bound for.

        Raises
        ------
        OutputUnwritable
            If it cannot be written.
        """
        with self._saving:
            if self.memory is not None:
                self._save(self.memory.with_span(span))

    def _save_plans(self, seen: Memory) -> None:
        with self._saving:
            if self.memory is not None:
                self._save(replace(self.memory, keys=seen.keys))

    def _save(self, memory: Memory) -> None:
        save_memory(self.told.state_dir, memory)
        self.memory = memory

    def _say(self, state: str, why: str, intent: Intent | None = None) -> bool:
        """Announce it; log it where it is news: the same reason is not told every refresh."""
        stored = self.server.tell(state, why, intent)
        if why != self._said:
            self._said = why
            logger.info("%s%s", state, f": {why}" if why else "")
        return stored

    _warned: dict[str, set[str]] = field(default_factory=dict)

    def _warn_once(self, reason: str) -> None:
        # A stranger may have any number of the same kind refused: they must not hide the others.
        kind = ": ".join(reason.split(": ")[:2])
        warned = self._warned.setdefault(kind, set())
        if reason not in warned and len(warned) < OF_A_KIND:
            warned.add(reason)
            logger.warning("%s", reason)
