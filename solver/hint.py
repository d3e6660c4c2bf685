"""Placements to start the proof from: nobody moves, what the Petals rule comes to, and a local search's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from solver.anneal import anneal
from solver.petals_rule import best_start, run_to_end, simulate
from solver.problem import Placement, Problem, Span
from solver.validator import Evaluation, InvalidPlacement, evaluate

SHUFFLES = 8
"""Runs of the Petals rule, each with its own order of the servers."""
MAX_LOOKS = 30_000
"""Looks at a server after which a run of the rule is broken off: a hint need not be the rule's last word."""
FEW_SERVERS, FEW_ROUNDS = 12, 2
"""So few servers are searched through in so many rounds of walks; with more, longer search finds more."""


class StartingPoint:
    """The best valid placement so far, with its worth; falsy and empty while there is none."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.placement: Placement | None = None
        self.worth: Evaluation | None = None

    def offer(self, placements: Iterable[Placement]) -> None:
        """Keep the best of those that keep all demands."""
        for placement in placements:
            try:
                worth = evaluate(self._problem, placement)
            except InvalidPlacement:
                continue
            if self.worth is None or worth.better_than(self.worth):
                self.placement, self.worth = placement, worth


def starting_point(
    problem: Problem, seed: int, given: StartingPoint, keep_on: Callable[[float | None], bool]
) -> StartingPoint:
    """Collect placements from all of this module's sources.

    Parameters
    ----------
    given
        What is known already; it stays as it is.
    keep_on
        Asked often with the best objective so far (RPS); False ends the search.
    """
    best = StartingPoint(problem)
    best.placement, best.worth = given.placement, given.worth

    def ask() -> bool:
        return keep_on(None if best.worth is None else best.worth.objective)

    if best.placement is None:
        return best
    staying = nobody_moves(problem)
    best.offer(_petals_rule(problem, best.placement, seed, ask))
    rounds = 0
    while ask() and (len(problem.servers) > FEW_SERVERS or rounds < FEW_ROUNDS):
        best.offer(anneal(problem, staying, seed + rounds, ask))
        rounds += 1
    return best


def nobody_moves(problem: Problem) -> Placement:
    """Everyone stays who may; pinned servers take their span, others join one by one where the Petals rule says."""
    spans: dict[int, Span] = {}
    throughput = np.array(problem.base_throughput)
    joining = []
    for index, server in enumerate(problem.servers):
        span = server.only or (server.current if server.may_stay else None)
        if span is None:
            joining.append(index)
            continue
        spans[index] = span
        throughput[span.start : span.end] += server.throughput[span.length]
    for index in joining:
        server = problem.servers[index]
        length = max(server.throughput)
        start = best_start(throughput, length)
        span = Span(start, start + length)
        if not server.may_stay and span == server.current:
            starts, ends = problem.candidates(server)
            span = Span(int(starts[0]), int(ends[0]))
        spans[index] = span
        throughput[span.start : span.end] += server.throughput[span.length]
    return tuple(spans[index] for index in range(len(problem.servers)))


def _petals_rule(problem: Problem, start: Placement, seed: int, keep_on: Callable[[], bool]) -> Iterator[Placement]:
    """The rule as servers run it, and as it imagines the swarm would go on, in several shuffles."""
    starts = np.array([span.start for span in start])
    lengths = np.array([span.length for span in start])
    rps = np.array([server.throughput[span.length] for server, span in zip(problem.servers, start, strict=True)])
    movable = np.array([server.only is None for server in problem.servers])
    base = np.array(problem.base_throughput)
    for shuffle in range(seed, seed + SHUFFLES):
        if not keep_on():
            return
        run = run_to_end(
            starts, lengths, rps, problem.num_blocks, shuffle, movable=movable, base=base, max_looks=MAX_LOOKS
        )
        imagined = simulate(
            starts,
            lengths,
            rps,
            problem.num_blocks,
            np.random.RandomState(shuffle),
            movable=movable,
            base=base,
        )
        for targets in (run.starts, imagined):
            yield tuple(Span(int(at), int(at + length)) for at, length in zip(targets, lengths, strict=True))
