"""What a competitor is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from solver import Placement, Problem, Span


class DoesNotApply(Exception):
    """The competitor's rule has no answer for this problem; the message says why."""


class Moment(NamedTuple):
    """How far a search was after some seconds: the best objective so far and the bound on it, RPS."""

    seconds: float
    objective: float | None
    bound: float | None


class Charged(NamedTuple):
    """What a competitor is charged in place of what the validator finds, as it loads more than it has to."""

    objective: float
    loads: int


class End(NamedTuple):
    """Where one run of a rule ended in which chance has a part: bottleneck (RPS), holes, and blocks loaded."""

    bottleneck: float
    holes: int
    loads: int


@dataclass(frozen=True)
class Task:
    """What every competitor is given.

    Parameters
    ----------
    seconds
        Time limit, for those that go on until they have a proof.
    workers
        Threads.
    seed
        Seed of all chance.
    seen
        The spans that stock servers read, one a server, where some are not those held; empty: they are.
    under_way
        A plan that is being carried out; only ours has use for it.
    """

    problem: Problem
    seconds: float = 60.0
    workers: int = 1
    seed: int = 0
    seen: tuple[Span | None, ...] = ()
    under_way: Placement | None = None


@dataclass(frozen=True)
class Answer:
    """What a competitor has come to.

    Parameters
    ----------
    placement
        None where it has found none in time.
    bound
        What it has proven that no objective is above, RPS; None where its rule proves nothing.
    of
        Which of its answers this is, where it gives several.
    note
        How its rule was read where the problem leaves that open.
    charged
        Where it loads whole spans; None: what the validator finds counts.
    moments
        The search over time.
    ends
        Where all runs of the rule ended of which this is one.
    """

    placement: Placement | None
    bound: float | None = None
    of: str = ""
    note: str = ""
    charged: Charged | None = None
    moments: tuple[Moment, ...] = ()
    ends: tuple[End, ...] = ()


Rule = Callable[[Task], list[Answer]]


@dataclass(frozen=True)
class Competitor:
    """A rule by its name.

    Parameters
    ----------
    source
        Where the rule is told: a paper, or a file of a repository.
    limited
        Whether it takes the time that it is given.
    stock
        Whether it is what stock servers do, who know nothing of constants: it is given, and judged by, the problem
        in which everybody moves, JOINING and uncertain servers too.
    """

    name: str
    rule: Rule
    source: str
    limited: bool = False
    stock: bool = False
