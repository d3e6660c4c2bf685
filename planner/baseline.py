"""What stock Petals servers would do with the same swarm: the yardstick of every plan.

Stock Petals knows nothing of pins, drains or agents, and reads an uncertain server as its first to last
visible block; so the rule runs on `Server.seen`, for everybody, JOINING servers and newcomers included. What it
comes to is then measured as a plan is: a server that the rule leaves alone counts with the blocks it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.costs import load_seconds
from planner.plan import Baseline
from planner.policy import Policy
from planner.state import Server, SwarmState
from solver.petals_rule import WAITING, RuleRun, Verdict, run_to_end, verdict
from solver.problem import Span


def petals_baseline(state: SwarmState, policy: Policy) -> Baseline:
    """Run Petals' own rule on `state` to its end and measure what it comes to.

    Parameters
    ----------
    state
        The swarm. A newcomer whose capacity is unknown goes on waiting.
    policy
        Its `seed`, `horizon` and `seconds_per_block` count; what the operator asks of servers does not.

    Returns
    -------
    Baseline
        The bottleneck in RPS over the covered blocks; the objective is that less the penalty of loading the
        whole span at every join and restart. `servers_moved` counts the servers that joined or restarted at
        least once, also where the last restart led back to where they began.
    """
    servers = [server for server in state.servers if _length(server, state.num_blocks) > 0]
    lengths = [_length(server, state.num_blocks) for server in servers]
    run = run_to_end(*_columns(servers, lengths), state.num_blocks, policy.seed)
    moved = {move.server for move in run.moves}
    throughput, replicas = np.zeros(state.num_blocks), np.zeros(state.num_blocks, dtype=np.int64)
    for index, server in enumerate(servers):
        start = int(run.starts[index])
        held = sorted(range(start, start + lengths[index]) if index in moved else server.held)
        throughput[held] += server.throughput
        replicas[held] += 1
    covered = replicas > 0
    bottleneck = float(throughput[covered].min()) if covered.any() else 0.0
    return Baseline(
        min_throughput=bottleneck,
        holes=int(np.count_nonzero(~covered)),
        objective=bottleneck - _reload_penalty(servers, lengths, run, policy, state.num_blocks),
        blocks_loaded=sum(lengths[move.server] for move in run.moves),
        servers_moved=len(moved),
        rounds=run.rounds,
        settled=run.settled,
    )


def petals_verdict(state: SwarmState, peer_id: str, seed: int) -> Verdict:
    """What Petals' own rule says to one server of `state`, with balance quality 0.75.

    Parameters
    ----------
    seed
        Seed of the simulation's shuffles, from 0 to 2**32 - 1.

    Raises
    ------
    ValueError
        If no server of `state` has that peer id, or it holds no blocks: Petals asks only who serves.
    """
    servers = [server for server in state.servers if server.span is not None]
    index = next((index for index, server in enumerate(servers) if server.peer_id == peer_id), None)
    if index is None:
        raise ValueError(f"{peer_id} holds no blocks of {state.prefix}")
    lengths = [_length(server, state.num_blocks) for server in servers]
    return verdict(*_columns(servers, lengths), index, state.num_blocks, np.random.RandomState(seed))


def _seen(server: Server) -> Span | None:
    return server.span if server.seen is None else server.seen


def _length(server: Server, num_blocks: int) -> int:
    seen = _seen(server)
    return server.capacity(num_blocks) if seen is None else seen.length


def _columns(servers: Sequence[Server], lengths: list[int]) -> tuple[list[int], list[int], list[float]]:
    """Starts, lengths and RPS of the servers, as the rule takes them."""
    spans = [_seen(server) for server in servers]
    starts = [WAITING if span is None else span.start for span in spans]
    return starts, lengths, [server.throughput for server in servers]


def _reload_penalty(
    servers: Sequence[Server], lengths: list[int], run: RuleRun, policy: Policy, num_blocks: int
) -> float:
    """RPS that all joins and restarts cost over the horizon, each loading the whole span."""
    penalty = 0.0
    for move in run.moves:
        server = servers[move.server]
        seconds = sum(load_seconds(server, policy, num_blocks)[move.new : move.new + lengths[move.server]])
        penalty += server.throughput * seconds / policy.horizon
    return penalty
