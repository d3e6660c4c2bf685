"""One line on standard error that says how far a search is, and that leaves nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from cli import words
from solver.problem import Progress

PATIENCE = 0.5
"""Seconds for which nothing is shown: a search that ends sooner needs no line."""
INTERVAL = 0.25
"""Seconds between two drawings: more often flickers and tells nobody more."""
THROUGHPUT_STAGES = frozenset({"objective", "weakest"})
"""Stages whose levels are RPS; those of the others are numbers of blocks, servers or places."""
ERASE = "\r\x1b[K"


class ProgressLine:
    """Draws a search's progress on a terminal; on anything else it does nothing.

    Parameters
    ----------
    stream
        Where to draw, standard error as a rule.
    quiet
        True draws nothing at all.
    clock
        Seconds from any origin.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._drawing = not quiet and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = self._drawn = clock()
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """Take what the search says, and draw it if it is time to."""
        now = self._clock()
        if not self._drawing or now - self._began < PATIENCE or (self._shown and now - self._drawn < INTERVAL):
            return
        self.draw(progress_text(progress))

    def draw(self, text: str) -> None:
        """Draw a line now, in place of the last one."""
        if self._drawing:
            self._drawn, self._shown = self._clock(), True
            # Cut to the width: a line that wraps cannot be erased.
            self._write(ERASE + text[: _width(self._stream) - 1])

    def erase(self) -> None:
        """Take the line away, if there is one."""
        if self._shown:
            self._shown = False
            self._write(ERASE)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # A terminal that has gone is no reason to lose the plan.
            self._drawing = False


def progress_text(progress: Progress) -> str:
    """A search's progress in one line of plain ASCII."""
    throughput = progress.stage in THROUGHPUT_STAGES
    parts = [f"searching {progress.seconds:.1f} s", progress.stage.replace("_", " ")]
    for name, value in (("best", progress.incumbent), ("bound", progress.bound)):
        if value is not None:
            parts.append(f"{name} {words.rps(value)} RPS" if throughput else f"{name} {value:.0f}")
    if throughput and progress.incumbent is not None and progress.bound:
        parts.append(f"gap {words.percent((progress.bound - progress.incumbent) / progress.bound)}")
    return "  ".join(parts)


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
