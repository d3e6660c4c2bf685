"""How often and how long to anneal: first for a good placement at once, then from the start and from the best in turn.

A walk from the start, heated through, comes to another valley each time; a short one from the best placement so far,
warmed up a little only, looks for the lowest place of this valley and its neighbours. Where there are few servers,
many such short walks find more than the same time in long ones (iterated local search: Lourenco, Martin and Stuetzle,
"Iterated local search", 2003); where there are many, the time is hardly enough for a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from solver.anneal import Schedule, anneal, step_seconds
from solver.budget import Budget
from solver.choices import Choices
from solver.problem import Placement

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
SHORT_SWEEPS, SHORT_OCTAVES, IN_A_ROW = 15, (4.0, 5.0, 6.0, 7.0), 16
"""Rounds from the best placement: sweeps, how far each is warmed up in turn, and how many in a row."""
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
        Says the best placement so far, which keeps all demands; None while there is none.
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
        best: Callable[[], Placement | None],
        look: Callable[[], None],
    ) -> None:
        self._choices, self._start, self._under_way = choices, start, under_way
        self._budget, self._share, self._best, self._look = budget, share, best, look
        self._servers = len(choices.free)
        self._walks = max(1, min(MOST_WALKS, STEPS_SIDE_BY_SIDE // max(1, self._servers)))
        self._a_step = step_seconds(choices, self._walks)
        self._slowness, self._seed = 1.0, budget.limits.seed

    def __iter__(self) -> Iterator[list[Placement]]:
        """The last placements of each round, best first."""
        if not (self._choices.sizes > 1).any() or not self._left:
            return
        sweeps = max(FEWEST_SWEEPS, min(FIRST_SWEEPS, FIRST_STEPS // max(1, self._servers)))
        if self._under_way is None:
            yield self._round(self._start, WAYS[-1], sweeps)
        else:
            yield self._round(self._under_way, replace(WAYS[0], octaves=WARM_OCTAVES), sweeps)
        number = 0
        while self._left:
            if self._servers < MANY_SERVERS:
                yield from self._from_the_best()
            number += 1
            way = WAYS[number % len(WAYS)]
            fit = int(self._left / max(1e-9, self._servers * self._a_step * self._slowness))
            most = MOST_SWEEPS if self._servers >= MANY_SERVERS else LONG_SWEEPS
            if fit < LEAST_PART * (sweeps if self._servers >= MANY_SERVERS else LONG_SWEEPS):
                return
            yield self._round(self._start, way, min(most, fit))

    def _from_the_best(self) -> Iterator[list[Placement]]:
        for number in range(IN_A_ROW):
            best = self._best()
            if best is None or not self._left:
                return
            way = replace(WAYS[number % len(WAYS)], octaves=SHORT_OCTAVES[number % len(SHORT_OCTAVES)])
            yield self._round(best, way, SHORT_SWEEPS)

    @property
    def _left(self) -> float:
        return self._budget.left(self._share)

    def _round(self, start: Placement, way: Schedule, sweeps: int) -> list[Placement]:
        way = replace(way, walks=self._walks, sweeps=sweeps)
        began = self._budget.elapsed
        self._budget.spend(self._a_step)
        found = anneal(self._choices, start, way, self._seed, self._keep_on)
        if not self._budget.limits.deterministic:
            self._slowness = max(0.2, (self._budget.elapsed - began) / max(1e-9, way.seconds(self._choices)))
        self._seed += 1
        return found

    def _keep_on(self, steps: int) -> bool:
        self._budget.spend(steps * self._a_step)
        self._look()
        return self._left > 0
