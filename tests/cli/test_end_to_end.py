"""From a dump to the screen, with the real search."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte
import pytest

from tests.cli.build import VALIDATOR
from tests.cli.process import LAUNCH, REAL, ROOT, closed_pipe, run

LARGE = str(ROOT / "benchmarks" / "data" / "churn-80x100-4.json")


def test_the_real_swarm_has_nothing_to_do() -> None:
    done = run("--dump", REAL, "--detailed-exitcode")
    assert done.returncode == 0
    assert done.stdout.startswith("Nothing to do: ")
    assert done.stderr == ""


def test_the_truth_about_one_server_makes_one_move(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = run("--dump", REAL, "--span", "server4=21:40", "--detailed-exitcode", "--out", str(path))
    assert done.returncode == 10
    assert done.stdout.startswith("Move 1 server: the bottleneck rises from 1459.47 to 2899.81 RPS (+99 %).\n")
    row = next(line for line in done.stdout.splitlines() if line.startswith("server6"))
    assert row.split()[2:4] == ["47:57", "20:30"]
    assert max(map(len, done.stdout.splitlines())) <= 80
    document = json.loads(path.read_text())
    VALIDATOR.validate(document)
    assert document["objective"]["value"] == pytest.approx(2863.96, abs=0.01)


def test_json_with_explanations_keeps_to_the_schema() -> None:
    done = run("--dump", "-", "--json", "--explain", "--span", "server4=21:40", input=Path(REAL).read_text())
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    VALIDATOR.validate(document)
    assert document["explanations"]


def test_planning_on_from_the_plan_before(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    wishes = ("--dump", REAL, "--span", "server4=21:40")
    assert run(*wishes, "--out", str(first)).returncode == 0
    done = run(*wishes, "--previous", str(first), "--out", str(second))
    assert (done.returncode, done.stderr) == (0, "")
    before, after = (json.loads(path.read_text()) for path in (first, second))
    assert (after["plan_id"], after["servers"]) == (before["plan_id"], before["servers"])


def test_the_screen_and_the_document_say_the_same_of_hops(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = run("--dump", LARGE, "--time-limit", "1", "--out", str(path), "--deterministic")
    document = json.loads(path.read_text())
    VALIDATOR.validate(document)
    before, after = document["before"]["hops"], document["after"]["hops"]
    line = next(line for line in done.stdout.splitlines() if line.startswith("path "))
    assert line[14:] == f"a request needs {before} servers" + (f" now, {after} in the plan" if after != before else "")
    prover = {"sweep": "a sweep", "branching": "branch and bound"}
    by = document["objective"]["bound_by"]
    assert f"proven by {prover.get(by, by)}" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--pin", "nobody"], 2),
        (["--pin", "server"], 2),
        (["--drain", "server4", "--cordon", "server4"], 3),
        (["--pin", "server6=79:99"], 3),
    ],
)
def test_demands_that_cannot_be_met(arguments: list[str], code: int) -> None:
    done = run("--dump", REAL, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert re.fullmatch(r"plan-swarm: .+\n", done.stderr)


def test_demands_that_cannot_be_met_as_json() -> None:
    done = run("--dump", REAL, "--pin", "server6=79:99", "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    VALIDATOR.validate(document)
    assert document["status"] == "infeasible"
    assert done.stderr == f"plan-swarm: {document['warnings'][0]}\n"


def test_head_closes_the_pipe() -> None:
    assert closed_pipe("--dump", REAL, code=LAUNCH) == (141, "")


def test_interrupted_once_and_twice() -> None:
    command = [sys.executable, "-c", LAUNCH, "--dump", LARGE, "--time-limit", "50", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for interrupts in (1, 2):
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        # A signal before the handler is set would end the process; the search takes the whole of its time.
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        if interrupts == 2:
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - began < 20
        assert err == "stopping: the best plan so far follows; Ctrl-C again to give up\n"
        if interrupts == 1:
            assert process.returncode == 0
            document = json.loads(out)
            VALIDATOR.validate(document)
            assert document["status"] == "feasible"
            assert document["solve"]["interrupted"] is True
        elif process.returncode != 0:
            # Where the search ends faster than the second signal comes, the plan is the answer to it.
            assert (process.returncode, out) == (130, "")


def test_on_a_terminal_progress_comes_and_goes() -> None:
    master, slave = os.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 80, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "COLUMNS", "FORCE_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "--dump", LARGE, "--time-limit", "2"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    )
    os.close(slave)
    screen = pyte.HistoryScreen(80, 60, history=1000)
    stream = pyte.ByteStream(screen)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
        stream.feed(data)
    os.close(master)
    assert process.wait(30) == 0
    assert b"searching" in seen
    assert b"\x1b[1;32m" in seen
    past = ["".join(line[column].data for column in range(80)) for line in screen.history.top]
    lines = [line.rstrip() for line in [*past, *screen.display]]
    assert not any("searching" in line for line in lines)
    assert re.match(r"Move \d+ servers", lines[0])
