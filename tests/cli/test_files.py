"""What is not a plain file, wherever the command is given a file's name: nothing waits, nothing is replaced."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.keys import generate, save_key
from tests.cli.process import NOWHERE, REAL, run
from tests.plans import NOW, document


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    assert stat.S_ISFIFO(path.stat().st_mode)


READING = {
    "plan": (["--dump", "PIPE"], 4),
    "config": (["--config", "PIPE", "--dump", REAL], 4),
    "verify": (["verify", "PIPE"], 4),
    "publish": (["publish", "PIPE", "--key", "KEY", "--yes"], 4),
    "key": (["revoke", "--prefix", "m", "--key", "PIPE"], 11),
    "passphrase": (["revoke", "--prefix", "m", "--key", "KEY", "--passphrase-file", "PIPE"], 11),
}
WRITING = {
    "plan": (["--dump", REAL, "--out", "PIPE"], 7),
    "dump": (["dump", "PIPE", "--prefix", "m"], 7),
    "peers": (["demo", "swarm", "--peers-file", "PIPE"], 7),
    "key": (["keygen", "PIPE"], 11),
}


@pytest.mark.parametrize(("arguments", "code"), [*READING.values(), *WRITING.values()], ids=[*READING, *WRITING])
def test_a_pipe_with_a_name_is_refused_at_once(arguments: list[str], code: int, pipe: Path) -> None:
    key = pipe.with_name("key.pem")
    save_key(key, generate())
    done = run(*(str({"PIPE": pipe, "KEY": key}.get(argument, argument)) for argument in arguments))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert str(pipe) in done.stderr
    if arguments[0] != "keygen":
        assert "is not a plain file" in done.stderr


def test_what_the_shell_hands_over_is_read() -> None:
    """As ``<(command)`` does, and ``command | plan-swarm --dump /dev/stdin``."""
    content = Path(REAL).read_text()
    for name in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-"):
        done = run("--dump", name, "--prefix", "bloom", input=content)
        assert (done.returncode, done.stdout) == (6, "")
        assert "it holds llama-65b-hf" in done.stderr


def test_an_edited_plan_is_not_signed(tmp_path: Path) -> None:
    path, key = tmp_path / "plan.json", tmp_path / "key.pem"
    save_key(key, generate())
    for change, said in (
        ({"valid_until": NOW + 86400.0}, "valid_until is 1700086400.0, and should be 1700003600.0: it was changed"),
        ({"trusted": True}, "'trusted' is a field that no plan has"),
    ):
        path.write_text(json.dumps(document(**change)))
        done = run("publish", str(path), "--key", str(key), "--yes", "--initial-peers", NOWHERE)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
        assert done.stderr.startswith(f"plan-swarm: {path} is not a plan to publish: {said}")


def test_no_settings_at_all() -> None:
    done = run("--prefix", "m", "--timeout", "0", env={"PLAN_SWARM_CONFIG": os.devnull})
    assert done.returncode == 2
    assert "--timeout must be above 0" in done.stderr


def test_a_passphrase_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        secret.chmod(mode)
        done = run("keygen", str(tmp_path / f"{mode}.pem"), "--passphrase-file", str(secret))
        assert done.returncode == 0
        assert (f"may use {secret}, which holds a passphrase: run chmod 600 on it\n" in done.stderr) is warned
        assert done.stderr.count("\n") == warned
