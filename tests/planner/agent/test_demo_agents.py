"""The demonstration with agents, as its command runs it: what the move costs us, and what it costs stock Petals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner.agent.demo_cost import Cost
from tests.planner.agent.beside import ENVIRONMENT, started
from tests.planner.agent.left_behind import assert_nothing_left, processes_of, swarm_of

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

DEMO = """
import dataclasses, json
from planner.agent import demo_agents
stock, ours = demo_agents.run(lambda line: print(line, flush=True), seconds_per_block=0.3)
print(json.dumps([dataclasses.asdict(stock), dataclasses.asdict(ours)]))
"""


@pytest.mark.timeout(300)
def test_ours_loads_what_is_new_and_stays_where_stock_petals_loads_all_and_is_away(tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="plan-swarm-test-", dir="/tmp"))  # short: sockets lie in it
    try:
        done = subprocess.run(
            [sys.executable, "-c", DEMO],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=280,
            env={**ENVIRONMENT, "TMPDIR": str(folder)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        *lines, last = done.stdout.splitlines()
        stock, ours = json.loads(last)
        assert ours["loaded"] == [8, 9]
        assert (ours["seconds_away"], ours["lost"], ours["late"]) == (0, 0, 0)
        assert ours["tokens"] > 30
        assert stock["loaded"] == [2, 3, 4, 5, 6, 7, 8, 9]
        assert stock["seconds_away"] > 8 * 0.3
        assert stock["lost"] + stock["late"] > 0
        # What is shown on the way is what anyone reads in the DHT, and the table says what was measured.
        shown = "\n".join(lines)
        assert "bravo    0:8, online; waiting, has announced that it will drop blocks 0, 1" in shown
        assert "bravo    2:10, online; serving" in shown
        assert [line.split()[-2:] for line in lines if line.startswith("blocks loaded")] == [["8", "2"]]
        # Its swarms are in folders of their own, each in this one.
        assert [*folder.iterdir()] == []
    finally:
        folder.rmdir()


@pytest.mark.timeout(120)
def test_ctrl_c_in_the_middle_takes_everything_down():
    with started("-m", "cli", "demo", "agents") as process:
        _, folder = swarm_of(process.pid)
        assert any("bravo    0:8, online; waiting" in line for line in process.stdout)
        pids = set(processes_of(folder))
        assert pids
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")
    assert_nothing_left(folder, pids, timeout=5)


def seen(event, at, **more):
    return {"event": event, "name": "bravo", "at": at, **more}


def test_what_a_move_costs_is_counted_from_what_was_seen():
    tidings = [
        seen("loaded", 1.0, block=0),
        seen("token", 2.0, begun=1.5, right=True),
        seen("answer", 2.5, whole=True),
        # From here on the move goes on.
        seen("answer", 3.5, whole=False),
        seen("answer", 4.0, whole=False),
        seen("loaded", 4.5, block=8),
        {**seen("loaded", 4.6, block=3), "name": "alpha"},
        seen("answer", 5.5, whole=True),
        seen("token", 5.0, begun=3.25, right=True),
        seen("token", 6.0, begun=5.0, right=True),
        seen("token", 6.5, begun=6.0, right=False),
        seen("answer", 7.0, whole=False),
        seen("answer", 7.5, whole=False),
    ]
    cost = Cost.of(reversed(tidings), "bravo", begun=3.0)
    assert cost == Cost(loaded=(8,), seconds_away=2.5, lost=1, late=1, tokens=3, slowest=1.75, slowest_before=0.5)


def test_who_always_answered_was_never_away():
    tidings = [seen("token", 1.0, begun=0.5, right=True), *(seen("answer", at, whole=True) for at in (1.0, 2.0))]
    cost = Cost.of(tidings, "bravo", begun=1.5)
    assert (cost.loaded, cost.seconds_away, cost.tokens) == ((), 0, 0)
