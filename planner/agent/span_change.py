"""The change of span: what stays goes on serving, what goes is drained and freed, and only what is new is loaded.

Each step leaves the server in a state in which everything that is announced ONLINE is served.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from planner.agent.announcer import Announcer, Said
from planner.agent.gate import Flag, Gate
from planner.agent.loader import Loaded
from planner.agent.parts import Parts, free
from planner.agent.turns import STOPPING
from planner.errors import PlanSwarmError
from planner.notes import blocks_text
from solver.problem import Span

logger = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds between a block's OFFLINE and the gate's closing: who has just read that it is ONLINE may still come in."""
START_SECONDS = 1.0
"""Seconds that a change may wait for what goes on before it, from the decision on."""
OFFLINE_SECONDS = STOPPING - START_SECONDS - GRACE
"""Seconds in which the swarm must take the announcement that blocks are dropped, or they are kept."""
CLOSING = 10.0
"""Seconds that sessions have for ending once the gate is closed."""
POLL = 0.05


class ChangeFailed(PlanSwarmError):
    """A span could not be changed as wanted; the server serves what the message says."""


@dataclass(frozen=True)
class Progress:
    """How far a change is, in the words of the agent's record, why, and how many of the new blocks are loaded."""

    state: str
    why: str | None = None
    done: int = 0
    of: int = 0


@dataclass(frozen=True)
class Changed:
    """What a change has done.

    Parameters
    ----------
    span
        What is served now; None for nothing.
    kept, dropped, loaded
        Numbers of blocks.
    seconds_per_block
        Of each loaded block, the seconds that it took.
    closed_sessions
        Calls that were still inside dropped blocks when their time was up.
    leaked
        Dropped blocks that something still refers to: their memory has not come back.
    failure
        Why not everything that was wanted is loaded; None where it is.
    """

    span: Span | None
    kept: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    seconds_per_block: tuple[float, ...] = ()
    closed_sessions: int = 0
    leaked: tuple[int, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class SpanChange:
    """Changes the span of a running server.

    Parameters
    ----------
    parts
        What answers calls now: it may be made anew in mid-change.
    announcer
        What tells the swarm.
    load
        Loads a block; may raise anything.
    cache_bytes_per_block
        Attention cache for each block that is held.
    drain_timeout
        Seconds that sessions over dropped blocks have.
    store_timeout
        Seconds in which the DHT must take an announcement.
    report
        Told of each step.
    remember
        Told of the span that the server is bound for, before anything is unloaded.
    meanwhile
        Done again and again while it waits, and before each block: keeps what answers calls alive. What it raises
        ends the change.
    """

    parts: Callable[[], Parts]
    announcer: Announcer
    load: Callable[[int], Loaded]
    cache_bytes_per_block: int
    drain_timeout: float = 300.0
    store_timeout: float = 60.0
    report: Callable[[Progress], None] = field(default=lambda _progress: None)
    remember: Callable[[Span | None], None] = field(default=lambda _span: None)
    meanwhile: Callable[[], object] = field(default=lambda: None)

    def __call__(self, target: Span | None) -> Changed:
        """Change to `target`; None gives everything up. To the present span: nothing happens at all.

        Raises
        ------
        ChangeFailed
            If the target is outside the model, or the swarm cannot be told of what is dropped: nothing has changed.
        """
        present = served(self.parts().gate)
        if target == present:
            return Changed(present, kept=_blocks(present))
        num_blocks = self.parts().gate.num_blocks
        if target is not None and not 0 <= target.start < target.end <= num_blocks:
            raise ChangeFailed(f"the span {target} is outside the model's 0:{num_blocks}")
        kept = _common(present, target)
        dropped = tuple(block for block in _blocks(present) if block not in _blocks(kept))
        new = _outward(kept, target)
        closed_sessions = self._drop(present, kept, target, dropped)
        leaked = self._free(dropped, kept)
        loaded, seconds, failure = self._load(new)
        span = _span((*_blocks(kept), *loaded))
        parts = self.parts()
        parts.cache.max_size_bytes = self.cache_bytes_per_block * len(_blocks(span))
        parts.gate.set(loaded, Flag.OPEN)
        unloaded = [block for block in new if block not in loaded]
        self._say([*_online(span), *_runs(unloaded, "OFFLINE")])
        state = "failed" if failure is not None else "waiting" if span is None else "serving"
        self.report(Progress(state, failure, len(loaded), len(new)))
        return Changed(span, _blocks(kept), dropped, loaded, seconds, closed_sessions, leaked, failure)

    def _drop(self, present: Span | None, kept: Span | None, target: Span | None, dropped: Sequence[int]) -> int:
        """Let what is dropped run dry; the calls that did not end by themselves."""
        joining = [block for block in _blocks(target) if block not in _blocks(kept)]
        said = [*_online(kept), *_runs(joining, "JOINING", target), *_runs(dropped, "OFFLINE", present)]
        if dropped:
            self.report(Progress("draining", blocks_text(dropped)))
        try:
            if not self.announcer.say(said, OFFLINE_SECONDS if dropped else self.store_timeout):
                if dropped:
                    raise ChangeFailed("the swarm takes no announcement, so nothing is unloaded")
                logger.warning("the swarm takes no announcement; loading all the same, as nothing is dropped")
            self.remember(target)
        except Exception as error:
            self._say([*_online(present), *_runs(joining, "OFFLINE")])
            self.report(Progress("failed", _first_line(error)))
            raise
        if not dropped:
            return 0
        time.sleep(GRACE)
        self.parts().gate.set(dropped, Flag.DRAINING)
        self._wait_until_empty(dropped, self.drain_timeout)
        gate = self.parts().gate
        left = gate.inside(dropped)
        gate.set(dropped, Flag.CLOSED)
        self._wait_until_empty(dropped, CLOSING)
        return left

    def _free(self, dropped: Sequence[int], kept: Span | None) -> tuple[int, ...]:
        """Give the memory of what is dropped back before anything is loaded: a device is filled to the brim."""
        parts = self.parts()
        parts.cache.max_size_bytes = self.cache_bytes_per_block * len(_blocks(kept))
        taken = parts.take(dropped)
        free()
        leaked = tuple(block for block, module in zip(dropped, taken, strict=True) if module() is not None)
        if leaked:
            logger.error("something still refers to the dropped blocks %s: their memory has not come back", leaked)
        return leaked

    def _load(self, new: Sequence[int]) -> tuple[tuple[int, ...], tuple[float, ...], str | None]:
        loaded: list[int] = []
        seconds: list[float] = []
        failure = None
        for block in new:
            self.meanwhile()
            self.report(Progress("loading", None, len(loaded), len(new)))
            try:
                one = self.load(block)
                self.parts().put({block: one.module})
            except Exception as error:
                logger.warning("block %d could not be loaded", block, exc_info=True)
                failure = f"block {block} could not be loaded: {_first_line(error)}"
                break
            loaded.append(block)
            seconds.append(one.seconds)
        if failure is not None:
            free()  # what half a block has taken
        return tuple(loaded), tuple(seconds), failure

    def _say(self, said: Sequence[Said]) -> bool:
        return self.announcer.say(said, self.store_timeout)

    def _wait_until_empty(self, blocks: Sequence[int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.parts().gate.inside(blocks) and time.monotonic() < deadline:
            time.sleep(POLL)
            self.meanwhile()


def served(gate: Gate) -> Span | None:
    """The span that takes new calls now."""
    return _span(gate.blocks(Flag.OPEN))


def _blocks(span: Span | None) -> tuple[int, ...]:
    return () if span is None else tuple(range(span.start, span.end))


def _span(blocks: Sequence[int]) -> Span | None:
    return Span(min(blocks), max(blocks) + 1) if blocks else None


def _common(present: Span | None, target: Span | None) -> Span | None:
    return _span([block for block in _blocks(present) if block in _blocks(target)])


def _outward(kept: Span | None, target: Span | None) -> tuple[int, ...]:
    """What of `target` is new, in an order in which the blocks that are there are a run at any moment."""
    if kept is None or target is None:
        return _blocks(target)
    return (*range(kept.end, target.end), *range(kept.start - 1, target.start - 1, -1))


def _online(span: Span | None) -> list[Said]:
    return [] if span is None else [Said(span, "ONLINE", span)]


def _runs(blocks: Sequence[int], state: str, stated: Span | None = None) -> list[Said]:
    """Say it of some blocks, a run of neighbours at a time."""
    runs: list[list[int]] = []
    for block in sorted(blocks):
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    spans = [Span(run[0], run[-1] + 1) for run in runs]
    return [Said(span, state, span if stated is None else stated) for span in spans]


def _first_line(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0].strip()
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__
