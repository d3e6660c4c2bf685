"""How a run ends when its reader has gone, its disk is full, or a signal comes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.build import VALIDATOR
from tests.cli.process import AT_ONCE, LAUNCH, REAL, STAND_IN, closed_pipe, run


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--dump", REAL], ["--dump", REAL, "--json"]])
def test_closed_pipe(arguments: list[str]) -> None:
    code, err = closed_pipe(*arguments, code=AT_ONCE + LAUNCH)
    assert (code, err.replace("searching\n", "")) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", AT_ONCE + LAUNCH, "--dump", REAL],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 7
    assert re.fullmatch(r"searching\nplan-swarm: cannot write standard output: .*\n", done.stderr)


def searching(*arguments: str, linger: float = 0.0) -> subprocess.Popen[str]:
    """A process whose search has begun, and which ends it `linger` seconds after it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", STAND_IN.replace("LINGER", str(linger)) + LAUNCH, "--dump", REAL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "searching\n"
    return process


def test_first_interrupt_stops_the_search_and_shows_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    process = searching("--out", str(path))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert err == "stopping: the best plan so far follows; Ctrl-C again to give up\n"
    assert "Interrupted: the best placement found" in out
    assert json.loads(path.read_text())["solve"]["interrupted"] is True


def test_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    process = searching("--out", str(tmp_path / "plan.json"), linger=50)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith("stopping")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (process.returncode, out, err) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def test_termination_ends_as_it_does_by_default(tmp_path: Path) -> None:
    process = searching("--out", str(tmp_path / "plan.json"))
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (-signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


def test_termination_while_a_file_is_written_leaves_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    slow = "import os\ndef slow(number):\n    os.kill(os.getpid(), 15)\n    time.sleep(0.2)\nos.fsync = slow\n"
    done = run("--dump", REAL, "--out", str(path), code=AT_ONCE + slow + LAUNCH)
    assert done.returncode == -signal.SIGTERM
    VALIDATOR.validate(json.loads(path.read_text()))
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
