"""The instances, with the best objective known for each (RPS, as design.md defines it).

Those of helix-30b-10, helix-30b-24 and helix-70b-24 at capacity, churn-80x10-1, churn-80x20-2 and of the real dump are
proven to be the best; all but the first, which Gurobi proved too, are what our own search or HiGHS has come to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import churn
from planner import Policy, load_state
from planner.costs import load_seconds
from planner.formulate import Formulation, formulate
from planner.selection import resolve_policy
from solver import Problem, Server, Span

DATA = Path(__file__).parent / "data"
REAL = DATA.parent.parent / "examples" / "llama-65b-hf.json"


@dataclass(frozen=True)
class Instance:
    """A problem, made when it is wanted, as the large ones take seconds.

    Parameters
    ----------
    make
        Makes the problem.
    make_stock
        Makes the problem as stock servers have it, where that is another.
    best_known
        The best objective known before this run, RPS; None: none is.
    quick
        Whether a quick run has it.
    ours_alone
        Whether it is too large for all competitors.
    """

    name: str
    make: Callable[[], Problem]
    best_known: float | None = None
    quick: bool = False
    ours_alone: bool = False
    make_stock: Callable[[], Stock] | None = None


def planned(path: Path, policy: Policy | None = None) -> Problem:
    """The problem that the planner poses of a dump."""
    return _formulation(path, policy or Policy()).problem


def resized(path: Path) -> Problem:
    """The same with lengths free: every server may take each from one block to its capacity."""
    formulation = _formulation(path, Policy())
    problem, state = formulation.problem, formulation.state
    known = {server.peer_id: server for server in state.servers}
    servers = []
    for server, peer_id in zip(problem.servers, formulation.placed, strict=True):
        lengths = range(1, known[peer_id].capacity(state.num_blocks) + 1)
        servers.append(replace(server, throughput={length: known[peer_id].throughput_at(length) for length in lengths}))
    return replace(problem, servers=tuple(servers))


class Stock(NamedTuple):
    """A problem as stock servers have it, and the spans that they read."""

    problem: Problem
    seen: tuple[Span | None, ...]


def stock(path: Path, policy: Policy | None = None) -> Stock:
    """The problem of stock servers, who know no constants: JOINING and uncertain servers move too.

    The same servers, spans and costs as in `planner.baseline`: an uncertain server holds what it holds until it moves,
    and then as many blocks as others see of it.
    """
    formulation = _formulation(path, policy or Policy())
    state, num_blocks = formulation.state, formulation.problem.num_blocks
    servers, seen = [], []
    for server in state.servers:
        span = server.span if server.seen is None else server.seen
        lengths = {one.length for one in (server.span, span) if one is not None} or {server.capacity(num_blocks)}
        seconds = load_seconds(server, formulation.policy, num_blocks)
        servers.append(Server(server.span, dict.fromkeys(lengths, server.throughput), seconds))
        seen.append(span)
    nothing = (0.0,) * num_blocks
    problem = replace(
        formulation.problem, servers=tuple(servers), base_throughput=nothing, base_replicas=(0,) * num_blocks
    )
    return Stock(problem, tuple(seen))


def _formulation(path: Path, policy: Policy) -> Formulation:
    state = load_state(path)
    resolved = resolve_policy(state, policy)
    return formulate(state.with_spans(dict(resolved.spans)), resolved)


def _real(name: str, best_known: float, span: Span | None = None, *, quick: bool = False) -> Instance:
    policy = Policy() if span is None else Policy(spans=(("server4", span),))
    return Instance(name, partial(planned, REAL, policy), best_known, quick, make_stock=partial(stock, REAL, policy))


def _churn(name: str, best_known: float, *, quick: bool = False) -> Instance:
    return Instance(name, partial(planned, DATA / f"{name}.json"), best_known, quick)


def _large(servers: int, seed: int, *, quick: bool = False, ours_alone: bool = False) -> Instance:
    name = f"churn-126x{servers}-{seed}"
    return Instance(name, partial(churn.problem, 126, servers, seed), None, quick, ours_alone)


INSTANCES = (
    _real("llama-65b-hf", 2899.81, quick=True),
    _real("llama-65b-hf, server4=21:40", 2863.96, Span(21, 40)),
    _real("llama-65b-hf, server4=20:40", 2899.81, Span(20, 40)),
    _churn("churn-80x10-1", 1115.08, quick=True),
    _churn("churn-80x20-2", 7126.85),
    _churn("churn-80x50-3", 15191.23),
    _churn("churn-80x100-4", 25563.42),
    Instance("helix-30b-10, lengths free", partial(resized, DATA / "helix-30b-10.json"), 286.59, quick=True),
    Instance("helix-30b-24, lengths free", partial(resized, DATA / "helix-30b-24.json"), 1517.74),
    Instance("helix-70b-24, lengths free", partial(resized, DATA / "helix-70b-24.json"), 2045.64),
    Instance("helix-30b-24", partial(planned, DATA / "helix-30b-24.json"), 1091.61),
    Instance("helix-70b-24", partial(planned, DATA / "helix-70b-24.json"), 952.11),
    *(_large(1_000, seed) for seed in (11, 12, 13)),
    *(_large(10_000, seed) for seed in (11, 12, 13)),
    _large(100_000, 11, ours_alone=True),
)


def chosen(pattern: str | None, *, quick: bool) -> list[Instance]:
    """The instances whose names match a shell pattern, or begin with it; all, or the quick ones, where it is None."""
    if pattern is None:
        return [instance for instance in INSTANCES if instance.quick or not quick]
    return [one for one in INSTANCES if fnmatch(one.name, pattern) or one.name.startswith(pattern)]
