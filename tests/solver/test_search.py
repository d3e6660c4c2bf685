"""A search can be watched and stopped, and what it leaves behind is nothing."""

from __future__ import annotations

import threading
import time

import pytest

from solver import Limits, Status, evaluate, solve
from tests.solver.cases import CHURN, churn, searching_threads

LARGE = CHURN[-1]


def test_stopped_before_it_begins():
    case = churn(CHURN[0])
    stop = threading.Event()
    stop.set()
    found = solve(case, Limits(60.0), stop=stop)
    assert found.interrupted
    assert found.status is Status.FEASIBLE
    assert found.bound >= evaluate(case, found.placement).objective


@pytest.mark.parametrize("stage", ["start", "objective"])
def test_stopped_in_each_stage(stage):
    case, stop, seen = churn(LARGE), threading.Event(), []

    def watch(progress):
        seen.append(progress.stage)
        if progress.stage == stage:
            stop.set()

    # Far above the test's own timeout: only the stop ends it.
    limits = Limits(3600.0 if stage == "start" else 20.0, 2)
    found = solve(case, limits, progress=watch, stop=stop)
    assert stage in seen
    assert found.interrupted
    evaluate(case, found.placement)
    assert not searching_threads()


def test_an_exception_of_the_watcher_ends_it():
    def watch(progress):
        if progress.stage == "objective":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(churn(LARGE), Limits(20.0, 2), progress=watch)
    for _ in range(100):
        if not searching_threads():
            break
        time.sleep(0.1)
    assert not searching_threads()


def test_the_watcher_is_told():
    told = []
    found = solve(churn(LARGE), Limits(3.0, 2), progress=told.append)
    assert {progress.stage for progress in told} >= {"start", "objective"}
    bounds = [progress.bound for progress in told if progress.stage == "objective" and progress.bound is not None]
    objective = evaluate(churn(LARGE), found.placement).objective
    assert all(bound >= objective - found.rounding_slack for bound in bounds)
