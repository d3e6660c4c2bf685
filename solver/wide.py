"""The search for swarms of a dozen servers and more: anneal, then place a few anew at a time, then prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from solver.branch import Branching
from solver.budget import Budget
from solver.chain import cheap_chain
from solver.choices import Choices, choices_of
from solver.equal_stages import equal_stages
from solver.neighbourhood import Neighbourhood
from solver.polish import polish
from solver.prices import Prices, best_prices
from solver.problem import Placement, Problem, Progress, Solution, Stage, Status
from solver.rounds import MANY_SERVERS, NEAR, Rounds
from solver.search import REPORT_SECONDS
from solver.start import StartingPoint, nobody_moves, petals_rule
from solver.validator import evaluate

RULE_SERVERS, RULE_SHARE = 200, 0.1
"""The Petals rule is looked at for so many servers at most, as its simulation takes cubic time."""
SLACK = 1e-11
"""Share of the greatest throughput within which floats count as equal."""
GLANCE_SHARE = 0.05
"""In that time it is seen whether there is anything left to find at all."""
TIES = ("loads", "moves", "weakest", "distance")


@dataclass(frozen=True)
class Shares:
    """Up to which share of the budget each part lasts."""

    anneal: float
    improve: float
    prices: float
    prove: float


SOME_SHARES = Shares(anneal=0.5, improve=0.6, prices=0.65, prove=0.97)
"""Where branching pays."""
AGAIN_SHARES = Shares(anneal=0.75, improve=0.85, prices=0.9, prove=0.97)
"""There too, from a plan under way: its like has been proven before, and what counts is how soon it is as good."""
MANY_SHARES = Shares(anneal=0.65, improve=0.85, prices=0.97, prove=0.97)
"""With `MANY_SERVERS`, annealing comes closer to the bound than placing a few anew."""
MOST_SERVERS, MOST_SHARES = 3000, Shares(anneal=0.8, improve=0.8, prices=0.97, prove=0.97)
"""With more, nothing but annealing is of use."""


class WideSearch:
    """One search. The number of servers may be any; the bound is that of `solver.prices` and `solver.branch`.

    Parameters
    ----------
    given
        What is known already; it stays as it is.
    under_way
        A plan that is being carried out: ties go to it.
    """

    def __init__(
        self,
        problem: Problem,
        choices: Choices,
        budget: Budget,
        given: StartingPoint,
        under_way: Placement | None,
        progress: Callable[[Progress], None],
    ) -> None:
        self._problem, self._choices, self._budget = problem, choices, budget
        self._under_way, self._progress = under_way, progress
        self.best = given.copy()
        self._bound, self._bound_by = math.inf, "prices"
        self._reported = 0.0
        self._stage = "start"
        servers = len(choices.free)
        self._shares = SOME_SHARES
        if servers >= MOST_SERVERS:
            self._shares = MOST_SHARES
        elif servers >= MANY_SERVERS or not Branching.pays(choices):
            self._shares = MANY_SHARES
        elif under_way is not None:
            self._shares = AGAIN_SHARES

    def begin(self) -> bool:
        """Find a first good placement; whether it leaves neither holes nor missing replicas."""
        annealed, start = self._problem, nobody_moves(self._problem)
        if self._problem.max_hops is not None:
            annealed, start = self._chained(start)
        choices = self._choices if annealed is self._problem else choices_of(annealed)
        self._annealed = self.best if annealed is self._problem else StartingPoint(annealed)
        self._offer([start])
        warm = self._under_way if annealed is self._problem else None
        if warm is None or self.best.placement != warm:  # else a good one is known
            self._offer_rules(start)
        self._rounds = iter(
            Rounds(choices, start, warm, self._budget, self._shares.anneal, self._annealed, self._report)
        )
        self._anneal()
        worth = self.best.worth
        return worth is not None and not worth.lacks_servers

    def _offer_rules(self, start: Placement) -> None:
        if self.best.placement is not None and len(self._choices.free) <= RULE_SERVERS:
            seed = self._budget.limits.seed
            self._offer(petals_rule(self._problem, start, seed, lambda: self._going_on(RULE_SHARE)))
        staged = equal_stages(self._problem, lambda: self._going_on(RULE_SHARE))
        self._offer([] if staged is None else [staged])

    def _chained(self, start: Placement) -> tuple[Problem, Placement]:
        """The problem with a chain that is short enough held fast, and its start."""
        chain = cheap_chain(self._choices, self._budget) or {}
        problem = self._problem
        servers = list(problem.servers)
        for index, span in chain.items():
            servers[index] = replace(servers[index], only=span, may_stay=True)
        problem = replace(problem, servers=tuple(servers))
        return (problem, nobody_moves(problem)) if chain else (self._problem, start)

    def finish(self) -> Solution | None:
        """Search and prove on; None if no placement that keeps all demands is known."""
        self._stage, began = "objective", self._budget.elapsed
        if self._under_way is not None and len(self._choices.free) < MANY_SERVERS:
            for _ in NEAR:  # what such a plan lacks is soon found
                if self._going_on(self._shares.anneal):
                    self._anneal()
        self._price(GLANCE_SHARE)
        while self._going_on(self._shares.anneal) and self._anneal():
            pass
        self._improve()
        self._prove()
        return self._solution(self._budget.elapsed - began)

    def _going_on(self, share: float) -> bool:
        """Whether this share of the budget is left, and something to find."""
        self._report()
        return self._budget.left(share) > 0 and self._bound > self._reached()

    def _anneal(self) -> bool:
        """One round; whether there was one."""
        found = next(self._rounds, None)
        if found is None:
            return False
        self._offer(found)
        return True

    def _offer(self, placements: Iterable[Placement]) -> None:
        """To the best of all, and to the best that may be annealed: where a chain is held fast, not all may."""
        offered = list(placements)
        self.best.offer(offered)
        if self._annealed is not self.best:
            self._annealed.offer(offered)

    def _improve(self) -> None:
        worth, share = self.best.worth, self._shares.improve
        if worth is None or worth.holes or self.best.placement is None:
            return
        near = Neighbourhood(self._problem, self.best.placement, self._budget)
        while self._going_on(share) and near.can_improve:
            if near.improve(self._report, share):
                self.best.offer([near.placement])

    # The proof -------------------------------------------------------------------------------------------

    def _prove(self) -> None:
        prices = self._price(self._shares.prices)
        if prices is None or not Branching.pays(self._choices):
            return
        branching = Branching(self._choices, prices)
        for seconds in branching.run(self._reached):
            self._found(branching.bound, "branching")
            if not self._spend(seconds, self._shares.prove):
                break
        self._found(branching.bound, "branching")

    def _price(self, share: float) -> Prices | None:
        """Bound by prices; by averaging while there are holes, as prices are of all blocks."""
        worth = self.best.worth
        if worth is None or worth.holes:
            holes = self._problem.num_blocks if worth is None else worth.holes
            self._found(self._averaging(holes), "averaging")
            return None
        prices = best_prices(self._choices, worth.objective, lambda seconds: self._spend(seconds, share))
        self._found(prices.bound, "prices")
        return prices

    def _found(self, bound: float, by: str) -> None:
        if bound < self._bound:
            self._bound, self._bound_by = bound, by

    def _reached(self) -> float:
        objective = self.best.objective
        return -math.inf if objective is None else objective

    def _spend(self, seconds: float, share: float) -> bool:
        self._budget.spend(seconds)
        return self._going_on(share)

    def _averaging(self, holes: int) -> float:
        """All throughput spread evenly over the blocks that are sure to be covered."""
        choices = self._choices
        each = (choices.rps * (choices.ends - choices.starts)).max(axis=1, initial=0.0)
        total = math.fsum(choices.base.tolist()) + math.fsum((each * choices.counts).tolist())
        return total * (1 + 1e-12) / max(1, self._problem.num_blocks - holes) - choices.fixed_penalty

    # What came of it -------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Say how far it is, now and then."""
        elapsed = self._budget.elapsed
        if elapsed - self._reported >= REPORT_SECONDS:
            self._reported = elapsed
            bound = None if math.isinf(self._bound) else self._bound
            self._progress(Progress(self._stage, elapsed, self.best.objective, bound))

    def _solution(self, seconds: float) -> Solution | None:
        if self.best.placement is None or self.best.worth is None:
            return None
        placement = polish(self._problem, self.best.placement, self._under_way)
        worth = evaluate(self._problem, placement)
        slack = SLACK * (max(worth.throughput) + worth.reload_penalty)
        proven = not worth.lacks_servers and self._bound <= worth.objective + slack
        stages = [Stage("objective", worth.objective, proven, seconds)]
        if self._problem.min_replicas:
            stages.insert(0, Stage("missing_replicas", worth.missing_replicas, not worth.missing_replicas, 0.0))
        if worth.holes:
            stages.insert(0, Stage("holes", worth.holes, False, 0.0))
        stages += [Stage(name, float(getattr(worth, name)), False, 0.0) for name in TIES]
        return Solution(
            placement=placement,
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            bound=max(self._bound, worth.objective),
            rounding_slack=slack,
            stages=tuple(stages),
            seconds=self._budget.elapsed,
            scale=1.0,
            interrupted=self._budget.stop.is_set(),
            bound_by=self._bound_by,
        )
