"""The line that says how far a search is: seen on a terminal, gone afterwards, nowhere else."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import pyte
import pytest

from cli.progress import ProgressLine, progress_text
from solver.problem import Progress

FAR = Progress("objective", 3.21, 2863.96, 2901.3)


@dataclass
class Terminal:
    """A pseudo-terminal whose screen can be looked at."""

    stream: TextIO
    master: int
    screen: pyte.Screen

    def written(self) -> bytes:
        """What has been written since the last look; it is shown on the screen."""
        os.set_blocking(self.master, False)
        try:
            data = os.read(self.master, 65536)
        except BlockingIOError:
            return b""
        pyte.ByteStream(self.screen).feed(data)
        return data


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[80, 40])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, request.param, 0, 0))
    with open(slave, "w", encoding="utf-8") as stream:
        yield Terminal(stream, master, pyte.Screen(request.param, 24))
    os.close(master)


def test_nothing_at_first(terminal: Terminal) -> None:
    clock = Clock()
    line = ProgressLine(terminal.stream, clock=clock)
    clock.now = 0.4
    line(FAR)
    line.erase()
    assert terminal.written() == b""


def test_one_line_a_few_times_a_second_and_gone_in_the_end(terminal: Terminal) -> None:
    clock = Clock()
    line = ProgressLine(terminal.stream, clock=clock)
    drawn = 0
    for tenth in range(100):
        clock.now = tenth / 10
        line(FAR)
        drawn += bool(terminal.written())
    assert 20 <= drawn <= 40
    first, *rest = terminal.screen.display
    assert first.startswith("searching 3.2 s  objective")
    assert not "".join(rest).strip()
    line.erase()
    terminal.written()
    assert not "".join(terminal.screen.display).strip()
    assert terminal.screen.cursor.x == 0


def test_nothing_where_nobody_looks(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    pipe = io.StringIO()
    monkeypatch.setenv("TERM", "dumb")
    for line in (ProgressLine(pipe, clock=clock), ProgressLine(terminal.stream, clock=clock)):
        clock.now += 5
        line(FAR)
        line.erase()
    monkeypatch.setenv("TERM", "xterm")
    line = ProgressLine(terminal.stream, quiet=True, clock=clock)
    clock.now += 5
    line(FAR)
    line.erase()
    assert pipe.getvalue() == ""
    assert terminal.written() == b""


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (FAR, "searching 3.2 s  objective  best 2863.96 RPS  bound 2901.30 RPS  gap 1.3 %"),
        (Progress("objective", 0.5, None, None), "searching 0.5 s  objective"),
        (Progress("objective", 0.5, 0.0, 0.0), "searching 0.5 s  objective  best 0.00 RPS  bound 0.00 RPS"),
        (Progress("loads", 12.0, 20.0, 10.0), "searching 12.0 s  loads  best 20  bound 10"),
        (Progress("missing_replicas", 1.0, 3.0, None), "searching 1.0 s  missing replicas  best 3"),
    ],
)
def test_what_it_says(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text
