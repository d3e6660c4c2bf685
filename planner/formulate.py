"""From a swarm's state and a policy to the solver's numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.costs import load_seconds
from planner.coverage import runs_of
from planner.errors import InfeasibleDemands
from planner.hops import fewest_hops
from planner.policy import Policy
from planner.selection import Role, assign_roles
from planner.state import Server, SwarmState
from solver.problem import Placement, Problem, Span
from solver.problem import Server as SolverServer


@dataclass(frozen=True)
class Formulation:
    """The placement problem of a state under a policy.

    Parameters
    ----------
    problem
        The numbers; its servers are those named in `placed`, in that order.
    placed
        Peer ids of the servers that the solver places, ascending.
    roles
        What may be done with each server, by peer id.
    warnings
        What the operator should know about the demands.
    """

    state: SwarmState
    policy: Policy
    problem: Problem
    placed: tuple[str, ...]
    roles: Mapping[str, Role]
    warnings: tuple[str, ...]

    def targets(self, placement: Placement) -> dict[str, Span | None]:
        """The target span of every server of the state, by peer id; None for an empty one."""
        found: dict[str, Span | None] = dict(zip(self.placed, placement, strict=True))
        for server in self.state.servers:
            role = self.roles[server.peer_id]
            found.setdefault(server.peer_id, None if role.drained else server.span)
        return found

    def staying(self) -> Problem:
        """The same problem where only newcomers are placed: whoever holds a span, and is not pinned, keeps it.

        However many hops that makes: what the swarm is like already need not be what is asked for.
        """
        servers = [
            replace(server, only=server.current, throughput={**server.throughput})
            if server.current is not None and server.only is None
            else server
            for server in self.problem.servers
        ]
        return replace(self.problem, servers=tuple(servers), max_hops=None)

    def going_on(self, under_way: Mapping[str, Span | None], staying: Placement) -> Placement:
        """The placement in which every server takes the span that an earlier plan gave it.

        Parameters
        ----------
        under_way
            The earlier plan's targets, by peer id.
        staying
            Where a server is otherwise, whether the earlier plan did not know it, drained it, or gave it a span that
            it may not take now.
        """
        spans = []
        for peer_id, server, otherwise in zip(self.placed, self.problem.servers, staying, strict=True):
            target = under_way.get(peer_id)
            takes = target is not None and target.length in server.throughput and server.only in (None, target)
            spans.append(target if takes and target is not None else otherwise)
        return tuple(spans)


def formulate(state: SwarmState, policy: Policy) -> Formulation:
    """Pose the placement problem. `policy` has whole peer ids, and its spans are in `state` already.

    Raises
    ------
    InfeasibleDemands
        If the demands contradict each other.
    """
    roles = assign_roles(state, policy)
    constants = [s for s in state.servers if roles[s.peer_id].why_not is not None and s.span is not None]
    placed = [s for s in state.servers if roles[s.peer_id].why_not is None and not roles[s.peer_id].drained]
    servers = tuple(_solver_server(state, policy, server, roles[server.peer_id]) for server in placed)
    throughput: list[list[float]] = [[] for _ in range(state.num_blocks)]
    runs: list[Span] = []
    for server in constants:
        runs += runs_of(server.held)
        for block in server.held:
            throughput[block].append(server.throughput)
    # A swarm that was not seen whole may have shorter chains than those seen.
    max_hops = None if state.partial else policy.max_hops
    drained = sum(role.drained for role in roles.values())
    max_moves, move_warnings = _limit("--max-moves", policy.max_moves, _forced_moves(servers), drained, "moves")
    max_loads, load_warnings = _limit("--max-loads", policy.max_loads, _forced_loads(servers), 0, "blocks")
    problem = Problem(
        num_blocks=state.num_blocks,
        servers=servers,
        base_throughput=tuple(math.fsum(block) for block in throughput),
        base_replicas=tuple(len(block) for block in throughput),
        horizon=policy.horizon,
        min_replicas=policy.min_replicas,
        max_moves=max_moves,
        max_loads=max_loads,
        base_spans=tuple(runs),
        max_hops=max_hops,
    )
    _check_hops(problem)
    about_lengths = _about_lengths(placed, servers) if policy.resize else []
    warnings = (*_about_movability(state, roles), *about_lengths, *move_warnings, *load_warnings)
    return Formulation(state, policy, problem, tuple(server.peer_id for server in placed), roles, warnings)


def _solver_server(state: SwarmState, policy: Policy, server: Server, role: Role) -> SolverServer:
    seconds = load_seconds(server, policy, state.num_blocks)
    if role.only is not None:
        length = role.only.length
        return SolverServer(
            server.span, {length: server.throughput_at(length)}, seconds, only=role.only, may_stay=False
        )
    throughput = {length: server.throughput_at(length) for length in _lengths(state, policy, server)}
    return SolverServer(server.span, throughput, seconds)


def _lengths(state: SwarmState, policy: Policy, server: Server) -> list[int]:
    """The lengths that a free server may take: it may always stay, and a newcomer always take its capacity."""
    capacity = server.capacity(state.num_blocks)
    present = server.span.length if server.span is not None else capacity
    return sorted({present, *(range(min(policy.min_span, capacity), capacity + 1) if policy.resize else ())})


def _check_hops(problem: Problem) -> None:
    """See whether the limit on hops leaves any placement; what cannot cover the model anyway is not asked.

    Raises
    ------
    InfeasibleDemands
        If the servers' lengths are too short for so few of them.
    """
    if problem.max_hops is None:
        return
    fixed = [*problem.base_spans, *(server.only for server in problem.servers if server.only is not None)]
    free = [max(server.throughput) for server in problem.servers if server.only is None]
    fewest = fewest_hops(problem.num_blocks, fixed, free)
    if fewest is not None and fewest > problem.max_hops:
        raise InfeasibleDemands(
            f"--max-hops {problem.max_hops} cannot be kept: with the lengths that the servers may take, a request"
            f" needs {fewest} of them at least"
        )


def _forced_moves(servers: tuple[SolverServer, ...]) -> int:
    return sum(server.current is None or server.only is not None for server in servers)


def _forced_loads(servers: tuple[SolverServer, ...]) -> int:
    total = 0
    for server in servers:
        if server.only is not None:
            total += server.only.length - (server.only.overlap(server.current) if server.current is not None else 0)
        elif server.current is None:
            total += min(server.throughput)
    return total


def _limit(option: str, limit: int | None, forced: int, drained: int, unit: str) -> tuple[int | None, tuple[str, ...]]:
    """The limit that is left for the solver; newcomers, pins and drains come first and always pass."""
    if limit is None:
        return None, ()
    if limit >= forced + drained:
        return limit - drained, ()
    return forced, (
        f"{option} {limit} is less than the {forced + drained} {unit} that newcomers, pins and drains need",
    )


def _about_lengths(placed: list[Server], servers: tuple[SolverServer, ...]) -> list[str]:
    unknown = 0
    for server, problem in zip(placed, servers, strict=True):
        # What a newcomer announces is for all that it can hold.
        lengths = set(problem.throughput) - ({max(problem.throughput)} if server.span is None else set())
        unknown += not all(server.knows_throughput_at(length) for length in lengths)
    if not unknown:
        return []
    them = "server" if unknown == 1 else "servers"
    return [f"the throughput of {unknown} {them} at other lengths is unknown, and taken to be what is announced"]


def _about_movability(state: SwarmState, roles: Mapping[str, Role]) -> list[str]:
    if not any(server.agent is not None for server in state.servers):
        return ["no server runs an agent: this plan is advice, servers will not follow it by themselves"]
    free = [server for server in state.servers if roles[server.peer_id].why_not is None]
    without = sum(server.agent is None for server in free)
    if without:
        return [f"{without} of the {len(free)} servers that may move run no agent: their moves are advice"]
    return []
