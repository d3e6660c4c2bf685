"""The plan as a value and as JSON; what enters its id."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner.canonical import canonical_json
from planner.plan import Objective
from planner.policy import MinGain, Policy
from planner.state import Agent
from solver.problem import Span
from tests.planner.build import NOW, SCHEMA, joining, online, planned, recount, serving, swarm, waiting

STATE = swarm(online("a", 0, 2), online("b", 0, 2), joining("c", 3, 4), waiting("d", 1))


def asked(state=STATE, **wishes):
    return planned(state, **{"movable": "all", **wishes})


# --- the document


def test_the_document_word_for_word():
    plan = planned(swarm(online("a", 0, 1, 10, public_name="host"), online("b", 0, 1, 10), num_blocks=2))
    document = plan.to_json()
    assert document["servers"] == [
        {
            "peer_id": "a",
            "public_name": "host",
            "movable": True,
            "why_not": None,
            "state": "online",
            "throughput": 10.0,
            "current": [0, 1],
            "target": [0, 1],
            "loaded": [],
            "dropped": [],
            "kept": 1,
            "reload_seconds": 0.0,
            "wave": None,
            "after": [],
        },
        {
            "peer_id": "b",
            "public_name": None,
            "movable": True,
            "why_not": None,
            "state": "online",
            "throughput": 10.0,
            "current": [0, 1],
            "target": [1, 2],
            "loaded": [1],
            "dropped": [0],
            "kept": 0,
            "reload_seconds": 28.0,
            "wave": 0,
            "after": [],
        },
    ]
    assert document["before"] == {
        "min_throughput": 20.0,
        "holes": 1,
        "bottleneck_blocks": [0],
        "throughput": [20.0, 0.0],
        "hops": None,
    }
    assert document["after"] == {
        "min_throughput": 10.0,
        "holes": 0,
        "bottleneck_blocks": [0, 1],
        "throughput": [10.0, 10.0],
        "hops": 2,
    }
    assert document["waves"] == [{"moves": ["b"], "min_throughput_during": 0.0, "seconds": 28.0}]
    assert document["solve"]["staying"] == {"value": 20.0, "min_throughput": 20.0, "holes": 1}
    assert (document["format"], document["version"], document["status"]) == ("plan-swarm.plan", 1, "optimal")
    assert (document["created_at"], document["valid_until"], document["epoch"]) == (NOW, NOW + 3600.0, 0)
    assert document["baseline"]["rule"] == "petals"


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(lambda: asked(drains=("a",), pins=(("a", None),)), id="infeasible"),
        pytest.param(lambda: asked(drains=("a", "b", "c", "d")), id="everything drained"),
        pytest.param(lambda: asked(swarm(waiting("d", None)), explain=True), id="nobody holds anything"),
        pytest.param(lambda: asked(swarm(online("a", 0, 1), num_blocks=9), explain=True), id="holes"),
        pytest.param(lambda: asked(swarm(online("a", 0, 2, 0.0), online("b", 2, 4, 0.0))), id="no throughput at all"),
        pytest.param(lambda: asked(swarm(online("a", 0, 2, 5e-324), online("b", 0, 2, 1e7))), id="extreme throughput"),
        pytest.param(lambda: asked(horizon=1e-3, seconds_per_block=1e7), id="the dearest loading"),
        pytest.param(lambda: asked(horizon=1e12, min_gain=MinGain(0.0, 1e308)), id="the longest horizon"),
        pytest.param(lambda: asked(max_moves=2**31 - 1, max_loads=2**31 - 1), id="the largest limits"),
        pytest.param(lambda: asked(min_replicas=2**31 - 1), id="more replicas than anybody has"),
        pytest.param(lambda: asked(resize=True, min_span=2**31 - 1, explain=True), id="no shorter span"),
        pytest.param(lambda: asked(max_hops=2**31 - 1), id="the most hops"),
        pytest.param(lambda: asked(max_hops=1), id="too few hops"),
        pytest.param(lambda: asked(explain=True), id="explanations"),
        pytest.param(
            lambda: asked(swarm(online("a", 0, 4, public_name="\x1b[2J\ud800\u202e" + "n" * 9999))), id="a hostile name"
        ),
    ],
)
def test_every_plan_is_json_that_the_schema_passes(plan):
    made = plan()
    text = json.dumps(made.to_json(), allow_nan=False)
    SCHEMA.validate(json.loads(text))
    assert text.isascii()


def test_the_words_of_a_plan():
    plan = asked(explain=True)
    assert [server.peer_id for server in plan.moves] == ["d"]
    assert plan.blocks_loaded == sum(len(server.loaded) for server in plan.servers) == 1
    assert plan.gain == plan.objective.value - plan.staying.value
    assert "explanations" not in replace(plan, explanations=()).to_json()
    assert len(plan.to_json()["explanations"]) == 4


@pytest.mark.parametrize(
    ("value", "bound", "gap"),
    [(90.0, 100.0, 0.1), (0.0, 0.0, 0.0), (5.0, 5.0, 0.0), (-2.0, -1.0, 1.0), (-3.0, 0.0, 1.0)],
)
def test_the_gap(value, bound, gap):
    assert Objective(value, value, 0.0, bound, "CP-SAT").gap == pytest.approx(gap)


# --- the id


def test_the_id_does_not_depend_on_how_it_was_searched_or_when():
    plan = asked()
    for other in (
        asked(workers=2),
        asked(time_limit=7.0),
        asked(seed=5),
        asked(now=NOW + 1000),
        asked(explain=True),
        asked(horizon=14400),
        replace(plan, warnings=("other",), epoch=7, validity=1.0, objective=Objective(0.0, 0.0, 0.0, 0.0, "sweep")),
        asked(replace(STATE, read_at=0.0)),
    ):
        assert other.plan_id == plan.plan_id


def test_the_id_depends_on_what_is_asked_for():
    plan = asked()
    plans = [
        plan,
        asked(pins=(("b", None),)),
        asked(cordons=("b",)),
        asked(drains=("b",)),
        asked(horizon=14401.0),
        asked(min_gain=MinGain(1.0)),
        asked(min_replicas=1),
        asked(max_moves=9),
        asked(max_loads=9),
        asked(seconds_per_block=28.0),
        asked(spans=(("a", Span(0, 2)),)),
        asked(swarm(*STATE.servers[:3])),
        asked(replace(STATE, prefix="other")),
        replace(plan, waves=()),
        replace(plan, floor=1.0),
        replace(plan, servers=(replace(plan.servers[0], target=Span(1, 3)), *plan.servers[1:])),
    ]
    assert len({one.plan_id for one in plans}) == len(plans)


def test_parts_of_peer_ids_are_the_same_wish_as_the_whole():
    state = swarm(online("peerA", 0, 2), online("peerB", 0, 2))
    one, other = planned(state, pins=(("A", None),)), planned(state, pins=(("peerA", None),))
    assert one.plan_id == other.plan_id
    assert one.to_json()["solve"]["settings"]["pins"] == [["peerA", None]]


def test_the_settings_in_the_document_are_the_policy():
    policy = Policy(movable="all", drains=("a",), min_gain=MinGain(2.0, 0.5), time_limit=9.0, workers=1)
    settings = asked(drains=("a",), min_gain=MinGain(2.0, 0.5), time_limit=9.0).to_json()["solve"]["settings"]
    assert canonical_json(settings) == canonical_json(policy.to_json())


def test_agents_are_in_the_plan_by_what_they_change():
    state = swarm(online("a", 0, 2, agent=serving(seconds_per_block=1.0)), online("b", 2, 4, agent=Agent("serving")))
    document = recount(planned(state, pins=(("a", Span(1, 3)),)), state)
    assert document["servers"][0]["reload_seconds"] == 1.0
