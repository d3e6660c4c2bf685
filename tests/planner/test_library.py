"""The front door: `from planner import ...` does what the command does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import planner
from planner import MinGain, Plan, Policy, SwarmState, load_state, make_plan
from planner.errors import (
    InfeasibleDemands,
    InputInvalid,
    InputUnreadable,
    NothingToPlan,
    OutputUnwritable,
    PlanSwarmError,
    PolicyInvalid,
)
from solver import Span
from tests.planner.build import REAL, ROOT, timeless

SCRIPT = """\
import json

from planner import Policy, load_state, make_plan
from solver import Span

state = load_state("examples/llama-65b-hf.json")
policy = Policy(spans=(("server4", Span(21, 40)),), seconds_per_block=20, workers=1)
plan = make_plan(state, policy, progress=None)
print(json.dumps(plan.to_json(), indent=2))
"""
OPTIONS = ["--span", "server4=21:40", "--seconds-per-block", "20", "--workers", "1", "--json", "--quiet"]


def without_times(document):
    document = {name: value for name, value in document.items() if name not in ("created_at", "valid_until")}
    document["solve"] = {name: value for name, value in document["solve"].items() if name not in ("seconds", "stages")}
    return document


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_ten_lines_do_what_the_command_does():
    assert len(SCRIPT.splitlines()) <= 10
    by_script = run("-c", SCRIPT)
    by_command = run("-c", "from cli.app import main; main()", "--dump", str(REAL), *OPTIONS)
    assert without_times(by_script) == without_times(by_command)
    assert [row["peer_id"] for row in by_script["servers"] if row["wave"] is not None] == ["server6"]


def test_all_that_is_public_is_there():
    assert set(planner.__all__) == {
        "MinGain",
        "Plan",
        "PlanSwarmError",
        "Policy",
        "Span",
        "SwarmState",
        "load_state",
        "make_plan",
    }
    for name in planner.__all__:
        assert getattr(planner, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'make_plans'"):
        _ = planner.make_plans


def test_types_at_the_door():
    state = load_state(REAL)
    plan = make_plan(state, Policy(min_gain=MinGain(rps=5.0), workers=1))
    assert isinstance(state, SwarmState)
    assert isinstance(plan, Plan)
    assert plan.status == "nothing_to_do"


def test_every_error_that_a_user_can_mend_has_one_base():
    for error in (InfeasibleDemands, InputInvalid, InputUnreadable, NothingToPlan, OutputUnwritable, PolicyInvalid):
        assert issubclass(error, PlanSwarmError)


def test_a_path_and_a_parsed_document_give_the_same_plan():
    policy = Policy(workers=1)
    one, other = (make_plan(load_state(source), policy) for source in (REAL, json.loads(REAL.read_text())))
    assert timeless(one) == timeless(other)


def test_the_state_and_the_policy_are_left_as_they_were():
    state, policy = load_state(REAL), Policy(pins=(("r6", None),), spans=(("server4", Span(20, 40)),))
    before = (state.to_json(), policy.to_json())
    make_plan(state, policy)
    assert (state.to_json(), policy.to_json()) == before
