from __future__ import annotations

import dataclasses
import json
import math

import pytest

from planner.canonical import canonical_json
from planner.errors import PolicyInvalid
from planner.policy import SEARCH_FIELDS, MinGain, Policy
from solver.problem import Span
from tests.planner.build import SCHEMA


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"horizon": 0}, "horizon must be a number from 0.001 to 1e+12 (seconds), not 0"),
        ({"horizon": -1.0}, "horizon must be"),
        ({"horizon": math.nan}, "horizon must be .* not nan"),
        ({"horizon": math.inf}, "horizon must be .* not inf"),
        ({"horizon": 1e-305}, "horizon must be"),
        ({"time_limit": 0}, "time_limit must be a finite number above 0 (seconds), not 0"),
        ({"time_limit": math.inf}, "time_limit must be"),
        ({"time_limit": math.nan}, "time_limit must be"),
        ({"seconds_per_block": -0.5}, "seconds_per_block must be a number from 0 to 1e+07 (seconds), not -0.5"),
        ({"seconds_per_block": 1e308}, "seconds_per_block must be"),
        ({"min_gain": MinGain(rps=-1.0)}, "min_gain must be .* (RPS), not -1.0"),
        ({"min_gain": MinGain(share=math.nan)}, "min_gain must be .* (share), not nan"),
        ({"max_moves": -1}, "max_moves must be from 0 to 2147483647, not -1"),
        ({"max_moves": 10**30}, "max_moves must be"),
        ({"max_loads": 2**63}, "max_loads must be"),
        ({"min_replicas": -2}, "min_replicas must be"),
        ({"min_replicas": 10**30}, "min_replicas must be"),
        ({"workers": 0}, "workers must be from 1 to 1024, not 0"),
        ({"workers": 100_000}, "workers must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**31}, "seed must be"),
        ({"min_span": 0, "resize": True}, "min_span must be from 1 to 2147483647, not 0"),
        ({"min_span": 4}, "min_span 4 goes with --resize: without it servers keep their lengths"),
        ({"max_hops": 0}, "max_hops must be from 1 to 2147483647, not 0"),
        ({"movable": "some"}, "movable must be 'all' or 'agents', not 'some'"),
        ({"pins": (("a", Span(3, 3)),)}, "the span 3:3 given for a is empty or reversed; write START:END"),
        ({"pins": (("a", Span(4, 3)),)}, "the span 4:3 given for a is empty or reversed"),
        ({"spans": (("a", Span(-1, 3)),)}, "the span -1:3 given for a is empty or reversed"),
    ],
    ids=str,
)
def test_a_wish_out_of_its_range(wishes, message):
    pattern = message.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+")
    with pytest.raises(PolicyInvalid, match=f"^{pattern}"):
        Policy(**wishes)


def test_the_ends_of_the_ranges():
    Policy(horizon=1e-3, seconds_per_block=0, max_moves=0, max_loads=0, min_replicas=0, workers=1, seed=2**31 - 1)
    Policy(horizon=1e12, seconds_per_block=1e7, min_gain=MinGain(1e300, 1e300), max_moves=2**31 - 1)


def test_a_policy_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().seed = 1


def test_as_json_it_has_every_field_and_the_schema_knows_them_all():
    policy = Policy(
        pins=(("a", None), ("b", Span(0, 2))), spans=(("c", Span(1, 3)),), cordons=("d",), drains=("e",), max_loads=3
    )
    document = json.loads(canonical_json(policy.to_json()))
    assert set(document) == {field.name for field in dataclasses.fields(Policy)}
    assert document["pins"] == [["a", None], ["b", [0, 2]]]
    assert document["spans"] == [["c", [1, 3]]]
    assert (document["cordons"], document["drains"], document["max_loads"]) == (["d"], ["e"], 3)
    properties = SCHEMA.schema["properties"]["solve"]["properties"]["settings"]["properties"]
    assert set(properties) == set(document)
    assert set(document) >= SEARCH_FIELDS


def test_whole_numbers_of_seconds_are_the_same_wish_as_floats():
    whole = Policy(horizon=7200, seconds_per_block=5, time_limit=3, min_gain=MinGain(1, 0))
    floats = Policy(horizon=7200.0, seconds_per_block=5.0, time_limit=3.0, min_gain=MinGain(1.0, 0.0))
    assert whole == floats
    assert canonical_json(whole.to_json()) == canonical_json(floats.to_json())


@pytest.mark.parametrize(
    ("gain", "objective", "least"),
    [
        (MinGain(), 100.0, 0.0),
        (MinGain(rps=5.0), 100.0, 5.0),
        (MinGain(share=0.02), 100.0, 2.0),
        (MinGain(rps=5.0, share=0.02), 1000.0, 20.0),
        (MinGain(share=0.5), -10.0, 5.0),
        (MinGain(share=0.5), 0.0, 0.0),
    ],
)
def test_the_least_gain_in_rps(gain, objective, least):
    assert gain.against(objective) == least
