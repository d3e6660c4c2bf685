"""A plan's file, read back for publishing: exactly what was planned, or one line that says why not."""

from __future__ import annotations

import os
from pathlib import Path

from planner.errors import InputInvalid, InputUnreadable
from planner.fields import Malformed
from planner.files import read_bounded
from planner.published import PublishedPlan, read_plan
from planner.recheck import recheck
from planner.strict_json import NotStrictJson, parse_strict
from planner.text import escape

__all__ = ["MAX_BYTES", "PublishedPlan", "load_plan"]

MAX_BYTES = 32 * 2**20
"""The most that is read of a file: a plan of a thousand servers, with explanations, has about one MiB."""
MAX_VALUES = 5_000_000

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load_plan(path: str | os.PathLike[str], use: str = "to publish") -> PublishedPlan:
    """Read the file that ``plan-swarm --json`` or ``--out`` wrote.

    Parameters
    ----------
    use
        What it is read for, as messages say it.

    Raises
    ------
    InputUnreadable
        If it cannot be read, is too large, or is not JSON (with one meaning, see `planner.strict_json`).
    InputInvalid
        If it is JSON of another kind, contradicts itself, or was changed since it was made; fields that no plan has,
        and figures that do not follow from the others, are named.
    """
    name = escape(os.fspath(path))
    wanted = "the file that plan-swarm --json wrote"
    # A plan's file is named: "-" is a file of that name here, not standard input.
    data = read_bounded(Path(path), name, MAX_BYTES, wanted, "the most that a plan may have").removeprefix(
        _BYTE_ORDER_MARK
    )
    if not data.strip():
        raise InputUnreadable(f"{name} is empty; give the file that plan-swarm --json wrote")
    try:
        document = parse_strict(data, MAX_VALUES)
    except NotStrictJson as error:
        raise InputUnreadable(f"{name}: {error}; was it cut short or edited? plan again") from None
    try:
        plan = read_plan(document)
        recheck(plan, document)
        return plan
    except Malformed as error:
        raise InputInvalid(f"{name} is not a plan {use}: {error}") from None
