"""Why each server stays or goes: the best plan in which it does the opposite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from planner.baseline import petals_verdict
from planner.formulate import Formulation
from planner.plan import Explanation, Plan, PlannedServer
from planner.policy import Policy
from planner.state import Server
from solver.problem import Limits, Placement, Problem, Progress, Span, Status
from solver.stages import Infeasible, solve
from solver.validator import Evaluation, evaluate

LEAST_SECONDS = 0.2
"""A search is given at least so long, also where many servers share the time limit."""


def explain_plan(
    formulation: Formulation,
    plan: Plan,
    workers: int,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> tuple[Explanation, ...]:
    """Explain every server of `plan`, in `policy.time_limit` seconds together where possible.

    Where the search is deterministic, each explanation may take as long: the clock must not cut it.

    The search is run again for each server that the solver places: a server that moves is forbidden to, one
    that stays is forced to, and all others follow.
    """
    targets = {server.peer_id: server.target for server in plan.servers}
    placement = tuple(targets[peer_id] for peer_id in formulation.placed)
    chosen: Placement = tuple(span for span in placement if span is not None)
    worth = evaluate(formulation.problem, chosen)
    deadline = time.monotonic() + formulation.policy.time_limit
    explanations = []
    for number, (server, planned) in enumerate(zip(formulation.state.servers, plan.servers, strict=True)):
        left = (deadline - time.monotonic()) / (len(plan.servers) - number)
        limits = _limits(formulation.policy, max(left, LEAST_SECONDS), workers)
        petals = _petals_words(formulation, server)
        if planned.peer_id not in formulation.placed or stop.is_set():
            reason = planned.why_not or ("drained" if planned.target is None else "the search was interrupted")
            explanations.append(Explanation(server.peer_id, None, None, None, None, False, petals, reason))
            continue
        index = formulation.placed.index(planned.peer_id)
        opposite = _opposite(formulation.problem, index, planned)
        if opposite is None:
            reason = _why_no_choice(formulation.problem, index)
            explanations.append(Explanation(server.peer_id, None, None, None, None, True, petals, reason))
            continue
        forced = "to stay" if planned.moves else "to move"
        hints = (chosen, _least_change(formulation, opposite, index, chosen))
        try:
            solution = solve(opposite, limits, hints=hints, progress=progress, stop=stop)
        except Infeasible:
            hops = "" if formulation.problem.max_hops is None else ", or on hops,"
            reason = f"the limits on moves and loads{hops} leave no plan that forces it {forced}"
            explanations.append(Explanation(server.peer_id, None, None, None, None, True, petals, reason))
            continue
        other = evaluate(opposite, solution.placement)
        proven = solution.status is Status.OPTIMAL
        explanations.append(
            Explanation(
                peer_id=planned.peer_id,
                alternative=solution.placement[index],
                objective_change=other.objective - worth.objective,
                min_throughput_change=other.min_throughput - worth.min_throughput,
                blocks_loaded_change=other.loads - worth.loads,
                proven=proven,
                petals_rule=petals,
                reason=("" if proven else "as far as found in time, ")
                + f"forced {forced}, {_difference(plan, other, worth)}",
            )
        )
    return tuple(explanations)


def _limits(policy: Policy, seconds: float, workers: int) -> Limits:
    # Where the clock must not matter, sharing what is left of it would let it.
    return Limits(policy.time_limit if policy.deterministic else seconds, workers, policy.seed, policy.deterministic)


def _least_change(formulation: Formulation, opposite: Problem, index: int, chosen: Placement) -> Placement:
    """The placement that keeps the opposite's limits on moves and loads if any does.

    Nobody moves but who has to, and the server in question by one block at most, which is the least that a
    move loads; where it may become shorter, that loads nothing. With it as a hint, a search that finds nothing has a
    proof, however little time it had.
    """
    staying = formulation.staying().servers
    spans = [server.only or span for server, span in zip(staying, chosen, strict=True)]
    server = opposite.servers[index]
    if not server.may_stay and server.current is not None:
        start, end = server.current
        step = 1 if end < opposite.num_blocks else -1
        lengths = [length for length in server.throughput if length < end - start]
        spans[index] = Span(start, start + max(lengths)) if lengths else Span(start + step, end + step)
    return tuple(spans)


def _opposite(problem: Problem, index: int, planned: PlannedServer) -> Problem | None:
    """The problem in which the server does not do what the plan says; None if it has no choice."""
    server = problem.servers[index]
    if server.only is not None or server.current is None:
        return None
    if planned.moves:
        return problem.replace_server(index, only=server.current)
    if problem.candidates(server)[0].size == 1:
        return None
    return problem.replace_server(index, may_stay=False)


def _why_no_choice(problem: Problem, index: int) -> str:
    server = problem.servers[index]
    if server.only is not None:
        return "pinned there"
    return "a newcomer has to be placed" if server.current is None else "it holds the whole model"


def _difference(plan: Plan, other: Evaluation, worth: Evaluation) -> str:
    """What the other plan would change, in words; `worth` is that of the plan explained."""
    not_best = "the plan is not the best one yet"
    for now, then, what in (
        (worth.holes, other.holes, "hole"),
        (worth.missing_replicas, other.missing_replicas, "missing replica"),
    ):
        if then != now:
            number = f"{abs(then - now)} {'more' if then > now else 'fewer'} {what}{'s' * (abs(then - now) != 1)}"
            return f"there would be {number}" + ("" if then > now else f": {not_best}")
    change = other.objective - worth.objective
    if abs(change) <= 2 * plan.search.rounding_slack:
        return f"the objective would be the same, with {other.loads} blocks loaded"
    if change < 0:
        return f"the objective would fall by {-change:.4g} RPS"
    rise = f"the objective would rise by {change:.4g} RPS"
    if other.objective - plan.staying.value < plan.search.policy.min_gain.against(plan.staying.value):
        return f"{rise}, less than the least gain asked for"
    return f"{rise}: {not_best}"


def _petals_words(formulation: Formulation, server: Server) -> str | None:
    if server.span is None:
        return None
    verdict = petals_verdict(formulation.state, server.peer_id, formulation.policy.seed)
    quality = "" if verdict.balance_quality is None else f", balance quality {verdict.balance_quality:.1%}"
    return f"restart at block {verdict.best_start}{quality}" if verdict.restart else f"stay{quality}"
