"""What an operator asks of a plan: one frozen `Policy`, validated once."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields
from typing import Any, Literal

from planner.errors import PolicyInvalid
from solver.problem import Span

DEFAULT_HORIZON = 4 * 3600.0
"""Seconds over which the throughput lost to reloading is averaged."""
DEFAULT_SECONDS_PER_BLOCK = 28.0
"""Petals issue 389: about 7 s to load a block, 21 s to convert it."""
DEFAULT_SECONDS_PER_CACHED_BLOCK = 7.0
"""The same without the download's share, for a block that is in the server's disk cache."""
DEFAULT_TIME_LIMIT = 10.0

MIN_HORIZON, MAX_HORIZON = 1e-3, 1e12
MAX_SECONDS_PER_BLOCK = 1e7
"""With these no penalty overflows, however large the swarm."""
MAX_COUNT = 2**31 - 1
MAX_WORKERS = 1024

SEARCH_FIELDS = frozenset({"time_limit", "workers", "seed", "deterministic"})
"""Fields that say how to search, not what is wanted: they do not enter a plan's id."""


@dataclass(frozen=True)
class MinGain:
    """The least gain worth moving for: in RPS, or as a share of the objective of staying."""

    rps: float = 0.0
    share: float = 0.0

    def against(self, objective: float) -> float:
        """The least gain in RPS over a placement of this objective."""
        return max(self.rps, self.share * abs(objective))


@dataclass(frozen=True)
class Policy:
    """The operator's wishes.

    Parameters
    ----------
    pins
        Peers that must stay (None) or take the span given.
    cordons
        Peers that stay where they are.
    drains
        Peers that give up all their blocks.
    movable
        ``"all"`` servers, or only those with ``"agents"``; None: agents where there are any, else all.
    spans
        What the operator knows better than the reading: the true spans of peers.
    max_moves, max_loads
        At most so many moves, and blocks loaded, in the plan; what newcomers and pins need always passes.
    min_gain
        The least gain in the objective worth moving for. Closing a hole, or supplying a missing replica,
        always passes.
    min_replicas
        Wanted number of servers on each block.
    resize
        Whether servers may take spans of other lengths than the present one, up to their capacity.
    min_span
        With `resize`, the least length that is chosen. The present length stays allowed, and where the capacity
        is less, so does the whole of that.
    max_hops
        At most so many servers on the shortest chain of spans that covers the model.
    horizon
        Seconds over which the throughput lost to reloading is averaged.
    seconds_per_block
        Seconds to load one block, for every server; None: what its agent measured, else 28 s.
    time_limit
        Seconds that the search may take.
    workers
        Threads of the search; None: the cores that this process may use.
    seed
        Seed of all that is random.
    deterministic
        Search by an amount of work instead of by the clock: the same input then gives the same plan on any machine,
        by one thread whatever `workers` says. `time_limit` is then that work, in seconds that a usual core takes.

    Notes
    -----
    In `pins`, `cordons`, `drains` and `spans` a peer may be any unambiguous part of a peer id;
    `planner.selection.resolve_policy` replaces it with the whole.

    Raises
    ------
    PolicyInvalid
        If a number is out of its range or a span is empty or reversed.
    """

    pins: tuple[tuple[str, Span | None], ...] = ()
    cordons: tuple[str, ...] = ()
    drains: tuple[str, ...] = ()
    movable: Literal["all", "agents"] | None = None
    spans: tuple[tuple[str, Span], ...] = ()
    max_moves: int | None = None
    max_loads: int | None = None
    min_gain: MinGain = MinGain()
    min_replicas: int = 0
    resize: bool = False
    min_span: int = 1
    max_hops: int | None = None
    horizon: float = DEFAULT_HORIZON
    seconds_per_block: float | None = None
    time_limit: float = DEFAULT_TIME_LIMIT
    workers: int | None = None
    seed: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        _check("horizon", self.horizon, MIN_HORIZON, MAX_HORIZON, "seconds")
        if not (math.isfinite(self.time_limit) and self.time_limit > 0):
            raise PolicyInvalid(f"time_limit must be a finite number above 0 (seconds), not {self.time_limit}")
        if self.seconds_per_block is not None:
            _check("seconds_per_block", self.seconds_per_block, 0.0, MAX_SECONDS_PER_BLOCK, "seconds")
        _check("min_gain", self.min_gain.rps, 0.0, sys.float_info.max, "RPS")
        _check("min_gain", self.min_gain.share, 0.0, sys.float_info.max, "share")
        for name, least, most in (
            ("max_moves", 0, MAX_COUNT),
            ("max_loads", 0, MAX_COUNT),
            ("min_replicas", 0, MAX_COUNT),
            ("min_span", 1, MAX_COUNT),
            ("max_hops", 1, MAX_COUNT),
            ("workers", 1, MAX_WORKERS),
            ("seed", 0, MAX_COUNT),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise PolicyInvalid(f"{name} must be from {least} to {most}, not {value}")
        if self.min_span > 1 and not self.resize:
            raise PolicyInvalid(f"min_span {self.min_span} goes with --resize: without it servers keep their lengths")
        if self.movable not in (None, "all", "agents"):
            raise PolicyInvalid(f"movable must be 'all' or 'agents', not {self.movable!r}")
        for peer, span in (*self.pins, *self.spans):
            if span is not None and not 0 <= span.start < span.end:
                raise PolicyInvalid(
                    f"the span {span} given for {peer} is empty or reversed; write START:END, START < END"
                )

    def to_json(self) -> dict[str, Any]:
        """All fields as plain JSON values, spans as ``[start, end]``."""
        document: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        document["pins"] = [[peer, _json_span(span)] for peer, span in self.pins]
        document["spans"] = [[peer, _json_span(span)] for peer, span in self.spans]
        document["cordons"], document["drains"] = list(self.cordons), list(self.drains)
        document["min_gain"] = {"rps": float(self.min_gain.rps), "share": float(self.min_gain.share)}
        # 7200 and 7200.0 are the same wish, and must give the same plan's id.
        for name in ("horizon", "seconds_per_block", "time_limit"):
            if document[name] is not None:
                document[name] = float(document[name])
        return document


def _json_span(span: Span | None) -> list[int] | None:
    return None if span is None else [span.start, span.end]


def _check(name: str, value: float, least: float, most: float, unit: str) -> None:
    if not least <= value <= most:  # NaN fails any comparison
        raise PolicyInvalid(f"{name} must be a number from {least:g} to {most:g} ({unit}), not {value}")
