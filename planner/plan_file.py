"""A plan's file, read back for publishing: exactly what was planned, or one line that says why not."""

from __future__ import annotations

import os
from pathlib import Path

from planner.errors import InputInvalid, InputUnreadable
from planner.fields import Malformed
from planner.published import PublishedPlan, read_plan
from planner.strict_json import NotStrictJson, parse_strict
from planner.text import escape

__all__ = ["MAX_BYTES", "PublishedPlan", "load_plan"]

MAX_BYTES = 32 * 2**20
"""The most that is read of a file: a plan of a thousand servers, with explanations, has about one MiB."""
MAX_VALUES = 5_000_000

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load_plan(path: str | os.PathLike[str]) -> PublishedPlan:
    """Read the file that ``plan-swarm --json`` or ``--out`` wrote.

    Raises
    ------
    InputUnreadable
        If it cannot be read, is too large, or is not JSON (with one meaning, see `planner.strict_json`).
    InputInvalid
        If it is JSON of another kind, contradicts itself, or was changed since it was made.
    """
    name = escape(os.fspath(path))
    data = _read(path, name).removeprefix(_BYTE_ORDER_MARK)
    if not data.strip():
        raise InputUnreadable(f"{name} is empty; give the file that plan-swarm --json wrote")
    try:
        document = parse_strict(data, MAX_VALUES)
    except NotStrictJson as error:
        raise InputUnreadable(f"{name}: {error}; was it cut short or edited? plan again") from None
    try:
        return read_plan(document)
    except Malformed as error:
        raise InputInvalid(f"{name} is not a plan to publish: {error}") from None


def _read(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            pieces: list[bytes] = []
            left = MAX_BYTES + 1
            while left > 0 and (piece := file.read(min(left, 2**20))):
                pieces.append(piece)
                left -= len(piece)
    except FileNotFoundError:
        raise InputUnreadable(f"{name} does not exist; give the file that plan-swarm --json wrote") from None
    except IsADirectoryError:
        raise InputUnreadable(f"{name} is a directory; name a file in it") from None
    except PermissionError:
        raise InputUnreadable(f"{name} may not be read by this user; change its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else escape(str(error))
        raise InputUnreadable(f"{name} cannot be read: {reason}") from error
    if left <= 0:
        raise InputUnreadable(f"{name} has over {MAX_BYTES >> 20} MiB, the most that a plan may have")
    return b"".join(pieces)
