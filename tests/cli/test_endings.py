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
from typing import Any

import pytest

from tests.cli.build import VALIDATOR
from tests.cli.process import AT_ONCE, LAUNCH, NOWHERE, REAL, STAND_IN, closed_pipe, run


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


def test_a_thread_that_goes_on_does_not_keep_the_process() -> None:
    lingering = "import atexit, threading; threading.Thread(target=threading.Event().wait).start()\n"
    lingering += "atexit.register(print, 'put away', flush=True)\n"
    done = subprocess.run(
        [sys.executable, "-c", lingering + AT_ONCE + LAUNCH, "--dump", REAL, "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.endswith("put away\n")
    assert "llama-65b-hf" in done.stdout


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


LOADING = """
import importlib.abc, os, sys, time
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        try:
            os.kill(os.getpid(), NUMBER)
            time.sleep(5)
        except BaseException as error:
            raise ImportError("initialization failed") from error
sys.meta_path.insert(0, Finder())
"""
"""A signal that comes while a compiled module is loading, which makes an error of its own of it."""


@pytest.mark.parametrize(
    ("name", "arguments", "number", "code"),
    [
        ("ortools", ["--dump", REAL], signal.SIGINT, 130),
        ("ortools", ["--dump", REAL], signal.SIGTERM, -signal.SIGTERM),
        ("numpy", ["--dump", REAL], signal.SIGINT, 130),
        ("rich", ["--help"], signal.SIGINT, 130),
        ("cryptography.exceptions", ["keygen", "key.pem"], signal.SIGINT, 130),
        ("hivemind.utils", ["models", "--initial-peers", NOWHERE], signal.SIGINT, 130),
        ("hivemind.utils", ["models", "--initial-peers", NOWHERE], signal.SIGTERM, 143),
        ("torch", ["--prefix", "m", "--initial-peers", NOWHERE], signal.SIGINT, 130),
        ("torch", ["--prefix", "m", "--initial-peers", NOWHERE], signal.SIGTERM, 143),
    ],
)
def test_a_signal_while_a_module_is_loading(
    name: str, arguments: list[str], number: int, code: int, tmp_path: Path
) -> None:
    loading = LOADING.replace("NAME", repr(name)).replace("NUMBER", str(int(number)))
    done = run(*arguments, code=loading + LAUNCH, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_before_the_command_line_is_loaded() -> None:
    loading = LOADING.replace("NAME", "'typer'").replace("NUMBER", str(int(signal.SIGINT)))
    done = run("--help", code=f"{loading}\nfrom cli.__main__ import main; main()")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


CLOSED = {"stdin": 0, "stdout": 1, "stderr": 2}


def without(*names: str, arguments: list[str], code: str = LAUNCH, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command with these standard streams closed."""

    def close() -> None:
        for name in names:
            os.close(CLOSED[name])

    return run(*arguments, code=code, preexec_fn=close, **options)


EVERY_COMMAND = {
    "plan": ["--dump", REAL],
    "help": ["--help"],
    "version": ["--version"],
    "dump": ["dump", "swarm.json", "--prefix", "m", "--initial-peers", NOWHERE],
    "models": ["models", "--initial-peers", NOWHERE],
    "keygen": ["keygen", "key.pem"],
    "publish": ["publish", "plan.json", "--key", "key.pem", "--yes"],
    "revoke": ["revoke", "--prefix", "m", "--key", "key.pem"],
    "status": ["status", "--prefix", "m"],
    "verify": ["verify", REAL],
    "demo": ["demo", "swarm"],
}


@pytest.mark.parametrize("arguments", EVERY_COMMAND.values(), ids=EVERY_COMMAND)
def test_a_closed_standard_output_is_noticed_before_anything_is_done(arguments: list[str], tmp_path: Path) -> None:
    done = without("stdout", arguments=arguments, code=AT_ONCE + LAUNCH, cwd=tmp_path)
    assert done.returncode == 7
    assert done.stderr == "plan-swarm: cannot write standard output: it is closed; send it somewhere, as to /dev/null\n"
    assert list(tmp_path.iterdir()) == []
    done = without("stdin", "stdout", "stderr", arguments=arguments, code=AT_ONCE + LAUNCH, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.parametrize("names", [["stderr"], ["stdin", "stderr"]])
def test_what_goes_to_a_closed_standard_error_is_lost(names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = without(*names, arguments=["--dump", REAL, "--out", str(path)], code=AT_ONCE + LAUNCH)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Move 1 server: ")
    VALIDATOR.validate(json.loads(path.read_text()))
    done = without(*names, arguments=["--dump", "nowhere.json"])
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    done = without(*names, arguments=["models", "--initial-peers", NOWHERE, "--timeout", "2"])
    assert (done.returncode, done.stdout, done.stderr) == (8, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_standard_error_or_under_the_help() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", LAUNCH, "--dump", "nowhere.json"], stderr=full, timeout=60)
        assert done.returncode == 4
        for arguments in (["--help"], ["--version"]):
            done = subprocess.run(
                [sys.executable, "-c", LAUNCH, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
            )
            assert done.returncode == 7
            assert re.fullmatch(r"plan-swarm: cannot write standard output: .*\n", done.stderr)


def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path) -> None:
    done = without("stdin", arguments=["--dump", "-"])
    assert done.returncode == 4
    assert done.stderr == "plan-swarm: standard input is empty; write a dump into it first\n"
    done = without("stdin", arguments=["keygen", str(tmp_path / "key.pem")])
    assert (done.returncode, done.stderr) == (0, "")
    done = without("stdin", arguments=["publish", "plan.json", "--key", str(tmp_path / "key.pem")])
    assert done.returncode == 2
    assert "give --yes" in done.stderr


def test_termination_while_a_file_is_written_leaves_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    slow = "import os\ndef slow(number):\n    os.kill(os.getpid(), 15)\n    time.sleep(0.2)\nos.fsync = slow\n"
    done = run("--dump", REAL, "--out", str(path), code=AT_ONCE + slow + LAUNCH)
    assert done.returncode == -signal.SIGTERM
    VALIDATOR.validate(json.loads(path.read_text()))
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
