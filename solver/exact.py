"""Solve a small problem by one integer program in the order of its priorities, each stage fixing what was reached."""

from __future__ import annotations

import math
from collections.abc import Callable

from solver.anneal import Schedule, anneal, step_seconds
from solver.budget import Budget
from solver.ceiling import bottleneck_ceiling
from solver.choices import choices_of
from solver.equal_stages import equal_stages
from solver.model import Expr, PlacementModel
from solver.problem import Placement, Problem, Progress, Solution, Stage, Status
from solver.scaling import MAX_ROW_SUM
from solver.search import REPORT_SECONDS, Outcome, run
from solver.start import StartingPoint, nobody_moves, petals_rule
from solver.validator import Evaluation, evaluate

ROUNDS = 2
"""Rounds of walks before the proof starts."""
WALKS = Schedule(walks=32, sweeps=60)
SWEEP_LOOK_SECONDS = 2e-3
"""What the sweeps do between two looks at whether to keep on, on a usual machine."""
START_SHARE = 0.3
"""Share of the time limit that the local search for a start may take."""
CEILING_SHARE = 0.5
"""Share of the time limit at which the sweeps for a bound on the bottleneck end."""
OBJECTIVE_SHARE = 0.9
"""Share of the time left that the objective may take before the tie-breaks get theirs."""
TIE_BREAKS = frozenset({"loads", "moves", "changes", "weakest", "distance", "order"})
"""Stages that choose among placements of one objective: cut short, they leave its proof untouched."""


class Infeasible(ValueError):
    """No placement keeps all demands of the problem, or none was found in time."""


class ExactSearch:
    """The model, the best placement so far and the levels reached."""

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        progress: Callable[[Progress], None],
        under_way: Placement | None = None,
    ) -> None:
        self._problem = problem
        self._under_way = under_way
        self._budget = budget
        self._progress = progress
        self._reported = 0.0
        self._stages: list[Stage] = []
        self._best: Placement | None = None
        self._bound_by = "averaging"

    def solve(self, given: StartingPoint, start: StartingPoint) -> Solution:
        """Go through all stages.

        Parameters
        ----------
        given
            What was known before any search.
        start
            The best placement known by now.

        Raises
        ------
        Infeasible
            If no placement keeps all demands, or none was found in time.
        """
        start = self._begin(start)
        self._best = start.placement
        bound = self._search(start.worth, given.worth)
        if self._best is None:
            raise Infeasible("no placement that keeps all demands was found in time")
        worth = evaluate(self._problem, self._best)
        proven = all(stage.proven for stage in self._stages if stage.name not in TIE_BREAKS)
        # Better by less than a unit is better all the same, but the integers cannot see it.
        known = given if proven else start
        if known.placement is not None and known.worth is not None and known.worth.better_than(worth):
            self._best, worth = known.placement, known.worth
        slack = self._model.rounding_slack
        return Solution(
            placement=self._best,
            status=Status.OPTIMAL if proven and bound - worth.objective <= 2 * slack else Status.FEASIBLE,
            bound=max(bound, worth.objective),
            rounding_slack=slack,
            stages=tuple(self._stages),
            seconds=self._budget.elapsed,
            scale=self._model.scale.units,
            interrupted=self._budget.stop.is_set(),
            bound_by=self._bound_by,
        )

    def _begin(self, start: StartingPoint) -> StartingPoint:
        """A few walks from where nobody moves, and what the Petals rule comes to."""
        best, seed = start.copy(), self._budget.limits.seed
        keep_on = self._keep_on(START_SHARE, best)
        if best.placement is None:
            return best
        staying = nobody_moves(self._problem)
        best.offer(petals_rule(self._problem, best.placement, seed, keep_on))
        staged = equal_stages(self._problem, keep_on)
        best.offer([] if staged is None else [staged])
        choices = choices_of(self._problem)
        a_step = step_seconds(choices, WALKS.walks)

        def go_on(steps: int) -> bool:
            self._budget.spend(steps * a_step)
            return keep_on()

        for number in range(ROUNDS):
            if keep_on():
                best.offer(anneal(choices, staying, WALKS, seed + number, go_on))
        return best

    def _search(self, start: Evaluation | None, given: Evaluation | None) -> float:
        """Go through the stages; a proven bound on the objective in RPS."""
        holes = self._problem.num_blocks if start is None else start.holes
        ceiling = None
        if start is not None and not holes:
            sweep_on = self._keep_on(CEILING_SHARE, None, SWEEP_LOOK_SECONDS)
            ceiling = bottleneck_ceiling(self._problem, start.min_throughput, sweep_on)
        reached = None if given is None or given.lacks_servers else given.objective
        self._model = model = PlacementModel(self._problem, holes, ceiling, reached)
        if holes:
            self._stage("holes", model.count_holes())
        else:
            model.cover_all()
        if self._problem.min_replicas:
            self._stage("missing_replicas", model.missing_replicas())
        if start is not None and not start.lacks_servers:
            model.restrict_bottleneck(start.objective)
        limit = self._stage(
            "objective",
            model.objective(),
            maximize=True,
            unit=model.scale.rps,
            offset=-model.fixed_penalty,
            share=OBJECTIVE_SHARE,
        )
        if self._best is not None and not (self._stages[-1].proven and self._is_unique(self._best)):
            self._break_ties()
        bound = model.bottleneck_limit
        if ceiling is not None and ceiling <= bound:
            self._bound_by = "sweep"
        if limit is not None and limit * model.scale.rps < bound:
            bound, self._bound_by = limit * model.scale.rps, "CP-SAT"
        return bound - model.fixed_penalty + model.rounding_slack

    def _break_ties(self) -> None:
        model = self._model
        self._stage("loads", model.loads())
        self._stage("moves", model.moves())
        if self._under_way is not None:
            self._stage("changes", model.changes(self._under_way))
        self._stage("weakest", model.weakest(), maximize=True, unit=model.scale.rps)
        self._stage("distance", model.distance())
        self._stage_in_order(model.positions(), max(group.starts.size for group in model.groups))

    # One stage -------------------------------------------------------------------------------------------

    def _stage(
        self,
        name: str,
        expression: Expr,
        *,
        maximize: bool = False,
        unit: float = 1.0,
        offset: float = 0.0,
        share: float = 1.0,
    ) -> float | None:
        """Optimize `expression` and hold what was reached; the proven bound on it, None if there is none.

        What is told of it is `unit` times its value, and `offset` more.
        """
        model = self._model.model
        model.clear_objective()
        (model.maximize if maximize else model.minimize)(expression)
        began = self._budget.elapsed
        outcome = self._run(name, self._left() * share, unit, offset)
        level = None if outcome.objective is None else round(outcome.objective)
        if level is not None:
            model.add(expression >= level if maximize else expression <= level)
        value = None if level is None else level * unit + offset
        self._stages.append(Stage(name, value, outcome.proven and level is not None, self._budget.elapsed - began))
        return outcome.bound

    def _stage_in_order(self, positions: list[Expr], spans: int) -> None:
        """The lexicographically smallest targets, a few servers a solve, weighted by powers of `spans`."""
        began, proven = self._budget.elapsed, True
        # A server's own coefficients sum to half the square of `spans`, and each before it has `spans` times more.
        chunk = max(1, int(math.log(MAX_ROW_SUM, max(2, spans))) - 1)
        for first in range(0, len(positions), chunk):
            some = positions[first : first + chunk]
            weighted = sum(position * spans**power for power, position in enumerate(reversed(some)))
            model = self._model.model
            model.clear_objective()
            model.minimize(weighted)
            outcome = self._run("order", self._left())
            proven = proven and outcome.proven
            if not proven or outcome.objective is None:
                break
            model.add(weighted <= round(outcome.objective))
        self._stages.append(Stage("order", None, proven, self._budget.elapsed - began))

    def _is_unique(self, placement: Placement) -> bool:
        """Whether it is proven that no other placement reaches the levels fixed so far: then there are no ties."""
        model = self._model.model
        other = model.new_bool_var("other")
        model.add(other <= self._model.differs_from(placement))
        model.clear_objective()
        model.maximize(other)
        outcome = self._run("ties", self._left())
        self._best = placement
        return outcome.proven and outcome.objective == 0

    def _run(self, name: str, seconds: float, unit: float = 1.0, offset: float = 0.0) -> Outcome:
        """One solve from the best placement so far, which it replaces by what it finds."""
        if seconds <= 0:
            return Outcome(None, None, None, proven=False, infeasible=False)
        if self._best is not None:
            self._model.hint(self._best)

        def watch(incumbent: float | None, bound: float | None) -> None:
            level, limit = (None if units is None else units * unit + offset for units in (incumbent, bound))
            self._progress(Progress(name, self._budget.elapsed, level, limit))

        outcome = run(
            self._model.model,
            seconds=seconds,
            workers=self._budget.limits.workers,
            seed=self._budget.limits.seed,
            watch=watch,
            stop=self._budget.stop,
            deterministic=self._budget.limits.deterministic,
        )
        self._budget.spend(outcome.work)
        if outcome.infeasible:
            raise Infeasible("the demands contradict each other: no placement keeps them all")
        if outcome.values is not None:
            self._best = self._model.placement(outcome.values)
            evaluate(self._problem, self._best)
        return outcome

    def _keep_on(self, share: float, best: StartingPoint | None, work: float = 0.0) -> Callable[[], bool]:
        """What reports the best objective so far, and says whether this share of the budget is left."""

        def ask() -> bool:
            self._budget.spend(work)
            elapsed = self._budget.elapsed
            if elapsed - self._reported >= REPORT_SECONDS:
                self._reported = elapsed
                self._progress(Progress("start", elapsed, None if best is None else best.objective, None))
            return self._budget.left(share) > 0

        return ask

    def _left(self) -> float:
        return self._budget.left()
