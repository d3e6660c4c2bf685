"""Petals' own rule, of `petals.server.block_selection` in Petals 2.2.0.post1, as `solver.petals_rule` tells it.

A stock server that moves restarts, and loads its whole span anew; so the rule is charged for that, at every join and
restart. Its simulation, which looks what would be if everybody went on moving, is measured as well: nobody carries
that out, so it is charged for what is new only, as a plan is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.competitors.answer import Answer, Charged, End, Task
from solver import Evaluation, Placement, Problem, RuleRun, Span, evaluate, run_to_end, simulate
from solver.petals_rule import WAITING

SHUFFLES = range(8)
"""Seeds of the shuffles in which servers look around."""

Spans = tuple[Span | None, ...]


def answer(task: Task) -> list[Answer]:
    """Best and median of the shuffles, by objective, and the best of the simulation."""
    problem = task.problem
    spans = task.seen or tuple(server.current for server in problem.servers)
    runs = [_run(problem, spans, seed) for seed in SHUFFLES]
    ends = tuple(end for _, _, end in runs)
    ranked = sorted(runs, key=lambda found: found[0])
    median = ranked[(len(ranked) - 1) // 2][1]
    imagined = max(
        (_imagined(problem, spans, seed) for seed in SHUFFLES), key=lambda one: _rank(evaluate(problem, one))
    )
    note = "nobody carries it out"
    return [
        replace(ranked[-1][1], ends=ends),
        replace(median, of="median"),
        Answer(imagined, of="imagined best", note=note),
    ]


def _run(problem: Problem, seen: Spans, seed: int) -> tuple[tuple[int, float], Answer, End]:
    starts, lengths, rps = _columns(problem, seen)
    run = run_to_end(starts, lengths, rps, problem.num_blocks, seed, base=problem.base_throughput)
    moved = {move.server for move in run.moves}
    placement = _spans(problem, run.starts, lengths, moved)
    worth = evaluate(problem, placement)
    penalty, loads = stock_charge(problem, run, lengths)
    note = "" if run.settled else "broken off: it does not settle"
    charged = Charged(worth.min_throughput - penalty, loads)
    answer = Answer(placement, of="best", note=note, charged=charged)
    return (-worth.holes, charged.objective), answer, End(worth.min_throughput, worth.holes, loads)


def stock_charge(problem: Problem, run: RuleRun, lengths: list[int]) -> tuple[float, int]:
    """RPS that all joins and restarts of a run cost over the horizon, each loading a whole span; and those blocks."""
    penalties, loads = [], 0
    for move in run.moves:
        server, length = problem.servers[move.server], lengths[move.server]
        seconds = math.fsum(server.load_seconds[move.new : move.new + length])
        penalties.append(server.throughput[length] * seconds / problem.horizon)
        loads += length
    return math.fsum(penalties), loads


def _imagined(problem: Problem, seen: Spans, seed: int) -> Placement:
    starts, lengths, rps = _columns(problem, seen)
    # The simulation knows no newcomers: they join first, as in a run, and each where the rule puts it.
    joined = run_to_end(starts, lengths, rps, problem.num_blocks, seed, base=problem.base_throughput, max_looks=0)
    chance = np.random.RandomState(seed)
    reached = simulate(joined.starts, lengths, rps, problem.num_blocks, chance, base=problem.base_throughput)
    moved = {index for index, start in enumerate(starts) if reached[index] != start}
    return _spans(problem, reached, lengths, moved)


def _rank(worth: Evaluation) -> tuple[int, float]:
    return -worth.holes, worth.objective


def _columns(problem: Problem, seen: Spans) -> tuple[list[int], list[int], list[float]]:
    """Starts, lengths and RPS as the rule takes them: a newcomer takes as many blocks as it can hold."""
    lengths = [
        max(server.throughput) if span is None else span.length
        for server, span in zip(problem.servers, seen, strict=True)
    ]
    starts = [WAITING if span is None else span.start for span in seen]
    rps = [server.throughput[length] for server, length in zip(problem.servers, lengths, strict=True)]
    return starts, lengths, rps


def _spans(problem: Problem, starts: NDArray[np.int64], lengths: list[int], moved: set[int]) -> Placement:
    """Who has not moved holds what it did, whatever others saw of it."""
    return tuple(
        Span(start, start + length) if index in moved or server.current is None else server.current
        for index, (server, start, length) in enumerate(zip(problem.servers, starts.tolist(), lengths, strict=True))
    )
