"""Placements that are known before any search: nobody moves, what the Petals rule comes to, and the best of some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from solver.petals_rule import best_start, run_to_end, simulate
from solver.problem import Placement, Problem, Span
from solver.validator import Evaluation, InvalidPlacement, evaluate

SHUFFLES = 8
"""Runs of the Petals rule, each with its own order of the servers."""
MAX_LOOKS = 30_000
"""Looks at a server after which a run of the rule is broken off: a start need not be the rule's last word."""


class StartingPoint:
    """The best valid placement so far, with its worth; falsy and empty while there is none."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.placement: Placement | None = None
        self.worth: Evaluation | None = None

    def offer(self, placements: Iterable[Placement]) -> bool:
        """Keep the best of those that keep all demands; whether one was better than what was known."""
        better = False
        for placement in placements:
            try:
                worth = evaluate(self._problem, placement)
            except InvalidPlacement:
                continue
            if self.worth is None or worth.better_than(self.worth):
                self.placement, self.worth, better = placement, worth, True
        return better

    def copy(self) -> StartingPoint:
        """The same, to go on from."""
        other = StartingPoint(self._problem)
        other.placement, other.worth = self.placement, self.worth
        return other

    @property
    def objective(self) -> float | None:
        """Of the best placement so far, RPS."""
        return None if self.worth is None else self.worth.objective


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


def petals_rule(problem: Problem, start: Placement, seed: int, keep_on: Callable[[], bool]) -> Iterator[Placement]:
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
