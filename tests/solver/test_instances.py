"""The churn instances: bounds are valid, values at least what the Petals rule comes to."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from solver import Limits, Span, Status, evaluate, simulate, solve
from solver.stages import TIE_BREAKS
from tests.solver.cases import CHURN, churn


def test_the_smallest_is_proven():
    case = churn(CHURN[0])
    stop = threading.Event()

    def watch(progress):
        if progress.stage in TIE_BREAKS:  # which take long, and are not in question here
            stop.set()

    found = solve(case, Limits(60.0, 2), progress=watch, stop=stop)
    assert found.status is Status.OPTIMAL
    assert evaluate(case, found.placement).objective == pytest.approx(1115.0789, abs=1e-4)


@pytest.mark.parametrize("path", CHURN, ids=lambda path: path.stem)
def test_at_least_the_petals_rule(path):
    case = churn(path)
    found = solve(case, Limits(3.0, 2))
    value = evaluate(case, found.placement).objective
    assert value >= max(imagined(case, shuffle) for shuffle in range(8))
    volume = sum(server.throughput[server.current.length] * server.current.length for server in case.servers)
    assert value <= found.bound <= volume / case.num_blocks + found.rounding_slack


def imagined(case, shuffle):
    """The objective of where the rule's own simulation comes to."""
    spans = [server.current for server in case.servers]
    rps = [server.throughput[span.length] for server, span in zip(case.servers, spans, strict=True)]
    starts = simulate(
        [span.start for span in spans],
        [span.length for span in spans],
        rps,
        case.num_blocks,
        np.random.RandomState(shuffle),
    )
    placement = [Span(int(start), int(start + span.length)) for start, span in zip(starts, spans, strict=True)]
    return evaluate(case, placement).objective
