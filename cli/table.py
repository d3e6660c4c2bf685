"""Columns side by side without rules between them: alignment is enough to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from cli.look import Look

GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    title
        Its heading.
    cells
        One text a row.
    right
        Whether it is set flush right, as numbers are.
    shrinks_to
        The least width to which it may be cut; None: never.
    middle
        Whether it is cut in the middle instead of at the end.
    drop
        The order in which columns are left out where they don't all fit, highest first; 0: never.
    style
        How its cells look.
    """

    title: str
    cells: Sequence[str]
    right: bool = False
    shrinks_to: int | None = None
    middle: bool = False
    drop: int = 0
    style: str = ""

    @property
    def width(self) -> int:
        """Columns that it takes uncut."""
        return max(cell_len(self.title), *map(cell_len, self.cells), 0)

    @property
    def least(self) -> int:
        """Columns that it needs at least."""
        return self.width if self.shrinks_to is None else min(self.width, self.shrinks_to)


def render(columns: Iterable[Column], look: Look) -> list[Text]:
    """The columns, headings first; what does not fit the width is cut, then left out."""
    kept = list(columns)
    while (last := max(kept, key=lambda column: column.drop)).drop and _total(c.least for c in kept) > look.width:
        kept.remove(last)
    widths = [column.width for column in kept]
    # Names are cut before peer ids: a row is known by its peer id.
    for index in sorted(range(len(kept)), key=lambda i: kept[i].middle):
        over = max(0, _total(widths) - look.width)
        widths[index] = max(kept[index].least, widths[index] - over)
    rows = zip(*(column.cells for column in kept), strict=True)
    lines = [_row([c.title for c in kept], kept, widths, look, heading=True)]
    return lines + [_row(cells, kept, widths, look) for cells in rows]


def _total(widths: Iterable[int]) -> int:
    every = list(widths)
    return sum(every) + GAP * (len(every) - 1)


def _row(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], look: Look, heading: bool = False
) -> Text:
    line = Text()
    for index, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        shown = look.cut_middle(cell, width) if column.middle else look.cut(cell, width)
        padding = " " * (width - cell_len(shown))
        line.append(" " * GAP * (index > 0) + (padding if column.right else ""))
        line.append(shown, style="bold" if heading else column.style)
        line.append("" if column.right else padding)
    line.rstrip()
    return line
