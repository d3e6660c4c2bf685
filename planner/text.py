"""Untrusted text and values, made safe to show on one line of any terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

ELLIPSIS = "…"

_UNSEEN = frozenset(
    map(
        chr,
        chain(
            (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            range(0x180B, 0x1810),
            range(0xFE00, 0xFE10),
            range(0xE0100, 0xE01F0),
        ),
    )
)
"""Fillers and variation selectors: `str.isprintable` lets them pass, yet nothing of them is seen."""


def escape(text: str, limit: int = 200) -> str:
    r"""`text` on one line, without anything that a terminal acts on or that a reader cannot see.

    Control and format characters (terminal escapes, bidirectional overrides, zero-width ones), line breaks,
    spaces other than the plain one, unassigned characters and lone surrogates are shown as ``\x1b``, ``\u202e``
    or ``\U000e0001``.

    Parameters
    ----------
    text
        Any text, however long.
    limit
        The most characters of the result, at least 1; a longer one is cut, never inside an escape, and ends
        in an ellipsis.
    """
    pieces: list[str] = []
    length = room = 0
    for character in text:
        piece = character if _visible(character) else _code(character)
        length += len(piece)
        if length > limit:
            return "".join(pieces[:room]) + ELLIPSIS
        pieces.append(piece)
        if length < limit:
            room = len(pieces)
    return "".join(pieces)


def is_plain(text: str) -> bool:
    """Whether `text` can be shown as it is and is one word: nothing to escape, and no space."""
    return text.isprintable() and " " not in text and _UNSEEN.isdisjoint(text)


def show(value: object) -> str:
    """Name any value in a message, short and safe; containers are only named, as they may be huge or deep."""
    if isinstance(value, str):
        return f"'{escape(value, 40)}'"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else "a huge integer"
    if isinstance(value, float):
        return str(value)
    return f"a value of type {type(value).__name__}"


def reason_of(error: Exception) -> str:
    """Why a file could not be used: what the system calls it, where it has a word for it."""
    return error.strerror if isinstance(error, OSError) and error.strerror else escape(str(error))


def some(items: Sequence[object], most: int = 5) -> str:
    """List the first `most` of `items`, and say how many more there are: ``3, 4, 5 and 12 more``."""
    text = ", ".join(escape(str(item), 128) for item in items[:most])
    return text if len(items) <= most else f"{text} and {len(items) - most:,} more"


def _visible(character: str) -> bool:
    return character.isprintable() and character not in _UNSEEN


def _code(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
