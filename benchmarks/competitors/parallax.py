"""Parallax's layer allocation: pipelines by dynamic programming or greedily, water-filled; the rest to the lightest.

From GradientHQ/parallax, `src/scheduling/layer_allocation.py` (the paper: arXiv 2509.26182), told anew from what it
does. Its memory is a server's capacity here, its compute power the throughput of one block, and the load of a block
the RPS that it has (there: KV memory). Embeddings and the head are no blocks in Petals: nothing is set aside for them.

The dynamic program is its default; as it grows exponentially with the servers, its greedy rule stands in where it
passes `MAX_STATES`. Where lengths are fixed there is nothing to water-fill: spans follow one another along the
model, and one that would stick out at its end is pulled back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.competitors.answer import Answer, DoesNotApply, Task
from solver import Problem, Server, Span

MAX_STATES = 100_000
"""States of the dynamic program after which it is given up: some 2 s."""
MAX_SERVERS = 200
"""Servers of which each is a level of its recursion."""
HALVINGS = 40
"""Steps of the search for the water's level, as there."""


def answer(task: Task) -> list[Answer]:
    """Pipelines, each water-filled, and then the servers that are left."""
    problem = task.problem
    capacities = [max(server.throughput) for server in problem.servers]
    order = sorted(range(len(capacities)), key=lambda index: -capacities[index])
    ordered = [capacities[index] for index in order]
    if sum(ordered) < problem.num_blocks:
        raise DoesNotApply("it needs room for one whole pipeline")
    pipelines, how = by_dynamic_program(ordered, problem.num_blocks), "dynamic program"
    if pipelines is None:
        pipelines, how = greedily(ordered, problem.num_blocks), "greedy"
    spans: dict[int, Span] = {}
    for pipeline in pipelines:
        spans.update(_laid(problem, [order[position] for position in pipeline]))
    load = list(problem.base_throughput)
    for index, span in spans.items():
        _add(load, problem.servers[index], span)
    for index in order:
        if index not in spans:
            spans[index] = _joined(problem, problem.servers[index], load)
            _add(load, problem.servers[index], spans[index])
    note = f"{how}, pipelines: {len(pipelines)}"
    return [Answer(tuple(spans[index] for index in range(len(order))), note=note)]


# Pipelines: lists of positions among capacities that descend ------------------------------------------------


def greedily(capacities: list[int], num_blocks: int) -> list[list[int]]:
    """One pipeline after another, each of the largest servers left; one server that holds all, where there is such,
    is the smallest of those that leave room for another pipeline."""
    left, room, pipelines = list(range(len(capacities))), sum(capacities), []
    while room >= num_blocks:
        spare = room - num_blocks
        alone = None
        for place, position in enumerate(left):
            if capacities[position] < num_blocks or spare <= num_blocks:
                break
            if spare >= capacities[position]:
                alone = place
        pipeline = [] if alone is None else [left.pop(alone)]
        lacking = num_blocks - sum(capacities[position] for position in pipeline)
        while lacking > 0:
            pipeline.append(left[len(pipeline)])
            lacking -= capacities[pipeline[-1]]
        if alone is None:
            left = left[len(pipeline) :]
        room -= sum(capacities[position] for position in pipeline)
        pipelines.append(pipeline)
    return pipelines


class _State(NamedTuple):
    """What is left to do: servers from `position` on, blocks that open pipelines lack, and pipelines closed."""

    position: int
    lacking: tuple[int, ...]
    closed: int


def by_dynamic_program(capacities: list[int], num_blocks: int) -> list[list[int]] | None:
    """The k pipelines with the highest k² / (stages in all), each k with its fewest stages; None: too many states."""
    if len(capacities) > MAX_SERVERS:
        return None
    best: tuple[float, list[list[int]]] = (-math.inf, [])
    states = 0
    for wanted in range(1, min(len(capacities), sum(capacities) // num_blocks) + 1):
        program = _Program(capacities, num_blocks, wanted, MAX_STATES - states)
        try:
            stages = program.fewest(_State(0, (), 0))
        except OverflowError:
            return None
        states += len(program.known)
        if stages < math.inf and wanted * wanted / stages > best[0]:
            best = (wanted * wanted / stages, program.pipelines())
    return best[1]


class _Program:
    """The fewest stages that make `wanted` pipelines, by states."""

    def __init__(self, capacities: list[int], num_blocks: int, wanted: int, max_states: int) -> None:
        self.capacities, self.num_blocks, self.wanted, self.max_states = capacities, num_blocks, wanted, max_states
        self.known: dict[_State, tuple[float, int | None]] = {}
        """Stages, and the choice: -1 a new pipeline, else the place of the open one that is joined; None: skip."""

    def fewest(self, state: _State) -> float:
        position, lacking, closed = state
        if closed == self.wanted and not lacking:
            return 0
        unopened = self.wanted - closed - len(lacking)
        room = sum(self.capacities[position:])
        if room < sum(lacking) + unopened * self.num_blocks or len(self.capacities) - position < unopened:
            return math.inf
        if state not in self.known:
            if len(self.known) >= self.max_states:
                raise OverflowError
            self.known[state] = (math.inf, None)  # counted before what it leads to
            options: list[tuple[float, int | None]] = [(self.fewest(_State(position + 1, lacking, closed)), None)]
            for choice in [*range(len(lacking)), *([-1] if unopened else [])]:
                options.append((1 + self.fewest(self.after(state, choice)), choice))
            self.known[state] = min(options, key=lambda option: option[0])  # the first among equals, as there
        return self.known[state][0]

    def after(self, state: _State, choice: int | None) -> _State:
        position, lacking, closed = state
        if choice is None:
            return _State(position + 1, lacking, closed)
        left = (self.num_blocks if choice < 0 else lacking[choice]) - self.capacities[position]
        others = lacking if choice < 0 else lacking[:choice] + lacking[choice + 1 :]
        if left <= 0:
            return _State(position + 1, others, closed + 1)
        return _State(position + 1, tuple(sorted((*others, left))), closed)

    def pipelines(self) -> list[list[int]]:
        """Those of the fewest stages, by going through the choices again."""
        state, done = _State(0, (), 0), []
        opened: list[tuple[int, list[int]]] = []  # what it lacks, and its servers; sorted as in the state
        while not (state.closed == self.wanted and not state.lacking):
            choice = self.known[state][1]
            if choice is not None:
                lacks, servers = (self.num_blocks, []) if choice < 0 else opened.pop(choice)
                lacks -= self.capacities[state.position]
                servers = [*servers, state.position]
                if lacks <= 0:
                    done.append(servers)
                else:
                    opened = sorted([*opened, (lacks, servers)])
            state = self.after(state, choice)
        return done


# Spans --------------------------------------------------------------------------------------------------


def water_filled(num_blocks: int, capacities: list[int], power: list[float]) -> list[int]:
    """Blocks of each stage: proportional to power up to the capacity, by largest remainders."""

    def filled(level: float) -> list[float]:
        return [min(capacity, level * one) for capacity, one in zip(capacities, power, strict=True)]

    low, high = 0.0, max(capacity / one for capacity, one in zip(capacities, power, strict=True))
    for _ in range(HALVINGS):
        level = (low + high) / 2
        low, high = (low, level) if sum(filled(level)) >= num_blocks else (level, high)
    exact = filled(high)
    shares = [math.floor(share) for share in exact]
    for index in sorted(range(len(shares)), key=lambda index: shares[index] - exact[index]):
        if sum(shares) < num_blocks and shares[index] < capacities[index]:
            shares[index] += 1
    return shares


def _laid(problem: Problem, pipeline: list[int]) -> dict[int, Span]:
    """Spans of a pipeline's servers, from the first block to the last; one without blocks is left out."""
    servers = [problem.servers[index] for index in pipeline]
    capacities = [max(server.throughput) for server in servers]
    if all(len(server.throughput) == 1 for server in servers):
        shares = capacities
    else:
        power = [server.throughput[min(server.throughput)] for server in servers]
        if not all(power):
            raise DoesNotApply("a server has no power, so there is no level of the water")
        shares = water_filled(problem.num_blocks, capacities, power)
    laid, start = {}, 0
    for index, share in zip(pipeline, shares, strict=True):
        if share:
            laid[index] = _fitting(problem, problem.servers[index], start, share)
            start += share
    return laid


def _joined(problem: Problem, server: Server, load: list[float]) -> Span:
    """Where a server goes that is in no pipeline: to the lightest block, and as far as it can hold."""
    lightest = load.index(min(load))
    return _fitting(problem, server, lightest, min(max(server.throughput), problem.num_blocks - lightest))


def _fitting(problem: Problem, server: Server, start: int, length: int) -> Span:
    if len(server.throughput) == 1:  # the length is fixed
        (length,) = server.throughput
        start = min(start, problem.num_blocks - length)
    if length not in server.throughput:
        raise DoesNotApply("a server's share is of a length that it may not take")
    return Span(start, start + length)


def _add(load: list[float], server: Server, span: Span) -> None:
    for block in range(*span):
        load[block] += server.throughput[span.length]
