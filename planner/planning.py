"""From a swarm's state and a policy to a plan."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from planner.assemble import assemble, infeasible
from planner.baseline import petals_baseline
from planner.errors import InfeasibleDemands
from planner.explain import explain_plan
from planner.formulate import Formulation, formulate
from planner.plan import Plan
from planner.policy import Policy
from planner.previous import targets_under_way
from planner.published import PublishedPlan
from planner.selection import resolve_policy
from planner.state import SwarmState
from solver.problem import Limits, Progress, Solution
from solver.stages import Infeasible, solve

STAYING_SHARE = 0.2
"""Share of the time limit in which newcomers are placed for comparison while nobody else moves."""


def make_plan(
    state: SwarmState,
    policy: Policy = Policy(),  # noqa: B008  # frozen
    *,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    now: float | None = None,
    explain: bool = False,
    previous: PublishedPlan | None = None,
) -> Plan:
    """Find the best placement of a swarm, and what it takes to get there.

    Parameters
    ----------
    state
        The swarm as it is.
    policy
        What is wanted; peers in it may be unambiguous parts of peer ids.
    progress
        Called about ten times a second while the search runs, from this thread.
    stop
        Once set, the search ends soon and the best plan so far is returned.
    now
        Unix time at which the plan is made; the clock's by default.
    explain
        Also say why each server stays or goes, which takes up to `policy.time_limit` once more; where the search is
        deterministic, for each server.
    previous
        The plan that is under way, as `planner.plan_file.load_plan` reads it: the search begins with it, and what is
        no better does not replace it.

    Returns
    -------
    Plan
        Of status ``infeasible`` where the demands contradict each other; its first warning says how.

    Raises
    ------
    PolicyInvalid
        If the policy names a peer that is unknown or ambiguous.
    InputInvalid
        If the previous plan is for another model.
    """
    began = time.monotonic()
    created_at = time.time() if now is None else now
    stop = stop if stop is not None else threading.Event()
    if policy.deterministic:  # by one thread, whatever is asked: so that every byte of the plan is the same
        policy = replace(policy, workers=1)
    workers = policy.workers if policy.workers is not None else available_cores()
    under_way = None if previous is None else targets_under_way(previous, state)
    try:
        policy = resolve_policy(state, policy)
        state = state.with_spans(dict(policy.spans))
        formulation = formulate(state, policy)
        baseline = petals_baseline(state, policy)
        staying = _solve_staying(formulation, workers, stop)
        left = policy.time_limit if policy.deterministic else policy.time_limit - (time.monotonic() - began)
        limits = Limits(max(left, 0.0), workers, policy.seed, policy.deterministic)
        going_on = None if under_way is None else formulation.going_on(under_way, staying.placement)
        solution = solve(
            formulation.problem,
            limits,
            hints=(staying.placement,),
            under_way=going_on,
            progress=progress,
            stop=stop,
        )
        plan = assemble(formulation, solution, staying, baseline, workers, created_at, time.monotonic() - began)
    except (InfeasibleDemands, Infeasible) as error:
        return infeasible(state, policy, workers, str(error), created_at)
    if explain:
        plan = replace(plan, explanations=explain_plan(formulation, plan, workers, progress, stop))
    return plan


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _solve_staying(formulation: Formulation, workers: int, stop: threading.Event) -> Solution:
    """The best placement that moves nobody but newcomers, and whom the operator pins elsewhere."""
    policy = formulation.policy
    # The clock must not cut it short where the plan is to be the same on any machine.
    share = 1.0 if policy.deterministic else STAYING_SHARE
    limits = Limits(policy.time_limit * share, workers, policy.seed, policy.deterministic)
    return solve(formulation.staying(), limits, stop=stop)
