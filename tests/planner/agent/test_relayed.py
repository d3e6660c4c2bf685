"""A server behind a relay, whose node of the DHT answers nobody, follows plans as others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.talking import Server
from planner.agent.tiny_model import make_tiny_model
from planner.keys import generate
from tests.planner.agent.changing import serving


@pytest.mark.timeout(120)
def test_it_looks_for_plans_by_those_that_it_was_started_with(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model")
    with serving(tmp_path, blocks="0:4") as process:
        peer = Server(process)("look")["maddrs"][0]
        options = {"blocks": "4:8", "state": str(tmp_path), "trusted": [generate().public.text()], "relayed": True}
        with serving(tmp_path, initial_peers=[peer], **options) as process:
            relayed = Server(process)
            relayed.until(lambda seen: seen["span"])
            assert relayed("turn") == 60.0
            assert relayed.until(lambda seen: seen["said"]["state"] == "serving")["said"]["why"] == ""
