"""What a terminal can show, and text made to fit it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from planner.text import escape

MIN_WIDTH, MAX_PROSE = 40, 100
"""Narrower terminals get lines of 40 columns; sentences longer than 100 are hard to read."""
_UNIT = re.compile(r"(?<=\d) (?=%|(?:RPS|blocks?|holes?|servers?|s|min|h)\b)")
"""The space between a number and its unit, where no line is broken."""
_TIED = "\x00"
_IN_ASCII = str.maketrans({"…": "..", "–": "-", "→": "->", "×": "x", "−": "-"})


@dataclass(frozen=True)
class Look:
    """What the stream that is written to can show.

    Parameters
    ----------
    width
        Columns of a line.
    ascii
        Whether only ASCII can be shown.
    """

    width: int = 80
    ascii: bool = False

    @property
    def arrow(self) -> str:
        """Points from what is to what will be."""
        return "->" if self.ascii else "→"

    @property
    def dash(self) -> str:
        """Stands where there is no value."""
        return "-" if self.ascii else "–"

    @property
    def minus(self) -> str:
        """The sign of a negative number."""
        return "-" if self.ascii else "−"

    @property
    def ellipsis(self) -> str:
        """Stands for what was cut."""
        return ".." if self.ascii else "…"

    def safe(self, text: str, limit: int = 200) -> str:
        """Untrusted text made safe for a terminal, in characters that it can show."""
        shown = escape(text, limit=limit)
        return shown.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode() if self.ascii else shown

    def cut(self, text: str, width: int) -> str:
        """`text`, its end cut so that it takes at most `width` columns."""
        if cell_len(text) <= width:
            return text
        return set_cell_size(text, max(0, width - len(self.ellipsis))).rstrip() + self.ellipsis[:width]

    def cut_middle(self, text: str, width: int) -> str:
        """`text`, its middle cut so that both ends show and it takes at most `width` columns."""
        if cell_len(text) <= width:
            return text
        room = max(0, width - len(self.ellipsis))
        tail = room // 2
        end = set_cell_size(text[::-1], tail)[::-1].lstrip()
        return set_cell_size(text, room - tail).rstrip() + self.ellipsis[:width] + end

    def wrap(self, text: str, first: str = "", later: str = "", style: str = "") -> list[Text]:
        """`text` on as many lines as it needs, begun by `first` and `later`."""
        room = min(self.width, MAX_PROSE)
        lines: list[str] = []
        line, begun = first, False
        for word in _UNIT.sub(_TIED, text).split():
            while word:
                joined = f"{line} {word}" if begun else line + word
                if _width(joined) <= room:
                    line, word, begun = joined, "", True
                elif begun:
                    lines.append(line)
                    line, begun = later, False
                else:
                    # A word longer than a line, such as a path: broken where the line ends.
                    head = _beginning(word, room - _width(line))
                    lines.append(line + head)
                    line, word = later, word[len(head) :]
        if begun or not lines:
            lines.append(line)
        return [Text(shown.replace(_TIED, " ").rstrip(), style=style) for shown in lines]


def look_of(stream: TextIO, width: int, ascii_only: bool) -> Look:
    """What `stream` can show: ASCII where asked for, or where its encoding cannot do better."""
    try:
        "▁█×→–…−".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        ascii_only = True
    return Look(max(width, MIN_WIDTH), ascii_only)


def _width(text: str) -> int:
    return cell_len(text.replace(_TIED, " "))


def _beginning(word: str, width: int) -> str:
    """The longest beginning of `word` that takes at most `width` columns, one character at least."""
    taken = 1
    while taken < len(word) and _width(word[: taken + 1]) <= width:
        taken += 1
    return word[:taken]
