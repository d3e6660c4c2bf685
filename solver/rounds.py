"""How often and how long to anneal: first for a good placement at once, then from the start and from the best in turn.

A walk from the start, heated through, comes to another valley each time; short ones from the best placement of a
valley, warmed up a little only, look for its lowest place and its neighbours. Where there are few servers, many short
walks find more than the same time in long ones (iterated local search: Lourenço, Martin and Stützle, "Iterated local
search", 2003); where there are many, the time is hardly enough for a long one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from solver.anneal import Schedule, anneal, step_seconds
from solver.budget import Budget
from solver.choices import Choices
from solver.problem import Placement
from solver.start import StartingPoint

STEPS_SIDE_BY_SIDE, MOST_WALKS = 4000, 32
"""Walks times servers, at least where there is one walk: few servers have many walks, each of them short."""
FIRST_STEPS, FEWEST_SWEEPS, FIRST_SWEEPS = 8000, 8, 60
"""The first round, for a good placement at once: steps, and within which bounds sweeps."""
LONG_SWEEPS, MOST_SWEEPS, MANY_SERVERS = 240, 150, 500
"""Sweeps of a round from the start; where there are many servers it has as many as fit, up to the second."""
WAYS = (Schedule(0, 0, 24.0, 8.0, 0.2), Schedule(0, 0, 12.0, 7.0, 0.2), Schedule(0, 0, 12.0, 9.0, 0.1))
"""No way is best for all swarms."""
WARM_OCTAVES = 3.0
"""From a plan under way: so sharp that it is changed where that is of use, and kept elsewhere."""
SHORT_SWEEPS = 8
NEAR = (*((SHORT_SWEEPS, octaves) for octaves in (3.0, 4.0, 5.0, 6.0, 7.0) * 3), (30, 6.0), (30, 7.0), (30, 8.0))
"""Rounds within a valley: sweeps, and how far its best placement is warmed up."""
ROUND_SECONDS = 1e-3
"""What a round takes beside its steps, on a usual machine."""
FITTING = 0.9
"""A round may be planned for that share of the time left: one that is cut off before it is sharp is of little use."""
LEAST_PART = 0.25
"""A round that had to be cut shorter than that is not begun."""


class Rounds:
    """One after another, until a share of the budget is used up.

    Parameters
    ----------
    start
        Where rounds begin that are heated through.
    under_way
        A plan that is being carried out, from which the first round begins.
    best
        The best placement so far, to which others are offered too.
    look
        Called often.
    """

    def __init__(
        self,
        choices: Choices,
        start: Placement,
        under_way: Placement | None,
        budget: Budget,
        share: float,
        best: StartingPoint,
        look: Callable[[], None],
    ) -> None:
        self._choices, self._start, self._under_way = choices, start, under_way
        self._budget, self._share, self._best, self._look = budget, share, best, look
        self._servers = len(choices.free)
        self._walks = max(1, min(MOST_WALKS, STEPS_SIDE_BY_SIDE // max(1, self._servers)))
        self._a_step = step_seconds(choices, self._walks)
        self._slowness, self._seed = 1.0, budget.limits.seed

    def __iter__(self) -> Iterator[list[Placement]]:
        """What each round has found: a placement, or nothing that is better."""
        if not (self._choices.sizes > 1).any() or not self._left:
            return
        sweeps = max(FEWEST_SWEEPS, min(FIRST_SWEEPS, FIRST_STEPS // max(1, self._servers)))
        if self._under_way is None:
            yield self._round(self._start, WAYS[-1], sweeps)
        else:
            yield self._round(self._under_way, replace(WAYS[0], octaves=WARM_OCTAVES), SHORT_SWEEPS)
        few = self._servers < MANY_SERVERS
        for number in count(1):
            if few:
                yield from self._within(self._best)
            most = MOST_SWEEPS if not few else LONG_SWEEPS if number % 2 else sweeps
            fit = int(FITTING * self._left / max(1e-9, self._servers * self._a_step * self._slowness))
            if not self._left or fit < LEAST_PART * (most if few else sweeps):
                return
            found = self._round(self._start, WAYS[number % len(WAYS)], min(most, fit))
            yield found
            if few:
                valley = StartingPoint(self._choices.problem)
                valley.offer(found)
                yield from self._within(valley)

    def _within(self, valley: StartingPoint) -> Iterator[list[Placement]]:
        for number, (sweeps, octaves) in enumerate(NEAR):
            if valley.placement is None or valley.worth is None or not self._left:
                return
            above = -math.inf if valley.worth.lacks_servers else valley.worth.objective
            way = replace(WAYS[number % len(WAYS)], octaves=octaves)
            found = self._round(valley.placement, way, sweeps, above)
            yield found
            if valley is not self._best:
                valley.offer(found)

    @property
    def _left(self) -> float:
        return self._budget.left(self._share)

    def _round(self, start: Placement, way: Schedule, sweeps: int, above: float = -math.inf) -> list[Placement]:
        """Where the best walk ends, as `anneal` gives it."""
        way = replace(way, walks=self._walks, sweeps=sweeps)
        began = self._budget.elapsed
        self._budget.spend(ROUND_SECONDS + self._a_step)
        found = anneal(self._choices, start, way, self._seed, self._keep_on, most=1, above=above)
        if not self._budget.limits.deterministic:
            self._slowness = max(0.2, (self._budget.elapsed - began) / max(1e-9, way.seconds(self._choices)))
        self._seed += 1
        return found

    def _keep_on(self, steps: int) -> bool:
        self._budget.spend(steps * self._a_step)
        self._look()
        return self._left > 0
