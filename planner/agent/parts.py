"""The running parts of a server around the blocks it holds: gate, cache, slots, runtime and handlers.

They are made anew when one of them dies, and the blocks stay: a process that is killed may leave locks held and
memory counted that nobody else can tell from what is still in use.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from planner.agent.compat import prepare

prepare()

import torch  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from planner.agent.cache import SharedMemoryCache  # noqa: E402
from planner.agent.gate import Flag, Gate  # noqa: E402
from planner.agent.handler import TransformerConnectionHandler  # noqa: E402
from planner.agent.slots import Runtime, make_slots  # noqa: E402

logger = logging.getLogger(__name__)

END_SECONDS = 2.0
"""Seconds that the runtime has for ending after it was asked to."""
READY_SECONDS = 10.0
"""Seconds that a handler or the runtime may take to be ready."""
FORKS = 3
"""Times that a handler is forked: it may hang at its beginning by a lock that another thread held when it was."""
BATCH_SECONDS = 60.0
"""Seconds that a batch may still be computed when everything is stopped."""


class Parts:
    """Everything that answers calls, with the slots for the model's blocks.

    Parameters
    ----------
    server
        The Petals server, which has read its options and has a DHT.
    modules
        The blocks that are there already, by number.
    flags
        What may be done with each of them from the start.
    killed
        Addresses of handlers that were killed.

    Raises
    ------
    TimeoutError
        If handlers or runtime do not become ready; nothing is left of them then.
    """

    def __init__(
        self,
        server: Any,
        modules: Mapping[int, Any] | None = None,
        flags: Mapping[int, Flag] | None = None,
        killed: Iterable[str] = (),
    ) -> None:
        self._server = server
        self._killed = list(killed)
        self.gate = Gate(len(server.module_uids), server.num_handlers)
        self.cache = SharedMemoryCache(server.attn_cache_bytes, server.max_alloc_timeout)
        slots = make_slots(server, self.cache)
        self.slots = [slots[uid] for uid in server.module_uids]
        self.runtime = Runtime(
            slots,
            prefetch_batches=server.prefetch_batches,
            sender_threads=server.sender_threads,
            stats_report_interval=server.stats_report_interval,
        )
        context = torch.multiprocessing.get_context("fork")
        self._queues = [context.Queue() for _ in range(server.num_handlers)]
        self.handlers: list[TransformerConnectionHandler] = []
        try:
            # First, so that they are forked without any block in their slots, and beside few threads.
            for index in range(server.num_handlers):
                self._fork(slots, index)
            self.put(modules or {})
            self.runtime.start()
            if not self.runtime.ready.wait(READY_SECONDS):
                raise TimeoutError(f"the runtime is not ready after {READY_SECONDS:g} s")
        except BaseException:
            self.stop()
            self.forget()
            raise
        for block, flag in (flags or {}).items():
            self.gate.set([block], flag)

    @property
    def healthy(self) -> bool:
        """Whether all handlers, the runtime and its pools are alive."""
        return (
            self.runtime.is_alive()
            and all(handler.is_alive() for handler in self.handlers)
            and all(pool.is_alive() for pool in self.runtime.pools)
        )

    def put(self, modules: Mapping[int, Any]) -> None:
        """Put blocks into their slots, between two batches."""
        with self.runtime.between_batches:
            for block, module in modules.items():
                self.slots[block].put(module)

    def take(self, blocks: Iterable[int]) -> list[weakref.ref[Any]]:
        """Take blocks out of their slots, between two batches, and free what ended sessions have left in the cache."""
        with self.runtime.between_batches:
            taken = [self.slots[block].take() for block in blocks]
            self.cache.collect()
        return taken

    def held(self) -> dict[int, Any]:
        """The blocks in the slots, by number."""
        return {block: slot.module for block, slot in enumerate(self.slots) if slot.held}

    def again(self) -> Parts:
        """Stop everything, and make it anew around the same blocks, with the same flags and the same budget.

        Raises
        ------
        TimeoutError
            If that does not work now; the blocks are still here, so that it can be tried again.
        """
        self.stop()
        modules = self.held()
        flags = {block: self.gate.flag(block) for block in modules}
        parts = Parts(self._server, modules, flags, self._killed)
        parts.cache.max_size_bytes = self.cache.max_size_bytes
        self.forget()
        return parts

    def stop(self) -> None:
        """Stop everything that answers calls, for good; once it is, to be called again is nothing."""
        for handler in self.handlers:
            self._kill(handler)
        self.handlers = []
        for queue in self._queues:
            queue.cancel_join_thread()
            queue.close()
        self._queues = []
        if not self.runtime.stop(BATCH_SECONDS):
            raise TimeoutError(f"a batch is still computed after {BATCH_SECONDS:g} s")
        # In a thread, as a handler that was killed may hold a lock that this waits for.
        ending = threading.Thread(target=self.runtime.shutdown, daemon=True)
        ending.start()
        ending.join(END_SECONDS)
        if self.runtime.ident is not None:
            self.runtime.join(END_SECONDS)
        if self.runtime.is_alive():
            logger.warning("the old runtime does not end; it computes nothing any more")

    def forget(self) -> None:
        """Let go of the blocks, and of what the parts hold of each other, once they are stopped."""
        for slot in self.slots:
            slot.take()
            slot.forward_pool = slot.backward_pool = slot.inference_pool = None  # they refer to the slot, too
        free()

    def _kill(self, handler: TransformerConnectionHandler) -> None:
        """End a handler whatever it is at: asked to, it may take seconds for it, or hang."""
        handler.kill()
        handler.join()
        if handler.address:
            self._killed.append(handler.address)

    def _fork(self, slots: Mapping[str, Any], index: int) -> None:
        server = self._server
        for _ in range(FORKS):
            handler = TransformerConnectionHandler(
                server.dht,
                slots,
                gate=self.gate,
                killed=self._killed,
                adapters=server.server_info.adapters,
                dht_prefix=server.dht_prefix,
                handler_event_queues=self._queues,
                handler_index=index,
                inference_max_length=server.inference_max_length,
                request_timeout=server.request_timeout,
                session_timeout=server.session_timeout,
                step_timeout=server.step_timeout,
                quant_type=QuantType[server.server_info.quant_type.upper()],
            )
            handler.start()
            try:
                handler.wait_until_ready(READY_SECONDS)
            except Exception as error:
                logger.warning("handler %d does not become ready: %r", index, error)
                self._kill(handler)
            else:
                self.handlers.append(handler)
                return
        raise TimeoutError(f"handler {index} is not ready after {FORKS} forks")


def free() -> None:
    """Return memory that nothing refers to any more: to the system, and on CUDA to the device."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
