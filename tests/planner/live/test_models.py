from __future__ import annotations

import time

import pytest

from planner import swarm_models
from planner.errors import NothingToPlan, SwarmUnreachable
from planner.live import read_live
from planner.swarm_models import ModelRow, Models, read_models
from tests.planner.live.swarm import FakeServer, Raw, model


def fill(swarm):
    swarm.fill(
        [
            model("full-hf", 4, "owner/full"),
            *FakeServer("a", 0, 4, 10.0).records("full-hf"),
            *FakeServer("b", 2, 4, 5.0).records("full-hf"),
            model("half-hf", 6, None),
            *FakeServer("a", 0, 3, 7.0).records("half-hf"),
            *FakeServer("c", 3, 6, 7.0, state=1).records("half-hf"),
            model("gone-hf", 3),
        ]
    )


ROWS = {
    "full-hf": ModelRow("full-hf", 4, "owner/full", 2, 10.0, 0),
    "half-hf": ModelRow("half-hf", 6, None, 2, 7.0, 3),
}


def test_models_and_how_they_are_held(small_swarm):
    fill(small_swarm)
    full, gone, half = read_models(small_swarm.peers).rows
    assert (full, half) == (ROWS["full-hf"], ROWS["half-hf"])
    assert (gone.prefix, gone.servers, gone.bottleneck, gone.holes) == ("gone-hf", 0, None, 3)
    assert gone.note.startswith("no server of 'gone-hf'")


def test_a_swarm_without_models(small_swarm):
    assert read_models(small_swarm.peers) == Models(())


def test_hostile_announcements(small_swarm, monkeypatch):
    fill(small_swarm)
    hostile = {
        "absurd-hf": {"num_blocks": 10**9, "repository": "x"},
        "word-hf": {"num_blocks": "4", "repository": "x"},
        "list-hf": [4],
        "null-hf": None,
        "evil\x1b[2J": {"num_blocks": 4, "repository": "x"},
        "a b": {"num_blocks": 4, "repository": "x"},
        "a.b": {"num_blocks": 4, "repository": "x"},
        "x" * 5000: {"num_blocks": 4, "repository": "x"},
        "": {"num_blocks": 4, "repository": "x"},
    }
    small_swarm.fill(Raw("_petals.models", prefix, value) for prefix, value in hostile.items())
    small_swarm.fill([model("forever-hf", 4, lifetime=1e9), Raw("_petals.models", 5, {"num_blocks": 4})])
    small_swarm.fill([model("repository-hf", 2, ["x"]), *FakeServer("a", 0, 2, 1.0).records("repository-hf")])
    small_swarm.fill([Raw("full-hf.1", "evil", "x"), Raw("full-hf.2", None, 5, lifetime=900)])
    rows = {row.prefix: row for row in read_models(small_swarm.peers).rows}
    assert set(rows) == {"full-hf", "half-hf", "gone-hf", "repository-hf"}
    assert rows["full-hf"] == ROWS["full-hf"]
    assert rows["repository-hf"] == ModelRow("repository-hf", 2, None, 1, 1.0, 0)


def test_more_models_than_are_read(small_swarm, monkeypatch):
    fill(small_swarm)
    small_swarm.fill(model(f"flood{index}-hf", 100, lifetime=200) for index in range(30))
    monkeypatch.setattr(swarm_models, "MAX_KEYS", 213)
    rows = {row.prefix: row for row in read_models(small_swarm.peers).rows}
    assert len(rows) == 33
    assert [row.prefix for row in rows.values()] == sorted(rows)
    assert rows["full-hf"].servers == 2
    assert sum(row.note is not None and row.note.startswith("not read") for row in rows.values()) == 28


def test_models_for_which_no_time_is_left_are_partial(small_swarm):
    fill(small_swarm)
    small_swarm.fill(model(f"flood{index}-hf", 1000, lifetime=400) for index in range(5))
    begun = time.monotonic()
    rows = {row.prefix: row for row in read_models(small_swarm.peers, timeout=4).rows}
    assert time.monotonic() - begun < 6
    assert rows["flood4-hf"].partial
    assert rows["full-hf"].note.startswith("not read")


def test_a_plain_value_in_the_place_of_all_models_is_named(small_swarm):
    fill(small_swarm)
    small_swarm.fill([Raw("_petals.models", None, "mine", lifetime=900)])
    found = read_models(small_swarm.peers)
    assert found.rows == ()
    assert found.problems[0].startswith("_petals.models: a plain value stands where a dictionary belongs, until ")
    with pytest.raises(NothingToPlan, match="a plain value stands"):
        read_live("full-hf", small_swarm.peers)
    assert len(read_live("full-hf", small_swarm.peers, num_blocks=4).state().servers) == 2


def test_an_unreachable_swarm():
    with pytest.raises(SwarmUnreachable):
        read_models(["/ip4/127.0.0.1/tcp/1/p2p/QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY"], timeout=5)
