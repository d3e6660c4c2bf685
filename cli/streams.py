"""The standard streams, as whoever started the command has left them: open, closed, or leading nowhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from planner.errors import OutputUnwritable


def stand_in() -> frozenset[str]:
    """Open on nothing what was closed (``>&-``), and return its names: ``"stdin"``, ``"stdout"``, ``"stderr"``.

    Python has None in place of such a stream, and the next file that is opened would get its number: a key, or a
    daemon's log, where messages go.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        number = ("stdin", "stdout", "stderr").index(name)
        opened = os.open(os.devnull, os.O_RDONLY if name == "stdin" else os.O_WRONLY)
        # Those before it are open by now, so it has got this very number, unless something else has.
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
    return frozenset(closed)


def to_stderr(text: str) -> None:
    """Write to standard error; what cannot be written is lost, since there is nowhere left to say so."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def unwritable(error: OSError) -> OutputUnwritable:
    """The error of a standard output that cannot be written; what it still holds is forgotten."""
    from planner.errors import OutputUnwritable

    abandon(sys.stdout)
    return OutputUnwritable(f"cannot write standard output: {error.strerror or error}; free some room")


def abandon(stream: TextIO) -> None:
    """Forget what a stream still holds, so that Python does not try to write it when it ends."""
    with open(os.devnull, "w") as devnull:
        os.dup2(devnull.fileno(), stream.fileno())
