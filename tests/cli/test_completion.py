"""Completion as a shell asks for it: through the environment, answered on standard output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import LAUNCH, REAL, ROOT

COMMAND = [sys.executable, "-c", LAUNCH]
SERVERS = [f"server{number}" for number in range(1, 8)]


def complete(*words: str, imports: bool = False) -> list[str]:
    """What bash is offered for the last word; with `imports`, the modules that were imported for it instead."""
    environment = {
        **os.environ,
        "_PLAN_SWARM_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["plan-swarm", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-X", "importtime", *COMMAND[1:]] if imports else COMMAND
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    if imports:
        return [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("option", ["--pin", "--cordon", "--drain", "--span"])
def test_peers_of_the_dump_on_the_line(option: str) -> None:
    assert complete("--dump", REAL, option, "") == SERVERS


def test_peers_by_their_beginning() -> None:
    assert complete("--dump", REAL, "--pin", "server6") == ["server6"]
    assert complete("--dump", REAL, "--pin", "other") == []


def test_values_of_movable() -> None:
    assert complete("--movable", "") == ["all", "agents"]
    assert complete("--movable", "ag") == ["agents"]


def test_options() -> None:
    assert complete("--max") == ["--max-moves", "--max-loads", "--max-hops"]


def test_silent_whatever_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for words in (
        ("--pin", ""),
        ("--dump", "nowhere.json", "--pin", ""),
        ("--dump", str(broken), "--pin", ""),
        ("--dump", str(tmp_path), "--pin", ""),
        ("--dump", "-", "--pin", ""),
        ("--dump", REAL, "--prefix", "other", "--pin", ""),
        ("--dump", REAL, "--pin", "server4="),
        ("--dump", REAL, "--max-moves", "x", "--pin", "nobody"),
    ):
        assert complete(*words) == []


def test_peer_ids_that_a_shell_would_run_are_not_offered(tmp_path: Path) -> None:
    document = json.loads(Path(REAL).read_text())
    for record in document["records"]:
        if record["peer_id"] == "server1":
            record["peer_id"] = "$(touch pwned)"
    evil = tmp_path / "evil.json"
    evil.write_text(json.dumps(document))
    assert complete("--dump", str(evil), "--pin", "") == SERVERS[1:]


def test_options_are_completed_without_anything_heavy() -> None:
    imported = set(complete("--ma", imports=True))
    assert "typer" in imported
    assert not {"numpy", "ortools", "planner"} & imported


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_real_bash_completes(tmp_path: Path) -> None:
    command = tmp_path / "plan-swarm"
    command.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c 'from cli.app import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    script = (
        'eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 plan-swarm --show-completion bash)"\n'
        f"COMP_WORDS=(plan-swarm --dump {REAL} --pin server5) COMP_CWORD=4\n"
        "_plan_swarm_completion plan-swarm\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("server5\n", "")
