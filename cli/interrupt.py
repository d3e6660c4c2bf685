"""Ctrl-C and termination: the first Ctrl-C stops a search, the second ends, and no file is left half-written."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from cli.exitcodes import ExitCode

STOPPING = "stopping: the best plan so far follows; Ctrl-C again to give up\n"


@contextmanager
def noting_interrupts() -> Iterator[Callable[[], bool]]:
    """While it lasts, Ctrl-C raises `KeyboardInterrupt`, as it does by default; what is given says whether one came.

    Raised while a module is loading, it may come out as another error: a compiled one makes an ImportError of it.
    """
    told: list[int] = []

    def on_interrupt(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    with _handling({signal.SIGINT: on_interrupt}):
        yield lambda: bool(told)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """While it lasts, Ctrl-C ends the process at once: for loading modules, which may drop an exception altogether."""
    with _handling({signal.SIGINT: lambda _signal, _frame: leave_interrupted()}):
        yield


@contextmanager
def search_stopper() -> Iterator[threading.Event]:
    """While it lasts, the first Ctrl-C sets the event that it gives, and the second ends the process at once."""
    stop = threading.Event()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            leave_interrupted()
        stop.set()
        _say(STOPPING)

    with _handling({signal.SIGINT: on_interrupt}):
        yield stop


@contextmanager
def shielded() -> Iterator[None]:
    """While it lasts, signals that would end the process wait, so that what is being written is written whole."""
    waiting: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        waiting.append(number)

    with _handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), on_signal)):
        yield
    for number in waiting[:1]:
        signal.raise_signal(number)


class Ending:
    """What ends a command by an exception once a signal has told it to; `cleaning_up` gives it."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._note: str | None = None

    def leave_if_told(self) -> None:
        """Raise what ends the command, if it was told to end."""
        if self._signals and self._signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signals:
            raise SystemExit(128 + self._signals[0])

    def hold(self, note: str) -> None:
        """From now on a first signal waits for `let_go`, and makes `note` be said; a second ends the command."""
        self._note = note

    @property
    def held(self) -> bool:
        """Whether `hold` is in force."""
        return self._note is not None

    def let_go(self) -> None:
        """End the command if it was told to since `hold`; from now on a first signal does so again."""
        self._note = None
        self.leave_if_told()

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal."""
        self._signals.append(number)
        # hivemind's calls that this ends before they begin would be reported at the very end.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        if self._note is not None and len(self._signals) == 1:
            _say(f"{self._note}\n")
        else:
            self.leave_if_told()


@contextmanager
def cleaning_up() -> Iterator[Ending]:
    """While it lasts, signals end the process by an exception, so that what was started is ended first.

    Python drops an exception that is raised where nobody can catch it, as in a finalizer that happens to run, and a
    module that is loading makes another one of it. So `Ending.leave_if_told` raises it once more; it is called at the
    end anyway, in place of any other error, and is to be called in every loop, as `cli.live.Way.pause` does.
    """
    ending = Ending()
    with _handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ending.receive)):
        try:
            yield ending
        except BaseException:
            if not ending.held:  # else what came of it is more than that somebody wanted it to end
                ending.leave_if_told()
            raise
        ending.leave_if_told()


def leave_interrupted() -> NoReturn:
    """End the process now: a search in another thread, or a pool of CP-SAT's, would keep it for a while."""
    _say("\n" if sys.stderr.isatty() else "")
    os._exit(ExitCode.INTERRUPTED)


def _say(text: str) -> None:
    # Not through sys.stderr: a handler may run in the middle of a write to it, and that must not be re-entered.
    erase = "\r\x1b[K" if text.strip() and sys.stderr.isatty() else ""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), (erase + text).encode("ascii"))


@contextmanager
def _handling(handlers: dict[signal.Signals, object]) -> Iterator[None]:
    """Set the handlers, and set back what was there; an ignored signal (``nohup``) stays ignored."""
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous[number] = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
