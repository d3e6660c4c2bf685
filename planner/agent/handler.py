"""Petals' connection handler behind a gate: forked once, with slots for all blocks, whichever are served."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, AsyncIterator  # noqa: UP035 - hivemind looks for this very name

from planner.agent.compat import prepare

prepare()

from hivemind import P2PContext  # noqa: E402
from hivemind.proto import runtime_pb2  # noqa: E402
from hivemind.utils.mpfuture import SharedBytes  # noqa: E402
from petals.data_structures import CHAIN_DELIMITER, parse_uid  # noqa: E402
from petals.server import handler as petals_handler  # noqa: E402

from planner.agent.gate import Flag, Gate, NotServed  # noqa: E402
from planner.agent.streams import address_of, take_back  # noqa: E402

POLL = 0.2
"""Seconds between two looks whether an idle session has to end."""
WATCH = 1.0
"""Seconds between two looks whether the server's process is alive."""


class TransformerConnectionHandler(petals_handler.TransformerConnectionHandler):
    """Lets calls in while their blocks are OPEN, and ends sessions over blocks that are CLOSED.

    It has the name of its base, because hivemind makes the names of the remote procedures of it.

    Parameters
    ----------
    gate
        The flags; `handler_index` says which counters are this handler's.
    killed
        Addresses of handlers that were killed: new streams are not to go there any more.
    """

    def __init__(self, *args: Any, gate: Gate, killed: Iterable[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.gate = gate
        self._killed = tuple(killed)
        self._address = multiprocessing.get_context("fork").RawArray(ctypes.c_char, 1024)

    @property
    def address(self) -> str:
        """Where it takes its streams; empty before it does."""
        return self._address.value.decode()

    def run(self) -> None:
        """As of Petals, with a lock of its own for what no other process uses.

        hivemind forks one lock into all processes: a handler that is killed while it has it stops them all for good.
        """
        SharedBytes._lock = threading.Lock()
        threading.Thread(target=_end_with, args=(os.getppid(), self.dht.pid), daemon=True).start()
        super().run()

    async def add_p2p_handlers(self, p2p: Any, *args: Any, **options: Any) -> None:
        """As of Petals."""
        await super().add_p2p_handlers(p2p, *args, **options)
        self._address.value = address_of(p2p).encode()
        streams = [one.method_name for one in self._rpc_handlers if one.stream_input or one.stream_output]
        for address in self._killed:
            await take_back(p2p, address, [self._get_handle_name(None, name) for name in streams])

    async def rpc_inference(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        """A session: refused or let in by its first request, and ended when the gate closes."""
        async with aclosing(self._guarded(super().rpc_inference, requests, context)) as responses:
            async for response in responses:
                yield response

    async def rpc_forward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        """As of Petals."""
        with self._inside(request.uid):
            return await super().rpc_forward(request, context)

    async def rpc_forward_stream(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertRequest]:
        """As of Petals."""
        async with aclosing(self._guarded(super().rpc_forward_stream, requests, context)) as responses:
            async for response in responses:
                yield response

    async def rpc_backward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        """As of Petals."""
        with self._inside(request.uid):
            return await super().rpc_backward(request, context)

    async def rpc_backward_stream(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        """As of Petals."""
        async with aclosing(self._guarded(super().rpc_backward_stream, requests, context)) as responses:
            async for response in responses:
                yield response

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        """As of Petals; of a block that takes nothing new, nothing: other agents ask so whom they may rely on."""
        self.require(Flag.OPEN, self.blocks_of(request.uid))
        return await super().rpc_info(request, context)

    def _check_uids(self, uids: str) -> Any:
        checked = super()._check_uids(uids)
        self.require(Flag.DRAINING, self.blocks_of(uids))
        return checked

    def require(self, flag: Flag, blocks: Iterable[int]) -> None:
        """Raise `NotServed` if one of the blocks has less than `flag`."""
        if (block := self.gate.below(flag, blocks)) is not None:
            raise NotServed(self._uid(block))

    def _uid(self, block: int) -> str:
        return f"{self.dht_prefix}.{block}"

    def blocks_of(self, uids: str) -> tuple[int, ...]:
        """The blocks that a request names; what is no block of the model is left to Petals to refuse."""
        blocks = []
        for uid in (uids or "").split(CHAIN_DELIMITER):
            if uid in self.module_backends:
                blocks.append(int(parse_uid(uid)[1]))
        return tuple(blocks)

    def enter(self, uids: str) -> tuple[int, ...]:
        """Count a new call in; raise `NotServed` if it may not come in."""
        blocks = self.blocks_of(uids)
        if (refused := self.gate.enter(self._handler_index, blocks)) is not None:
            raise NotServed(self._uid(refused))
        return blocks

    async def _guarded(self, call: Any, requests: AsyncIterator[Any], context: P2PContext) -> AsyncGenerator[Any, None]:
        guarded = _Guarded(self, requests)
        try:
            async with aclosing(call(guarded, context)) as responses:
                async for response in responses:
                    yield response
        finally:
            guarded.leave()

    @contextmanager
    def _inside(self, uids: str) -> Iterator[None]:
        blocks = self.enter(uids)
        try:
            yield
        finally:
            self.gate.leave(self._handler_index, blocks)


def _end_with(server: int, dht: int) -> None:
    """When the server's process is gone, end this one and the DHT's: else both would go on, and answer nothing."""
    while os.getppid() == server:
        time.sleep(WATCH)
    with suppress(OSError):
        os.kill(dht, signal.SIGKILL)
    os._exit(1)


class _Guarded:
    """A call's requests: the first counts it in, and none comes through a closed gate, nor is waited for."""

    def __init__(self, handler: TransformerConnectionHandler, requests: AsyncIterator[Any]) -> None:
        self._handler, self._requests = handler, requests
        self._blocks: tuple[int, ...] | None = None

    def __aiter__(self) -> _Guarded:
        return self

    async def __anext__(self) -> Any:
        waiting = asyncio.ensure_future(self._requests.__anext__())
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=None if self._blocks is None else POLL)
                self._check()
                if done:
                    request = waiting.result()
                    if self._blocks is None:
                        self._blocks = self._handler.enter(request.uid)
                    return request
        finally:
            if not waiting.done():
                waiting.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await waiting

    def _check(self) -> None:
        if self._blocks is not None:
            self._handler.require(Flag.DRAINING, self._blocks)

    def leave(self) -> None:
        """Count the call out, if it was ever in."""
        if self._blocks is not None:
            self._handler.gate.leave(self._handler._handler_index, self._blocks)
            self._blocks = None
