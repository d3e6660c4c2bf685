"""Who comes first among agents that would take the same slack: the plan's order, which goes round with time.

Everyone works it out from the plan and the clock alone. Lower waves come first, then lower peer ids; but anyone may
write an intent into anyone's record, and an agent that yielded to whoever is said to come before it could be held back
for ever. So time is cut into turns, each move that drops blocks has one, and whoever has the turn comes before all
others. Moves that drop a block in common never share a turn; there are thus no more turns than moves that are at odds
with one, and within as many minutes an agent that sees slack goes, whatever others are said to intend.

Clocks differ. So within `MARGIN` of a turn's beginning and end only those pass who come first in both turns. Of two
agents that decide within that time of one another never each takes itself for the first, then: both have seen the
turn in which either decided.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from planner.plan import PlannedServer
from planner.published import PublishedPlan

STOPPING = 10.0
"""Seconds from the decision to drop blocks until the server no longer lets anything into them, at most."""
CLOCKS = 3.0
"""Seconds by which clocks may differ, as hivemind has it."""
MARGIN = 8.0 + STOPPING + CLOCKS
"""Seconds that cover the age of the answers that a decision rests on, the time from it until the server no longer
answers for what it drops, and the difference of clocks."""
TURN = 60.0
"""Seconds of a turn: the same for all, as they must agree whose it is, and above ``2 * MARGIN``."""


class Turns:
    """The order of a plan's moves, at any moment."""

    def __init__(self, plan: PublishedPlan) -> None:
        self._moves = sorted((row for row in plan.moves if row.dropped), key=_planned_rank)

    def before(self, row: PlannedServer, now: float) -> list[PlannedServer]:
        """The moves that share a dropped block with `row` and may come before it, in the plan's order.

        Parameters
        ----------
        now
            Unix time.
        """
        mine, moments = set(row.dropped), (now - MARGIN, now + MARGIN)
        return [
            other
            for other in self._moves
            if other.peer_id != row.peer_id
            and not mine.isdisjoint(other.dropped)
            and any(self._rank(other, moment) < self._rank(row, moment) for moment in moments)
        ]

    def next_turn(self, row: PlannedServer, now: float) -> float:
        """The next Unix time, after `now`, from which on `before` is empty for `row` for a while."""
        coming = int((now - MARGIN) // TURN) + 1
        return (coming + (self._turns[row.peer_id] - coming) % self._cycle) * TURN + MARGIN

    def _rank(self, row: PlannedServer, moment: float) -> tuple[bool, int, str]:
        return (int(moment // TURN) % self._cycle != self._turns[row.peer_id], *_planned_rank(row))

    @cached_property
    def _turns(self) -> dict[str, int]:
        """Each takes the first turn that none before it took with which it has a dropped block in common."""
        turns: dict[str, int] = {}
        taken: dict[int, set[int]] = {}
        for row in self._moves:
            at_odds = set(chain.from_iterable(taken.get(block, ()) for block in row.dropped))
            turns[row.peer_id] = next(turn for turn in range(len(at_odds) + 1) if turn not in at_odds)
            for block in row.dropped:
                taken.setdefault(block, set()).add(turns[row.peer_id])
        return turns

    @cached_property
    def _cycle(self) -> int:
        return max(self._turns.values()) + 1


def _planned_rank(row: PlannedServer) -> tuple[int, str]:
    return (row.wave or 0, row.peer_id)
