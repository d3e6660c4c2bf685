"""An event loop for hivemind's client, which ends in order whatever ends it."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 2
"""Signals that the loop may still end in order after; whoever sends more gets out at once."""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` in an event loop of its own, without the complaints of hivemind's forgotten tasks.

    What a signal's handler raises meanwhile cancels `main`, and is raised here once the loop has ended.
    """
    results: list[Result] = []  # not that of the task: asyncio.run() makes the repr of that, twice
    raised: list[BaseException] = []
    running: list[tuple[Any, asyncio.Task[None]]] = []

    async def quiet() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        # A terminal sends Ctrl-C to its whole foreground group: p2pd would die of it while we still need it.
        loop.subprocess_exec = functools.partial(loop.subprocess_exec, start_new_session=True)
        task = asyncio.current_task()
        assert task is not None
        running.append((loop, task))
        if raised:
            task.cancel()
        try:
            results.append(await main)
        finally:
            running.clear()

    def cancel() -> None:
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)

    with _caught(raised, cancel):
        try:
            asyncio.run(quiet())
        except asyncio.CancelledError:
            if not raised:
                raise
    if raised:
        raise raised[0]
    return results[0]


@contextmanager
def _caught(raised: list[BaseException], cancel: Callable[[], None]) -> Iterator[None]:
    """While it lasts, keep what the handlers of signals raise, and cancel.

    Raised in the middle of the loop's own work it may take a step of some task with it, which then never ends.
    """
    previous: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            previous[number](number, frame)
        except BaseException as error:
            raised.append(error)
            if len(raised) > PATIENCE:
                raise
            cancel()

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                previous[number] = handler
                signal.signal(number, handle)
    try:
        yield
    finally:
        for own, handler in previous.items():
            signal.signal(own, handler)
