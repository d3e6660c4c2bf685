"""Petals' own greedy rule for choosing blocks, told in numbers.

The rule is that of `petals.server.block_selection` in Petals 2.2.0.post1 (MIT licence), written anew from its
behaviour: `best_start` is its `_choose_best_start`, `verdict` its `should_choose_other_blocks`, `simulate` the
loop inside that. Every sum is formed in the order in which Petals forms it (servers by peer id), so that
decisions are equal to the last bit; a caller keeps the servers in that order.

`run_to_end` is the yardstick that plans are compared with: what a swarm of stock servers comes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solver.petals_swarm import BALANCE_QUALITY, MAX_SWEEPS, WAITING, Load, Shuffler, Swarm, Verdict, lowest_window

__all__ = [
    "BALANCE_QUALITY",
    "MAX_LOOKS",
    "MAX_SWEEPS",
    "WAITING",
    "Load",
    "RuleRun",
    "Shuffler",
    "Verdict",
    "best_start",
    "run_to_end",
    "simulate",
    "verdict",
]

MAX_LOOKS = 300_000
"""Looks at a server after which `run_to_end` is broken off; some 2 to 3 s, in swarms that need so many."""


@dataclass(frozen=True)
class RuleRun:
    """The rule, run to its end.

    Parameters
    ----------
    starts
        First block of every server in the end, shape ``(servers,)``.
    moves
        All joins and restarts in their order; a server may be in it several times.
    rounds
        Rounds over the servers, the last, quiet one included.
    settled
        Whether the last round was quiet: False where the rounds, or the looks, ran out first.
    """

    starts: NDArray[np.int64]
    moves: tuple[Load, ...]
    rounds: int
    settled: bool


def best_start(throughputs: ArrayLike, length: int) -> int:
    """First block of the window that needs a server most: its sorted throughputs are lexicographically smallest.

    Ties go to the smallest start.

    Parameters
    ----------
    throughputs
        RPS of every block, shape ``(num_blocks,)``.
    length
        Blocks in the window.

    Raises
    ------
    ValueError
        If `length` is not from 1 to the number of blocks.
    """
    blocks = np.asarray(throughputs, dtype=np.float64)
    if not 1 <= length <= blocks.size:
        raise ValueError(f"a window of {length} blocks does not fit into {blocks.size} blocks")
    return lowest_window(blocks, length)


def verdict(
    starts: ArrayLike,
    lengths: ArrayLike,
    rps: ArrayLike,
    server: int,
    num_blocks: int,
    rng: Shuffler,
    balance_quality: float = BALANCE_QUALITY,
    base: ArrayLike | None = None,
) -> Verdict:
    """Should this server choose other blocks? As stock Petals answers.

    Parameters
    ----------
    starts, lengths, rps
        First block, blocks and RPS per block of every server in order of peer id, each of shape
        ``(servers,)``; newcomers, with a start of `WAITING`, are not seen.
    server
        The index of the one that asks.
    num_blocks
        Blocks of the model.
    rng
        Shuffles the servers for each sweep of the simulation. Petals uses numpy's global state: a
        `numpy.random.RandomState` with its seed gives the same stream.
    balance_quality
        The server restarts only below this quality; above 1 it always does.
    base
        RPS per block that nothing can move, shape ``(num_blocks,)``.

    Raises
    ------
    ValueError
        If the arrays contradict each other, a span is outside the model, or `server` is a newcomer.
    """
    swarm = Swarm.checked(starts, lengths, rps, num_blocks, base)
    if not (0 <= server < len(swarm.starts) and swarm.starts[server] != WAITING):
        raise ValueError(f"server {server} holds no blocks, so it cannot ask whether to choose others")
    return swarm.verdict(server, swarm.throughputs(), rng, balance_quality)


def simulate(
    starts: ArrayLike,
    lengths: ArrayLike,
    rps: ArrayLike,
    num_blocks: int,
    rng: Shuffler,
    *,
    movable: Sequence[bool] | NDArray[np.bool_] | None = None,
    base: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Where the servers come to if everybody takes the best place at no cost, in sweeps until nobody moves.

    This is what a verdict compares the swarm with. It moves more servers than `run_to_end`, which stops
    once the balance quality is reached, and mostly ends with a higher bottleneck.

    Parameters
    ----------
    starts, lengths, rps, num_blocks, rng, base
        As for `verdict`.
    movable
        Who moves, shape ``(servers,)``; the others stay where they are, and count. None: all.

    Returns
    -------
    numpy.ndarray
        First block of every server, shape ``(servers,)``.

    Raises
    ------
    ValueError
        If the arrays contradict each other, or a span is outside the model.

    Notes
    -----
    In exact arithmetic it ends: each move makes the sorted throughputs of the whole swarm lexicographically
    larger, so that no placement returns, and the bottleneck never falls. In floats each look at a server may
    leave a rounding error, which could in principle drive a server around whose throughput is no larger than
    such errors. No such case was found (random swarms end within some 20 sweeps), and Petals would hang in it;
    here `MAX_SWEEPS` sweeps are the end.
    """
    swarm = Swarm.checked(starts, lengths, rps, num_blocks, base)
    mask = _mask(movable, len(swarm.starts))
    places = {server: start for server, start in swarm.present() if mask[server]}
    swarm.simulate(swarm.throughputs(), places, rng)
    return np.array([places.get(server, start) for server, start in enumerate(swarm.starts)], dtype=np.int64)


def run_to_end(
    starts: ArrayLike,
    lengths: ArrayLike,
    rps: ArrayLike,
    num_blocks: int,
    seed: int,
    *,
    movable: Sequence[bool] | NDArray[np.bool_] | None = None,
    base: ArrayLike | None = None,
    prune: bool = True,
    max_looks: int = MAX_LOOKS,
) -> RuleRun:
    """Run the rule until nobody moves: rounds over the servers in shuffled order, each acting on its verdict.

    Newcomers join first, one after another in order of index. A server that restarts takes its records
    out, so it chooses the best start in the swarm without it, as a stock server does; that may be the
    place it came from. At most as many rounds as servers.

    Parameters
    ----------
    starts, lengths, rps, num_blocks, base
        As for `verdict`; a start of `WAITING` marks a newcomer.
    seed
        Seed of all shuffles, from 0 to 2**32 - 1.
    movable
        Who runs the rule, shape ``(servers,)``; the others stay where they are, and count. None: all.
    prune
        Cut short verdicts that are certain; False works out all of them, with the same result.
    max_looks
        Break off once the simulations have looked so often at some server, so that a large swarm which
        none of the shortcuts fits does not take minutes; a count, not a time, keeps the result reproducible.

    Raises
    ------
    ValueError
        As for `verdict`.

    Notes
    -----
    Two verdicts are certain early. No placement lifts the bottleneck above the mean throughput of a block: while
    it is at least `BALANCE_QUALITY` of that mean, nobody restarts. And as a simulation never lowers the
    bottleneck, it can stop once it is high enough for a restart. Each verdict has shuffles of its own, drawn
    from (seed, round, server), so that what one skips does not change the others.
    """
    swarm = Swarm.checked(starts, lengths, rps, num_blocks, base)
    count = len(swarm.starts)
    mask = _mask(movable, count)
    moves = [swarm.settle(server) for server in range(count) if swarm.starts[server] == WAITING]
    throughputs = swarm.throughputs()
    for round_ in range(count):
        quiet = True
        order = np.flatnonzero(mask).tolist()
        np.random.RandomState([seed, round_]).shuffle(order)
        for server in order:
            if prune and swarm.balanced(throughputs):
                break
            if swarm.looks >= max_looks:
                return _run(swarm, moves, round_ + 1, settled=False)
            rng = np.random.RandomState([seed, round_, server])
            if swarm.verdict(server, throughputs, rng, BALANCE_QUALITY, early=prune).restart:
                moves.append(swarm.settle(server))
                throughputs = swarm.throughputs()
                quiet = False
        if quiet:
            return _run(swarm, moves, round_ + 1, settled=True)
    return _run(swarm, moves, count, settled=count == 0)


def _run(swarm: Swarm, moves: list[Load], rounds: int, *, settled: bool) -> RuleRun:
    return RuleRun(np.array(swarm.starts, dtype=np.int64), tuple(moves), rounds, settled)


def _mask(movable: Sequence[bool] | NDArray[np.bool_] | None, count: int) -> NDArray[np.bool_]:
    mask = np.ones(count, dtype=bool) if movable is None else np.asarray(movable, dtype=bool)
    if mask.shape != (count,):
        raise ValueError(f"movable needs one entry for each of the {count} servers")
    return mask
