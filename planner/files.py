"""Bytes of an input, never more than a limit, or one line that says why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from planner.errors import InputUnreadable
from planner.text import reason_of

PIECE = 2**20


def read_bounded(source: str | os.PathLike[str], name: str, limit: int, wanted: str, too_large: str) -> bytes:
    """All bytes of a file, or of standard input where `source` is ``"-"``.

    Parameters
    ----------
    name
        What errors call the source.
    limit
        The most bytes that it may have; no more than one over it is ever read.
    wanted, too_large
        What errors say is to be given, and of a source over the limit.

    Raises
    ------
    InputUnreadable
        If it is missing, a directory, not readable, or over the limit.
    """
    try:
        if source == "-":
            data = _read(sys.stdin.buffer, limit + 1)
        else:
            with Path(source).open("rb") as file:
                data = _read(file, limit + 1)
    except FileNotFoundError:
        raise InputUnreadable(f"{name} does not exist; give {wanted}") from None
    except IsADirectoryError:
        raise InputUnreadable(f"{name} is a directory; name a file in it") from None
    except PermissionError:
        raise InputUnreadable(f"{name} may not be read by this user; change its permissions") from None
    except (OSError, ValueError, AttributeError) as error:  # a NUL in the path; a standard input that is closed
        raise InputUnreadable(f"{name} cannot be read: {reason_of(error)}") from error
    if len(data) > limit:
        raise InputUnreadable(f"{name} has over {limit >> 20} MiB, {too_large}")
    return data


def _read(stream: BinaryIO, most: int) -> bytes:
    # In pieces, because one read() of the limit would reserve all of it for the smallest file.
    pieces: list[bytes] = []
    while most > 0 and (piece := stream.read(min(most, PIECE))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
