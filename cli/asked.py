"""What was asked on the command line, and how it becomes a `Policy`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from planner.policy import MinGain, Policy
    from solver.problem import Span

_SPAN = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_GAIN = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)\s*(%|rps)?", re.IGNORECASE)


@dataclass(frozen=True)
class Asked:
    """The command line, parsed but not yet understood.

    `policy` holds the fields of a `Policy` that were given as numbers or words; what needs more reading is in
    fields of its own.
    """

    dump: str | None
    prefix: str | None = None
    initial_peers: Sequence[str] = ()
    timeout: float = 30.0
    num_blocks: int | None = None
    previous: Path | None = None
    pins: Sequence[str] = ()
    spans: Sequence[str] = ()
    cordons: Sequence[str] = ()
    drains: Sequence[str] = ()
    min_gain: str | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    json: bool = False
    explain: bool = False
    detailed_exitcode: bool = False
    ascii: bool = False
    quiet: bool = False


def source_of(context: Any, name: str) -> str | None:
    """Where the value of a parameter comes from, as the parser calls it: ``"COMMANDLINE"``, ``"DEFAULT_MAP"``."""
    return getattr(context.get_parameter_source(name), "name", None)


def prefix_text(text: str) -> str:
    """Read a model's DHT prefix from the command line."""
    if not text.strip():
        raise typer.BadParameter("is empty; plan-swarm models lists what there is")
    return text


def whole_number(text: str) -> int:
    """Read an integer from the command line."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def block_count(text: str) -> int:
    """Read a model's number of blocks from the command line."""
    from planner.state import MAX_BLOCKS

    blocks = whole_number(text)
    if not 1 <= blocks <= MAX_BLOCKS:
        raise typer.BadParameter(f"must be from 1 to {MAX_BLOCKS:,}, not {blocks}")
    return blocks


def number(text: str) -> float:
    """Read a number from the command line; no option means anything by infinity."""
    try:
        value = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise typer.BadParameter(f"{text!r} is not a finite number")
    return value


def policy_of(asked: Asked) -> Policy:
    """The policy that was asked for.

    Raises
    ------
    PolicyInvalid
        If a value cannot be read or is out of its range.
    """
    from planner.errors import PolicyInvalid
    from planner.policy import Policy

    fields = dict(asked.policy)
    fields["pins"] = tuple(peer_and_span("--pin", text) for text in asked.pins)
    spans = []
    for text in asked.spans:
        peer, span = peer_and_span("--span", text)
        if span is None:
            raise PolicyInvalid(f"--span {text} says no blocks; write PEER=START:END, such as {peer}=0:10")
        spans.append((peer, span))
    fields["spans"] = tuple(spans)
    fields["cordons"], fields["drains"] = tuple(asked.cordons), tuple(asked.drains)
    if asked.min_gain is not None:
        fields["min_gain"] = min_gain(asked.min_gain)
    return Policy(**fields)


def peer_and_span(option: str, text: str) -> tuple[str, Span | None]:
    """Read ``PEER`` or ``PEER=START:END``."""
    from planner.errors import PolicyInvalid
    from solver.problem import Span

    peer, separator, blocks = text.rpartition("=")
    if not separator:
        peer, blocks = text, ""
    if not peer:
        raise PolicyInvalid(f"{option} {text!r} names no server; write PEER=START:END with a part of its peer id")
    if not separator:
        return peer, None
    found = _SPAN.fullmatch(blocks)
    if found is None:
        raise PolicyInvalid(f"{option} {text}: {blocks!r} is not a span; write START:END, such as 0:10")
    return peer, Span(int(found[1]), int(found[2]))


def min_gain(text: str) -> MinGain:
    """Read ``50`` or ``50rps`` (RPS), or ``2%`` (a share of the objective of staying)."""
    from planner.errors import PolicyInvalid
    from planner.policy import MinGain

    found = _GAIN.fullmatch(text.strip())
    if found is None:
        raise PolicyInvalid(f"--min-gain {text!r} is not a gain; write RPS, such as 50, or a share, such as 2%")
    gain = float(found[1])
    return MinGain(share=gain / 100) if found[2] == "%" else MinGain(rps=gain)
