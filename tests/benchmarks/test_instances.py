"""The instances: that they are what their names say."""

from __future__ import annotations

import pytest

from benchmarks.instances import DATA, INSTANCES, REAL, chosen, resized, stock
from solver import Span, evaluate

SMALL = [instance for instance in INSTANCES if not instance.name.startswith("churn-126")]


def test_there_are_twelve_small_ones_and_seven_large_ones_of_which_one_is_ours_alone():
    assert len({instance.name for instance in INSTANCES}) == len(INSTANCES) == 19
    assert len(SMALL) == 12
    assert [instance.name for instance in INSTANCES if instance.ours_alone] == ["churn-126x100000-11"]


@pytest.mark.parametrize("instance", SMALL, ids=lambda instance: instance.name)
def test_staying_or_joining_at_the_start_is_a_valid_placement(instance):
    problem = instance.make()
    spans = tuple(server.current or Span(0, max(server.throughput)) for server in problem.servers)
    worth = evaluate(problem, spans)
    assert instance.best_known is not None
    assert worth.holes or worth.objective <= instance.best_known + 0.01  # what leaves holes is not comparable


def test_with_lengths_free_every_length_up_to_the_capacity_has_its_own_throughput():
    problem = resized(DATA / "helix-30b-10.json")
    fast = problem.servers[0].throughput
    assert list(fast) == list(range(1, 12))
    assert (fast[1], fast[11]) == (2485.538093984443, 193.4964086035588)
    assert {max(server.throughput) for server in problem.servers} == {7, 11}
    assert not any(any(server.load_seconds) for server in problem.servers)


def test_stock_servers_see_less_of_the_uncertain_one_and_move_it_as_they_see_it():
    problem, seen = stock(REAL)
    (uncertain,) = (index for index, server in enumerate(problem.servers) if server.current != seen[index])
    assert (problem.servers[uncertain].current, seen[uncertain]) == (Span(18, 41), Span(21, 38))
    assert set(problem.servers[uncertain].throughput) == {23, 17}
    assert len(problem.servers) == 7


def test_a_pattern_or_a_beginning_chooses_instances():
    assert [one.name for one in chosen("churn-80x1", quick=False)] == ["churn-80x10-1", "churn-80x100-4"]
    assert [one.name for one in chosen("*-24", quick=True)] == ["helix-30b-24", "helix-70b-24"]
    assert [one.name for one in chosen(None, quick=True)] == [
        "llama-65b-hf",
        "churn-80x10-1",
        "helix-30b-10, lengths free",
    ]
    assert chosen("nobody", quick=False) == []
