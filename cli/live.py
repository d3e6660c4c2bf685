"""What all commands that go to the living swarm share: which peers, the progress, how an unreachable swarm is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from cli.interrupt import Ending, cleaning_up
from cli.progress import ProgressLine
from cli.streams import to_stderr

if TYPE_CHECKING:
    from planner.live import Progress, Reading

NEEDED = ("hivemind", "cryptography", "msgpack")
PUBLIC = "Petals' public bootstrap peers"
SLICE = 0.5
"""Seconds of sleep after which a command looks whether it was told to end."""

Result = TypeVar("Result")


def check_installed(*names: str) -> None:
    """See whether what the living swarm needs is there, before anything is asked of it.

    Raises
    ------
    PackageUnusable
        If something is missing.
    """
    missing = [name for name in names or NEEDED if not _installed(name)]
    if missing:
        from planner.errors import PackageUnusable

        raise PackageUnusable(f"this needs {' and '.join(missing)}; run: pip install {' '.join(missing)}")


def peers_of(given: Sequence[str]) -> tuple[str, ...]:
    """The initial peers that were given, else those of Petals' public swarm."""
    from planner.node import PETALS_INITIAL_PEERS

    peers = [peer.strip() for text in given for peer in text.replace(",", " ").split()]
    return tuple(dict.fromkeys(peers)) or PETALS_INITIAL_PEERS


@dataclass(frozen=True)
class Way:
    """The way to a swarm: the peers to start from, and what ends the command if it was told to."""

    peers: tuple[str, ...]
    ending: Ending

    def pause(self, seconds: float) -> None:
        """Sleep, but end the command if it was told to.

        In slices: a signal that comes just as Python goes to sleep is not seen until it wakes.
        """
        ends = time.monotonic() + seconds
        while True:
            self.ending.leave_if_told()
            left = ends - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(SLICE, left))


@contextmanager
def swarm(given: Sequence[str], timeout: float) -> Iterator[Way]:
    """Give the way to the swarm; while it lasts, signals end the process in order.

    Raises
    ------
    SwarmUnreachable
        As it comes, saying whose peers they were where none were named.
    """
    check_installed()
    from planner.errors import PolicyInvalid, SwarmUnreachable

    if not 0 < timeout <= 3600:
        raise PolicyInvalid(f"--timeout must be above 0 and at most 3600 seconds, not {timeout:g}")
    peers = peers_of(given)
    with cleaning_up() as ending:
        try:
            yield Way(peers, ending)
        except SwarmUnreachable as error:
            if any(text.strip(" ,") for text in given):
                raise
            raise SwarmUnreachable(f"{error} (no --initial-peers given: these are {PUBLIC})") from error


def read(prefix: str, given: Sequence[str], num_blocks: int | None, timeout: float, quiet: bool) -> Reading:
    """Read a swarm, showing how far it is."""
    with swarm(given, timeout) as way, progress(quiet, timeout) as report:
        from planner.live import read_live

        return read_live(prefix, way.peers, num_blocks, timeout, report)


@contextmanager
def progress(quiet: bool, timeout: float) -> Iterator[Callable[[Progress], None]]:
    """Draw a reading's progress on standard error, on a terminal only; the line is gone at the end.

    The first line is drawn at once: importing hivemind and joining the swarm take seconds in which nothing is read.
    """
    line = ProgressLine(sys.stderr, quiet=quiet)

    def report(step: Progress) -> None:
        line.draw(progress_text(step))

    try:
        line.draw(f"joining the swarm, for at most {timeout:g} s")
        yield report
    finally:
        line.erase()


def progress_text(step: Progress) -> str:
    """How far a reading is, in one line of plain ASCII."""
    asked = "looking for the model" if step.stage == "models" else f"{step.answered} of {step.asked} keys answered"
    return f"reading {step.seconds:.1f} s  {asked}  try {step.tries}"


def tell(what: str, given: Sequence[str], quiet: bool) -> None:
    """Say on standard error what was read from where."""
    if not quiet:
        from planner.node import PETALS_INITIAL_PEERS

        peers = peers_of(given)
        where = PUBLIC if peers == PETALS_INITIAL_PEERS else f"{peers[0]}{' and others' if len(peers) > 1 else ''}"
        say(f"{what}; read from {where}")


def say(message: str) -> None:
    """One line on standard error, beside what a command prints on standard output."""
    from planner.text import escape

    to_stderr(f"{escape(' '.join(message.split()), limit=4000)}\n")


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # it stands in sys.modules as something that is no module
        return False
