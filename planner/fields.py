"""Checks of single values that came from elsewhere; what fails them raises `Malformed` with one line."""

from __future__ import annotations

from typing import Any, TypeGuard

from planner.state import MAX_BLOCKS
from planner.text import is_plain, show
from solver.problem import Span

MAX_TEXT = 16_384
MAX_PEER_ID = 128


class Malformed(ValueError):
    """A value is not what it should be; whoever asked for the check turns it into an error or a refusal."""


def mapping(value: object, name: str) -> dict[str, Any]:
    """`value` itself, where it is a map."""
    if not isinstance(value, dict):
        raise Malformed(f"{name} is {show(value)}, not a map")
    return value


def sequence(value: object, name: str) -> list[Any]:
    """`value` itself, where it is a list."""
    if not isinstance(value, list):
        raise Malformed(f"{name} is {show(value)}, not a list")
    return value


def number(value: object, name: str, most: float, least: float = 0.0) -> float:
    """`value` as a float, where it is a number from `least` to `most`."""
    # Compared before it is converted: an integer may be too large for a float, and NaN fails any comparison.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Malformed(f"{name} {show(value)} is not a number from {least:.15g} to {most:.15g}")
    return float(value) + 0.0  # no negative zero


def integer(value: object, name: str, most: int, least: int = 0) -> int:
    """`value` itself, where it is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(f"{name} {show(value)} is not an integer from {least} to {most}")
    return value


def flag(value: object, name: str) -> bool:
    """`value` itself, where it is true or false."""
    if not isinstance(value, bool):
        raise Malformed(f"{name} is {show(value)}, not true or false")
    return value


def text(value: object, name: str, most: int = MAX_TEXT, least: int = 1) -> str:
    """`value` itself, where it is text of `least` to `most` characters."""
    if not isinstance(value, str) or len(value) < least:
        raise Malformed(f"{name} is {show(value)}, not text")
    if len(value) > most:
        raise Malformed(f"{name} is longer than {most:,} characters")
    return value


def optional_text(value: object, name: str) -> str | None:
    """`value` itself, where it is null or text, which may be empty."""
    return None if value is None else text(value, name, least=0)


def hexadecimal(value: object, name: str, length: int) -> str:
    """`value` itself, where it is `length` lower-case hexadecimal digits."""
    if not isinstance(value, str) or len(value) != length or not set(value) <= set("0123456789abcdef"):
        raise Malformed(f"{name} is {show(value)}, not {length} hexadecimal digits")
    return value


def is_peer_id(value: object) -> TypeGuard[str]:
    """Whether `value` may stand for a peer: one printable word of at most `MAX_PEER_ID` characters."""
    return isinstance(value, str) and 0 < len(value) <= MAX_PEER_ID and is_plain(value)


def peer(value: object, name: str) -> str:
    """`value` itself, where it may stand for a peer."""
    if not is_peer_id(value):
        raise Malformed(f"{name} {show(value)} is not a peer id")
    return value


def optional_span(value: object, name: str, num_blocks: int) -> Span | None:
    """The span that ``[start, end]`` means inside a model of `num_blocks`; None for null."""
    if value is None:
        return None
    bounds = sequence(value, name)
    if len(bounds) != 2:
        raise Malformed(f"{name} is not [start, end]")
    span = Span(integer(bounds[0], f"{name}'s start", MAX_BLOCKS), integer(bounds[1], f"{name}'s end", MAX_BLOCKS))
    if not span.start < span.end <= num_blocks:
        raise Malformed(f"{name} {span} is not a span inside the model's 0:{num_blocks}")
    return span
