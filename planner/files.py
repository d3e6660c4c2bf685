"""Bytes of an input, never more than a limit, or one line that says why not."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from planner.errors import InputUnreadable
from planner.text import reason_of

PIECE = 2**20
_HANDED = re.compile(r"/dev/(stdin|null|fd/\d+)|/proc/(self|\d+)/fd/\d+")
"""Names of what whoever started this process has handed to it, as ``<(command)`` does, and of nothing at all."""


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
        If it is missing, a directory, a device, a pipe with a name, not readable, or over the limit.
    """
    try:
        if source == "-":
            data = _read(sys.stdin.buffer, limit + 1)
        else:
            with open_plain(source) as file:
                data = _read(file, limit + 1)
    except FileNotFoundError:
        raise InputUnreadable(f"{name} does not exist; give {wanted}") from None
    except IsADirectoryError:
        raise InputUnreadable(f"{name} is a directory; name a file in it") from None
    except PermissionError:
        raise InputUnreadable(f"{name} may not be read by this user; change its permissions") from None
    except NotPlain:
        raise InputUnreadable(f"{name} is not a plain file; give {wanted}") from None
    except (OSError, ValueError, AttributeError) as error:  # a NUL in the path; a standard input that is closed
        raise InputUnreadable(f"{name} cannot be read: {reason_of(error)}") from error
    if len(data) > limit:
        raise InputUnreadable(f"{name} has over {limit >> 20} MiB, {too_large}")
    return data


class NotPlain(Exception):
    """What was to be opened may have no content, or no end: a device, a socket, or a pipe with a name."""


@contextmanager
def open_plain(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a plain file for reading, or a pipe that was handed to this process; never wait for somebody to write.

    Raises
    ------
    NotPlain
        If it is anything else.
    OSError, ValueError
        As `open`.
    """
    # Opening a pipe waits for somebody to open its other end, without O_NONBLOCK; only then its kind is known.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode) and not stat.S_ISDIR(mode):
            if _HANDED.fullmatch(os.path.abspath(os.fspath(path))) is None:
                raise NotPlain(path)
            os.set_blocking(descriptor, True)
        with open(descriptor, "rb", closefd=False) as file:  # which refuses a directory
            yield file
    finally:
        os.close(descriptor)


def _read(stream: BinaryIO, most: int) -> bytes:
    # In pieces, because one read() of the limit would reserve all of it for the smallest file.
    pieces: list[bytes] = []
    while most > 0 and (piece := stream.read(min(most, PIECE))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
