"""A Petals server that changes its span while it serves."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from planner.agent.compat import prepare

prepare()

from petals.server import block_selection  # noqa: E402
from petals.server import server as petals_server  # noqa: E402
from petals.utils.dht import get_remote_module_infos  # noqa: E402

from planner.agent.announcer import Announcer  # noqa: E402
from planner.agent.daemon import Watched  # noqa: E402
from planner.agent.following import BACKOFF, Agent, Following  # noqa: E402
from planner.agent.loader import Loader  # noqa: E402
from planner.agent.parts import Parts  # noqa: E402
from planner.agent.record import Intent, Report  # noqa: E402
from planner.agent.span_change import START_SECONDS, Changed, ChangeFailed, Progress, SpanChange, served  # noqa: E402
from planner.agent.strangers import beware  # noqa: E402
from planner.errors import PlanSwarmError, PolicyInvalid, ServerFailed  # noqa: E402
from solver.problem import Span  # noqa: E402

logger = logging.getLogger(__name__)

WATCH = 1.0
"""Seconds between two looks whether everything is alive."""
RELAY_PENALTY = 0.2
"""Petals' own factor for what a relay passes on."""


@dataclass(frozen=True)
class Manner:
    """How a server behaves.

    Parameters
    ----------
    drain_timeout
        Seconds that sessions over dropped blocks have.
    without_plan
        ``"keep"``: without a plan it stays where it is; ``"petals"``: it follows Petals' own rule, yet decides before
        it unloads anything, and loads only what is new.
    newcomer
        What a server without a span does: ``"wait"`` to be given one, for `newcomer_timeout` seconds, or choose as
        ``"petals"`` does.
    """

    drain_timeout: float = 300.0
    without_plan: Literal["keep", "petals"] = "keep"
    newcomer: Literal["wait", "petals"] = "wait"
    newcomer_timeout: float = 600.0


class SpanServer(petals_server.Server):
    """Serves a span that may change.

    Parameters
    ----------
    told, manner
        What it follows, None for nothing, and how it behaves.
    options
        As of `petals.server.server.Server`.

    Raises
    ------
    PolicyInvalid
        If it is started with what it cannot keep through a change of span.
    """

    def __init__(self, *, told: Following | None = None, manner: Manner | None = None, **options: Any) -> None:
        if len(options.get("tensor_parallel_devices") or ()) > 1:
            raise PolicyInvalid("--tensor_parallel_devices with several devices is not served yet: start one a device")
        beware()
        if options.get("num_blocks") is not None and options["num_blocks"] < 1:
            raise PolicyInvalid(f"--num_blocks must be 1 or more, not {options['num_blocks']}")
        told_blocks = re.fullmatch(r"\s*(-?\d+)\s*:\s*(-?\d+)\s*", options.get("block_indices") or "")
        if told_blocks is not None and int(told_blocks[1]) >= int(told_blocks[2]):
            raise PolicyInvalid(f"--block_indices {told_blocks[0].strip()} has no block; write 0:4 for blocks 0 to 3")
        super().__init__(**options)
        blocks = self.strict_block_indices
        if blocks is not None and not 0 <= blocks.start < blocks.stop <= len(self.module_uids):
            raise PolicyInvalid(
                f"--block_indices {blocks.start}:{blocks.stop} is not within the model's 0:{len(self.module_uids)}"
            )
        self._initial_peers = tuple(str(address) for address in options.get("initial_peers") or ())
        self.manner = Manner() if manner is None else manner
        self.loader = Loader(self)
        self._said = Progress("waiting")
        self._intent: Intent | None = None
        self._unfinished: Span | None = None
        self._failures, self._try_at = 0, 0.0
        self._changing = threading.RLock()
        self.parts = Parts(self)
        self.announcer = Announcer(self, self.throughput_of, lambda: self.parts.cache.bytes_left, self.record)
        self.agent = Agent(self, told) if told is not None else None
        self.announcer.start()

    @property
    def peer_id(self) -> str:
        """Its peer id, in base 58."""
        return str(self.dht.peer_id.to_base58())

    @property
    def peers(self) -> tuple[str, ...]:
        """Addresses by which the swarm can be joined: its own, as it is in the swarm already, unless nobody reaches it.

        Behind a relay its node of the DHT is a client, which answers nobody; then those that it was started with.
        """
        if self.dht.client_mode:
            return self._initial_peers
        return tuple(str(address) for address in self.dht.get_visible_maddrs())

    @property
    def num_model_blocks(self) -> int:
        """Blocks of the model."""
        return len(self.module_uids)

    @property
    def span(self) -> Span | None:
        """What is served now."""
        return served(self.parts.gate)

    def throughput_of(self, length: int) -> float:
        """RPS that it announces when it holds so many blocks: Petals' own rule, where it has measured itself."""
        info = self.server_info
        if info.forward_rps is None:
            return float(info.throughput)
        compute = info.forward_rps / ((length + 1) / 2)
        if info.network_rps is None:
            return float(compute)
        return float(min(compute, info.network_rps * (RELAY_PENALTY if info.using_relay else 1.0)))

    def change_to(self, target: Span | None) -> Changed:
        """Change the span, keeping what both have; see `SpanChange`. An agent remembers where it is after kill -9.

        Raises
        ------
        ChangeFailed
            If it cannot hold so many blocks, or is busy, or as `SpanChange` says.
        """
        if target is not None and target.length > self.num_blocks:
            raise ChangeFailed(f"the span {target} has more than the {self.num_blocks} blocks that fit here")
        if not self._changing.acquire(timeout=START_SECONDS):
            raise ChangeFailed("another change is going on")
        try:
            self._unfinished = None
            changed = self._change()(target)
            if changed.span != target:
                self._remember(changed.span)
            return changed
        finally:
            self._changing.release()

    def heal(self) -> bool:
        """If something that answers calls has died, make it all anew around the blocks; whether it was so.

        Raises
        ------
        TimeoutError
            If that does not work: then nothing is served, and the server should end.
        """
        with self._changing:
            if self.stop.is_set() or self.parts.healthy:
                return False
            logger.warning("a handler or the runtime has died: starting them again, the blocks stay")
            self.parts = self.parts.again()
            return True

    def tell(self, state: str, why: str, intent: Intent | None = None) -> bool:
        """Say in the agent's record what it is at; with a new intent, whether that is stored.

        What has failed, and is to be tried again, is said until it has been.
        """
        if self._unfinished is not None and intent is None:
            return True
        said, self._said = self._said, Progress(state, why or None)
        known, self._intent = self._intent, intent
        if intent is not None and intent != known:
            return self.announcer.store_record()
        if (said, known) != (self._said, intent):
            self.announcer.refresh()
        return True

    def record(self) -> dict[str, Any]:
        """What it says of itself as an agent."""
        info, said, span = self.server_info, self._said, self.span
        return Report(
            state=said.state,  # type: ignore[arg-type]
            span=span,
            capacity=self.num_blocks,
            throughput=self.throughput_of(span.length if span is not None else self.num_blocks),
            throughput_by_length=None
            if info.forward_rps is None
            else tuple(self.throughput_of(length) for length in range(1, self.num_blocks + 1)),
            seconds_per_block=self.loader.seconds_per_block,
            seconds_per_cached_block=self.loader.seconds_per_cached_block,
            cached_blocks=self.loader.cached_blocks(),
            pinned=self.agent is None or self.agent.told.pinned,
            public_name=info.public_name,
            using_relay=info.using_relay,
            adapters=tuple(info.adapters),
            why=said.why or "",
            progress=(said.done, said.of) if said.of else None,
            intent=self._intent,
        ).to_value()

    def run(self) -> None:
        """Serve until `stop` is set.

        Raises
        ------
        ServerFailed
            If it cannot be reached from outside, where Petals would look, or the process of its DHT has ended.
        """
        if self.should_validate_reachability:
            try:
                petals_server.validate_reachability(self.dht.peer_id)
            except RuntimeError as error:
                raise ServerFailed(" ".join(str(error).split())) from error
        first = self._first_span()
        if first is not None:
            self._alone(first)
        if self.agent is not None:
            self.agent.start()
        dht, begun = Watched(self.dht), time.monotonic()
        check_at = begun + self._check_period()
        while not self.stop.wait(WATCH):
            if ended := dht.ended():
                raise ServerFailed(f"{ended} has ended, and the server with it; start it again")
            self.heal()
            now = time.monotonic()
            alone = self.agent is None or not self.agent.has_plan
            if self._unfinished is not None:
                if now > self._try_at:
                    self._alone(self._unfinished)
            elif self.strict_block_indices is not None:
                continue  # without a plan it stays where it was told to be, as in stock Petals
            elif self.span is None:
                if alone and now - begun > self.manner.newcomer_timeout:
                    logger.warning("nobody has given it blocks in %.0f s: choosing as Petals does", now - begun)
                    begun = now
                    self._alone(self._petals_choice())
            elif now > check_at:
                check_at = now + self._check_period()
                if alone and self.manner.without_plan == "petals":
                    self._balance_alone()

    def shutdown(self, timeout: float | None = 5) -> None:
        """Say that it is OFFLINE, end everything that answers calls, and leave the swarm."""
        seconds = 10.0 if timeout is None else timeout
        self.stop.set()
        if self.agent is not None:
            self.agent.end(seconds)
        if self.dht.is_alive():  # else nobody is left to tell it to, and hivemind would wait for ever
            self.announcer.end(seconds)
        # A change that goes on ends where it looks next, or is left behind where it hangs.
        waited = self._changing.acquire(timeout=seconds)
        with suppress(TimeoutError):
            self.parts.stop()
        if waited:
            self._changing.release()
        super().shutdown(timeout)

    def _first_span(self) -> Span | None:
        """Where it was when it ended; else where it is told to begin; else where Petals would, unless it waits."""
        last = self.agent.last_span if self.agent is not None else None
        if last is not None and last.length <= self.num_blocks:
            begun = self.strict_block_indices
            note = "" if begun is None or (begun.start, begun.stop) == last else "; --block_indices is where it began"
            logger.info("serving %s again, as before it ended%s", last, note)
            return last
        if self.strict_block_indices is not None:
            return Span(self.strict_block_indices.start, self.strict_block_indices.stop)
        follows = self.agent is not None and self.manner.newcomer == "wait"
        if follows:
            self.tell("waiting", "waits to be given blocks")
            return None
        return self._petals_choice()

    def _petals_choice(self) -> Span:
        blocks = self._choose_blocks()
        return Span(min(blocks), max(blocks) + 1)

    def _balance_alone(self) -> None:
        """Petals' own rule, decided before anything is unloaded."""
        infos = get_remote_module_infos(self.dht, self.module_uids, latest=True)
        if not block_selection.should_choose_other_blocks(self.dht.peer_id, infos, self.balance_quality):
            return
        for info in infos:
            if info is not None:
                info.servers.pop(self.dht.peer_id, None)
        blocks = block_selection.choose_best_blocks(self.num_blocks, infos)
        self._alone(Span(min(blocks), max(blocks) + 1))

    def _alone(self, target: Span) -> None:
        """Change the span without a plan; what fails is tried again later, unless a plan wants something else."""
        try:
            failure = self.change_to(target).failure
        except PlanSwarmError as error:
            failure = str(error)
        if failure is None:
            self._failures = 0
            return
        seconds = BACKOFF[min(self._failures, len(BACKOFF) - 1)]
        logger.warning("%s; trying again in %g s", failure, seconds)
        self._unfinished, self._try_at = target, time.monotonic() + seconds
        self._failures += 1

    def _check_period(self) -> float:
        return random.random() * 2.0 * float(self.mean_balance_check_period)  # noqa: S311 - that of stock Petals

    def _remember(self, span: Span | None) -> None:
        if self.agent is not None:
            self.agent.remember(span)

    def _change(self) -> SpanChange:
        return SpanChange(
            lambda: self.parts,
            self.announcer,
            self.loader.load,
            int(self._cache_bytes_per_block),
            drain_timeout=self.manner.drain_timeout,
            report=self._report,
            remember=self._remember,
            meanwhile=self._look_after,
        )

    def _look_after(self) -> None:
        if self.stop.is_set():
            raise ChangeFailed("the server is being stopped")
        self.heal()

    def _report(self, progress: Progress) -> None:
        self._said = progress
        count = f"{progress.done} of {progress.of} blocks" if progress.of else ""
        logger.info("%s", f"{progress.state} {progress.why or count}".strip())
        self.announcer.refresh()
