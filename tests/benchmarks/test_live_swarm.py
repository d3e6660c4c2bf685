"""That the benchmarks run, on as little as they can be run on; what they measure is for `make bench` to say."""

from __future__ import annotations

import pytest

from benchmarks import live_swarm
from planner.envelope import MAX_ENVELOPE
from planner.live import most_calls
from tests.planner.live.swarm import daemons


@pytest.mark.timeout(300)  # four processes import torch, one after another
def test_the_living_swarm_is_measured_and_nothing_of_it_stays():
    before = daemons()
    (column,) = live_swarm.measure(2.0, sizes=[(6, 8)], nodes=4, runs=1)
    assert daemons() == before
    assert column["servers"] == 6
    assert column["records"] > 6
    assert column["responses"] == column["calls"] <= column["most_calls"] == most_calls(8, 4, column["tries"])
    assert 0 < column["envelope_bytes"] < column["envelope_bytes_long_names"] < MAX_ENVELOPE
    assert 0 < column["publish_seconds"]["best"] <= column["publish_seconds"]["median"]
    assert column["peak_mib"] >= column["imported_mib"] > 0
    table = live_swarm.table([column, {**column, "servers": 1000, "envelope_bytes": None, "publish_seconds": None}])
    assert "| 6 servers, 8 blocks | 1,000 servers, 8 blocks |" in table
    assert "over 65,536: refused" in table
