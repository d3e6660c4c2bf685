"""How often and how long to anneal: short first, then as long as the time allows, each round in another way."""

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
LATER_SWEEPS, MOST_SWEEPS, MANY_SERVERS = 240, 150, 500
"""Sweeps of a later round; where there are many servers it has as many as the time allows, up to the second."""
WAYS = (Schedule(0, 0, 24.0, 8.0, 0.2), Schedule(0, 0, 12.0, 7.0, 0.2), Schedule(0, 0, 12.0, 9.0, 0.1))
"""No way is best for all swarms."""
WARM_OCTAVES = 3.0
"""From a plan under way: so sharp that it is changed where that is of use, and kept elsewhere."""
LEAST_PART = 0.25
"""A round that had to be cut shorter than that is not begun."""


def rounds(
    choices: Choices,
    start: Placement,
    under_way: Placement | None,
    budget: Budget,
    share: float,
    look: Callable[[], None],
) -> Iterator[list[Placement]]:
    """Anneal again and again until this share of the budget is used up; the placements of each round, best first.

    Parameters
    ----------
    start
        Where rounds begin.
    under_way
        A plan that is being carried out, from which one round begins.
    look
        Called often.
    """
    servers = len(choices.free)
    if not (choices.sizes > 1).any():
        return
    walks = max(1, min(MOST_WALKS, STEPS_SIDE_BY_SIDE // max(1, servers)))
    sweeps = max(FEWEST_SWEEPS, min(FIRST_SWEEPS, FIRST_STEPS // max(1, servers)))
    a_step = step_seconds(choices, walks)
    slowness, number = 1.0, 0
    going_on = True

    def keep_on(steps: int) -> bool:
        nonlocal going_on
        budget.spend(steps * a_step)
        look()
        going_on = budget.left(share) > 0
        return going_on

    while going_on and budget.left(share) > 0:
        way = replace(WAYS[number % len(WAYS)], walks=walks)
        warm = under_way is not None and number == 0
        if warm:
            way = replace(way, sweeps=sweeps, octaves=WARM_OCTAVES)
        elif number == 0:
            way = replace(WAYS[-1], walks=walks, sweeps=sweeps)
        else:
            fit = int(budget.left(share) / max(1e-9, servers * a_step * slowness))
            most = MOST_SWEEPS if servers >= MANY_SERVERS else LATER_SWEEPS
            if fit < LEAST_PART * (sweeps if servers >= MANY_SERVERS else LATER_SWEEPS):
                return
            way = replace(way, sweeps=min(most, fit))
        began = budget.elapsed
        budget.spend(a_step)
        yield anneal(
            choices, under_way if warm and under_way is not None else start, way, budget.limits.seed + number, keep_on
        )
        if not budget.limits.deterministic:
            slowness = max(0.2, (budget.elapsed - began) / max(1e-9, way.seconds(choices)))
        number += 1
