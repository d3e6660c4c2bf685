"""JSON as signed documents are read: one meaning only, in bounded time and memory.

`json.loads` alone takes the last of two equal names, NaN, infinity and integers of any length. Two readers could
then take one signature for two plans.
"""

from __future__ import annotations

import json
import math
from typing import Any

from planner.text import show

MAX_VALUES = 500_000
"""JSON values that are parsed: each takes up to some hundred bytes of memory, whatever it takes in the text."""
MAX_DIGITS = 30
"""Digits of an integer; nothing in a plan has more than a time in milliseconds has."""


class NotStrictJson(ValueError):
    """The text is not JSON, or has several meanings; the message is one line."""


def parse_strict(data: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse UTF-8 JSON that names nothing twice and holds finite numbers only.

    Raises
    ------
    NotStrictJson
        If it is anything else, nests too deeply, or has over `max_values` values.
    """
    if data.count(b"[") + data.count(b"{") + data.count(b",") > max_values:
        raise NotStrictJson(f"it has over {max_values:,} JSON values")
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"line {error.lineno}, column {error.colno}: this is not JSON ({error.msg})") from None
    except RecursionError:
        raise NotStrictJson("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotStrictJson(f"an integer has over {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotStrictJson("a number is too large for a double")
    return value


def _constant(name: str) -> float:
    raise NotStrictJson(f"{name} is not a number in JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise NotStrictJson(f"the name {show(name)} stands twice in one object")
            names.add(name)
    return found
