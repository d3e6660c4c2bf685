"""From what the search found to a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.baseline import petals_baseline
from planner.coverage import Coverage, coverage_of
from planner.errors import InfeasibleDemands
from planner.formulate import Formulation
from planner.plan import (
    Baseline,
    Objective,
    Plan,
    PlannedServer,
    PlanStatus,
    Search,
    Staying,
    Wave,
)
from planner.policy import Policy
from planner.selection import Role
from planner.state import Server, SwarmState
from solver.problem import Problem, Solution, Span, Status
from solver.stages import TIE_BREAKS
from solver.validator import Evaluation, evaluate

ALWAYS_WORTH_IT = frozenset({"holes", "missing_replicas"})
"""Stages whose gain passes whatever the least gain is."""


def assemble(
    formulation: Formulation,
    found: Solution,
    staying: Solution,
    baseline: Baseline,
    workers: int,
    created_at: float,
    seconds: float,
) -> Plan:
    """The plan that a search came to, or that of staying where it gains too little.

    Parameters
    ----------
    staying
        The solution of `formulation.staying()`.
    workers
        Threads that searched.
    created_at
        Unix time.
    seconds
        What planning took so far.

    Raises
    ------
    InfeasibleDemands
        If the limit on hops was kept by leaving blocks without a server that have one where nobody moves.
    """
    state, policy, problem = formulation.state, formulation.policy, formulation.problem
    stay, worth = evaluate(formulation.staying(), staying.placement), evaluate(problem, found.placement)
    if problem.max_hops is not None and worth.holes > stay.holes:
        raise InfeasibleDemands(
            f"--max-hops {problem.max_hops} cannot be kept: no placement was found that does so and covers as many"
            " blocks as staying does"
        )
    least = policy.min_gain.against(stay.objective)
    improves = (worth.holes, worth.missing_replicas) < (stay.holes, stay.missing_replicas)
    improves = improves or _too_many_hops(problem, stay)
    if not improves and worth.objective - stay.objective < least:
        placement, worth = staying.placement, stay
    else:
        placement = found.placement
    targets = formulation.targets(placement)
    servers = tuple(
        _planned(formulation, server, formulation.roles[server.peer_id], targets[server.peer_id])
        for server in state.servers
    )
    moves = [server for server in servers if server.moves]
    objective = Objective(
        worth.objective,
        worth.min_throughput,
        worth.reload_penalty,
        max(found.bound, worth.objective),
        found.bound_by,
    )
    status = _status(found, objective, stay, moves_anything=bool(moves), improves=improves, least_gain=least)
    before, after, waves = _before(state), _after(state, targets, servers), _one_wave(state, moves)
    return Plan(
        prefix=state.prefix,
        num_blocks=state.num_blocks,
        created_at=created_at,
        status="feasible" if state.partial else status,  # nothing is proven of a swarm that was not seen whole
        state_fingerprint=state.fingerprint(),
        before=before,
        after=after,
        staying=Staying(stay.objective, stay.min_throughput, stay.holes),
        objective=objective,
        servers=servers,
        waves=waves,
        baseline=baseline,
        warnings=(
            *state.warnings,
            *formulation.warnings,
            *_about_search(found, policy),
            *_about_hops(policy, after),
            *_about_waves(before, after, waves),
        ),
        search=Search(
            seconds=seconds,
            workers=workers,
            seed=policy.seed,
            policy=policy,
            stages=found.stages,
            scale=found.scale,
            rounding_slack=found.rounding_slack,
            interrupted=found.interrupted,
        ),
    )


def _too_many_hops(problem: Problem, worth: Evaluation) -> bool:
    return problem.max_hops is not None and worth.hops is not None and worth.hops > problem.max_hops


def _status(
    found: Solution, objective: Objective, stay: Evaluation, *, moves_anything: bool, improves: bool, least_gain: float
) -> PlanStatus:
    best = found.status is Status.OPTIMAL and objective.bound - objective.value <= 2 * found.rounding_slack
    if moves_anything:
        return "optimal" if best else "feasible"
    # That there is nothing to do is a claim about all placements, so it needs a proof as well; the bound is
    # about those only that have as few holes and missing replicas.
    levels_proven = all(stage.proven for stage in found.stages if stage.name in ALWAYS_WORTH_IT)
    not_worth_it = not improves and levels_proven and found.bound - stay.objective < least_gain
    return "nothing_to_do" if found.status is Status.OPTIMAL or not_worth_it else "feasible"


def _planned(formulation: Formulation, server: Server, role: Role, target: Span | None) -> PlannedServer:
    now = set(range(*server.span)) if server.span is not None else set()
    then = set(range(*target)) if target is not None else set()
    loaded = tuple(sorted(then - now))
    moves = target != server.span
    seconds = 0.0
    if moves and server.peer_id in formulation.placed:
        costs = formulation.problem.servers[formulation.placed.index(server.peer_id)].load_seconds
        seconds = math.fsum(costs[block] for block in loaded)
    return PlannedServer(
        peer_id=server.peer_id,
        public_name=server.public_name,
        movable=role.why_not is None,
        why_not=role.why_not,
        state=server.state.value,
        throughput=server.throughput if target is None else server.throughput_at(target.length),
        current=server.span,
        target=target,
        loaded=loaded,
        dropped=tuple(sorted(now - then)),
        kept=len(now & then),
        reload_seconds=seconds,
        wave=0 if moves else None,
        offline=tuple(sorted(server.offline)),
    )


def _before(state: SwarmState) -> Coverage:
    return coverage_of(state.num_blocks, [(server.serving, server.throughput) for server in state.servers])


def _after(state: SwarmState, targets: Mapping[str, Span | None], servers: tuple[PlannedServer, ...]) -> Coverage:
    holders = []
    for server, planned in zip(state.servers, servers, strict=True):
        target = targets[server.peer_id]
        blocks = server.held if target == server.span else frozenset(range(*target)) if target is not None else ()
        holders.append((frozenset(blocks), planned.throughput))
    return coverage_of(state.num_blocks, holders)


def _one_wave(state: SwarmState, moves: list[PlannedServer]) -> tuple[Wave, ...]:
    """All moves at once: what they keep serves throughout, what they drop or load doesn't."""
    if not moves:
        return ()
    moving = {server.peer_id: server for server in moves}
    holders = []
    for server in state.servers:
        blocks = server.serving
        if server.peer_id in moving:
            blocks -= set(moving[server.peer_id].dropped)
        holders.append((blocks, server.throughput))
    during = coverage_of(state.num_blocks, holders)
    return (
        Wave(
            moves=tuple(server.peer_id for server in moves),
            min_throughput_during=min(during.throughput),
            seconds=max(server.reload_seconds for server in moves),
        ),
    )


def _about_search(found: Solution, policy: Policy) -> list[str]:
    if found.interrupted:
        return ["the search was interrupted: this is the best plan up to then"]
    cut = [stage.name for stage in found.stages if stage.name in TIE_BREAKS and not stage.proven]
    if found.status is Status.OPTIMAL and cut and not policy.deterministic:
        return ["the time limit cut the choice among equally good placements short: another run may choose another"]
    return []


def _about_hops(policy: Policy, after: Coverage) -> list[str]:
    if policy.max_hops is None or after.hops is not None:
        return []
    return [f"--max-hops {policy.max_hops} says nothing here: blocks are left without a server"]


def _about_waves(before: Coverage, after: Coverage, waves: tuple[Wave, ...]) -> list[str]:
    usual = min(before.min_throughput, after.min_throughput)
    for wave in waves:
        if len(wave.moves) > 1 and wave.min_throughput_during < 0.9 * usual and not before.holes:
            return [
                f"if all moves ran at once, the bottleneck would fall to {wave.min_throughput_during:.2f} RPS"
                f" meanwhile ({before.min_throughput:.2f} now): let servers move one after another"
            ]
    return []


def infeasible(state: SwarmState, policy: Policy, workers: int, reason: str, created_at: float) -> Plan:
    """A plan that asks for nothing, and says why nothing can be asked."""
    servers = tuple(
        PlannedServer(
            peer_id=server.peer_id,
            public_name=server.public_name,
            movable=False,
            why_not="infeasible demands",
            state=server.state.value,
            throughput=server.throughput,
            current=server.span,
            target=server.span,
            loaded=(),
            dropped=(),
            kept=server.span.length if server.span is not None else 0,
            reload_seconds=0.0,
            offline=tuple(sorted(server.offline)),
        )
        for server in state.servers
    )
    before, after = _before(state), _after(state, {server.peer_id: server.span for server in state.servers}, servers)
    bottleneck = after.min_throughput
    return Plan(
        prefix=state.prefix,
        num_blocks=state.num_blocks,
        created_at=created_at,
        status="infeasible",
        state_fingerprint=state.fingerprint(),
        before=before,
        after=after,
        staying=Staying(bottleneck, bottleneck, after.holes),
        objective=Objective(bottleneck, bottleneck, 0.0, bottleneck, "only placement"),
        servers=servers,
        waves=(),
        baseline=petals_baseline(state, policy),
        warnings=(reason, *state.warnings),
        search=Search(0.0, workers, policy.seed, policy, (), 1.0, 0.0),
    )
