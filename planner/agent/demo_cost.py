"""What a move has cost, from what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

LATE = 1.0
"""Seconds that a token may take longer than the slowest before the move."""


@dataclass(frozen=True)
class Cost:
    """What a move has cost a server and a client.

    Parameters
    ----------
    loaded
        The blocks that the server has loaded, in this order.
    seconds_away
        In which it did not answer for the blocks that it keeps.
    lost, late
        Tokens that the client did not get or got wrong, and those that came over `LATE` later than the slowest before.
    tokens
        All that it asked for, from when the move was asked for.
    slowest, slowest_before
        Seconds of the slowest token that came right since then, and of the slowest before.
    """

    loaded: tuple[int, ...]
    seconds_away: float
    lost: int
    late: int
    tokens: int
    slowest: float
    slowest_before: float

    @classmethod
    def of(cls, tidings: Iterable[Mapping[str, Any]], name: str, begun: float) -> Cost:
        """Take it from what was seen in a demo swarm.

        Parameters
        ----------
        tidings
            Of `DemoSwarm`, in whatever order.
        name
            The server that has moved.
        begun
            When it was asked to, by the monotonic clock.
        """
        seen = sorted(tidings, key=lambda one: float(one["at"]))
        tokens = [one for one in seen if one["event"] == "token"]
        usual = max(one["at"] - one["begun"] for one in tokens if one["at"] <= begun)
        since = [one for one in tokens if one["at"] > begun]
        right = [one["at"] - one["begun"] for one in since if one["right"]]
        return cls(
            loaded=tuple(
                one["block"] for one in seen if one["event"] == "loaded" and one["name"] == name and one["at"] > begun
            ),
            seconds_away=_away([(one["at"], one["whole"]) for one in seen if one["event"] == "answer"]),
            lost=len(since) - len(right),
            late=sum(1 for seconds in right if seconds > usual + LATE),
            tokens=len(since),
            slowest=max(right, default=0.0),
            slowest_before=usual,
        )


def _away(answers: list[tuple[float, bool]]) -> float:
    """The seconds from each first refusal to the next answer."""
    runs = [next(run) for _, run in groupby(answers, key=lambda answer: answer[1])]
    ends = [at for at, _ in runs[1:]] + [at for at, _ in answers[-1:]]
    return sum(end - at for (at, whole), end in zip(runs, ends, strict=True) if not whole)


def table(stock: Cost, ours: Cost) -> list[str]:
    """Both side by side, line by line."""

    def row(title: str, *cells: str) -> str:
        return f"{title:<36}{cells[0]:>14}{cells[1]:>14}"

    def loaded(cost: Cost) -> str:
        return str(len(cost.loaded))

    def of(count: int, cost: Cost) -> str:
        return f"{count} of {cost.tokens}"

    return [
        row("", "stock Petals", "plan-swarm"),
        row("blocks loaded", loaded(stock), loaded(ours)),
        row("seconds out of service", f"{stock.seconds_away:.1f}", f"{ours.seconds_away:.1f}"),
        row("tokens lost or late", of(stock.lost + stock.late, stock), of(ours.lost + ours.late, ours)),
        row("slowest token before the move, s", f"{stock.slowest_before:.1f}", f"{ours.slowest_before:.1f}"),
        row("slowest that came since, s", f"{stock.slowest:.1f}", f"{ours.slowest:.1f}"),
    ]
