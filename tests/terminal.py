"""A terminal of 80 columns with a real bash in it: a test pastes into it, and reads off it what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pyte

COLUMNS, LINES = 80, 300
CTRL_C = "\x03"


class Terminal:
    """What is typed is not echoed and there is no prompt, so that the screen holds only what commands print.

    Parameters
    ----------
    folder
        Where the shell starts.
    variables
        Its whole environment, beside what makes it a terminal.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.pid, self._stream = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                looks = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "PS1": "", "HISTFILE": ""}
                shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
                os.execvpe("bash", shell, {**variables, **looks})  # noqa: S606
            finally:
                os._exit(127)
        fcntl.ioctl(self._stream, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        modes = termios.tcgetattr(self._stream)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self._stream, termios.TCSANOW, modes)
        # Wider than what it tells: a line too long for it stays one line, as in what one copies from a terminal.
        self._screen = pyte.Screen(4 * COLUMNS, LINES)
        self._feed = pyte.ByteStream(self._screen).feed
        self.ended = False

    def paste(self, text: str) -> None:
        """Type all of it at once."""
        os.write(self._stream, text.encode())

    def read(self) -> str:
        """What stands on the screen, without what is blank at its end."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n") + "\n"

    def until(self, text: str | None, seconds: float) -> str:
        """Wait for a text, or with None for the shell's end, and give what stands on the screen by then."""
        deadline = time.monotonic() + seconds
        while not (self.ended if text is None else text in self.read()):
            left = deadline - time.monotonic()
            assert left > 0, f"{text or 'the end'} did not come in {seconds:g} s:\n{self.read()}"
            assert not self.ended, f"it ended without {text}:\n{self.read()}"
            if select.select([self._stream], [], [], left)[0]:
                try:
                    data = os.read(self._stream, 65536)
                except OSError:  # nobody has the other end any more
                    data = b""
                self.ended = not data
                self._feed(data)
        return self.read()

    def close(self) -> None:
        """Hang up, and bury the shell; what it has started is the caller's to look for."""
        os.close(self._stream)
        os.waitpid(self.pid, 0)
