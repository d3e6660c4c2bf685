"""Planning again: who leaves, what is left, and what the table says of it."""

from __future__ import annotations

import pytest

from benchmarks import replanning
from benchmarks.instances import chosen
from solver import evaluate
from tests.solver.cases import holds, problem, spans

ROW = {
    "leaves": 3,
    "share": 0.0825,
    "carried_out": False,
    "scratch": 200.0,
    "again": 199.7,
    "scratch_seconds": 12.0,
    "again_seconds": 0.5,
}


def test_what_is_left_keeps_what_the_plan_says_of_it():
    case = problem(4, holds("0:2", 1.0), holds("2:4", 3.0), holds("0:2", 5.0))
    plan = spans("2:4 0:2 1:3")
    left, under_way = replanning.without(case, plan, 1, carried_out=False)
    assert under_way == spans("2:4 1:3")
    assert [server.current for server in left.servers] == [*spans("0:2 0:2")]
    left, under_way = replanning.without(case, plan, 1, carried_out=True)
    assert tuple(server.current for server in left.servers) == under_way
    assert evaluate(left, under_way).loads == 0


def test_the_fastest_of_the_instance_leaves_first():
    (instance,) = (one for one in chosen(replanning.INSTANCE, quick=False) if one.name == replanning.INSTANCE)
    servers = instance.make().servers
    rps = [max(server.throughput.values()) for server in servers]
    ranked = sorted(range(len(rps)), key=rps.__getitem__, reverse=True)
    assert (ranked[0], len(servers)) == (replanning.LEAVERS[0], 100)


def test_when_a_search_told_of_enough():
    moments = [[0.1, None, 9.0], [0.2, 4.0, 9.0], [0.5, 7.0, 8.0]]
    assert [replanning.reached(moments, enough) for enough in (4.0, 5.0, 7.5)] == [0.2, 0.5, None]


def test_a_small_swarm_is_planned_again(monkeypatch):
    monkeypatch.setattr(replanning, "INSTANCE", "llama-65b-hf")
    monkeypatch.setattr(replanning, "LEAVERS", (0,))
    said: list[str] = []
    found = replanning.measure(1.0, said.append)
    assert [row["carried_out"] for row in found["rows"]] == [False, True]
    for row in found["rows"]:
        assert row["again"] == pytest.approx(row["scratch"])
        assert row["again_seconds"] is not None
    assert len(said) == 2


def test_the_table():
    text = replanning.table(
        {
            "instance": "small",
            "seconds": 60.0,
            "again_limit": 5.0,
            "seed": 0,
            "workers": 2,
            "rows": [ROW, {**ROW, "carried_out": True, "again": 198.0, "again_seconds": None}],
        }
    )
    assert "| 3 | 8.2 | under way | 200.00 | 199.70 | 99.85 | 12.0 | 0.5 | 24 |" in text
    assert "| 3 | 8.2 | carried out | 200.00 | 198.00 | 99.00 | 12.0 | – | – |" in text
    assert "| *together* | | | | | | 12.0 | 0.5 | 24 |" in text  # only what both have reached
