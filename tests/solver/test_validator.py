"""Every demand of a problem, broken one at a time; and the figures, by hand."""

from __future__ import annotations

import pytest

from solver import InvalidPlacement, evaluate
from tests.solver.cases import holds, problem, spans, waits


def test_the_figures_by_hand():
    # Blocks: 0 has 3 (constant), 1 has 3 + 2, 2 has 2, 3 has nothing and nobody.
    case = problem(4, holds("0:2", 2.0, seconds=5.0), base=(3.0, 3.0, 0.0, 0.0), horizon=10.0, min_replicas=1)
    worth = evaluate(case, spans("1:3"))
    assert worth.throughput == (3.0, 5.0, 2.0, 0.0)
    assert (worth.holes, worth.missing_replicas, worth.min_throughput) == (1, 1, 2.0)
    # One block of five seconds at 2 RPS over ten seconds.
    assert worth.reload_penalty == 1.0
    assert worth.objective == 1.0
    assert (worth.loads, worth.moves, worth.distance) == (1, 1, 1)
    assert worth.weakest == 0.0


def test_staying_costs_nothing():
    worth = evaluate(problem(2, holds("0:2", 2.0, seconds=1e6)), spans("0:2"))
    assert (worth.reload_penalty, worth.loads, worth.moves) == (0.0, 0, 0)


def test_a_newcomer_loads_all_that_it_takes():
    worth = evaluate(problem(3, waits(2, 3.0, seconds=(1.0, 2.0, 4.0)), horizon=2.0), spans("1:3"))
    assert (worth.reload_penalty, worth.loads, worth.moves, worth.distance) == (9.0, 2, 1, 0)


def test_a_holder_without_throughput_is_no_hole():
    worth = evaluate(problem(2, holds("0:1", 0.0), base=(0.0, 1.0)), spans("0:1"))
    assert (worth.holes, worth.min_throughput) == (0, 0.0)


@pytest.mark.parametrize(
    ("case", "placement", "what"),
    [
        (problem(3, holds("0:2", 1.0)), "2:4", "outside"),
        (problem(3, holds("0:2", 1.0)), "0:3", "3 blocks"),
        (problem(3, holds("0:2", 1.0)), "0:2 0:2", "2 spans for 1"),
        (problem(3, holds("0:2", 1.0, only="1:3")), "0:2", "pinned"),
        (problem(3, holds("0:2", 1.0, may_stay=False)), "0:2", "may not stay"),
        (problem(3, holds("0:2", 1.0), max_moves=0), "1:3", "1 moves"),
        (problem(4, holds("0:2", 1.0), max_loads=1), "2:4", "2 blocks loaded"),
    ],
)
def test_each_demand(case, placement, what):
    with pytest.raises(InvalidPlacement, match=what):
        evaluate(case, spans(placement))


def test_reversed_spans():
    with pytest.raises(InvalidPlacement, match="outside"):
        evaluate(problem(3, holds("0:2", 1.0)), spans("2:0"))
