"""`plan-swarm demo swarm` where it cannot start: one line that says why."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.app import command
from cli.ending import ending
from tests.cli.process import ROOT, run


def demo(modules: Path) -> tuple[int, str]:
    """The exit code and what is complained of, with these modules before those that are installed."""
    done = run("demo", "swarm", env={"PYTHONPATH": os.pathsep.join((str(ROOT), str(modules)))})
    assert done.stdout == "Starting a DHT and 4 Petals servers on this machine, on its CPU ...\n"
    assert done.stderr.startswith("plan-swarm: ")
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


@pytest.mark.parametrize("package", ["hivemind", "petals"])
def test_a_package_that_is_not_installed_is_named_with_the_way_to_it(package: str, tmp_path: Path) -> None:
    if package == "petals" and find_spec("hivemind") is None:
        pytest.skip("hivemind is not installed: make test installs it")
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    code, said = demo(tmp_path)
    assert code == 14
    assert said.startswith(f"plan-swarm: {package} is not installed; ")
    assert "make demo-swarm installs them" in said


def test_names_that_a_version_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "hivemind.py").write_text("__version__ = '9.9'")
    code, said = demo(tmp_path)
    assert code == 14
    assert re.match(r"plan-swarm: hivemind has no .*\bhivemind\.dht\.DHTNode\b.*; found .*hivemind 9\.9", said)
    assert "make demo-swarm installs them" in said


def test_a_swarm_that_does_not_come_up_is_no_unreachable_one(tmp_path: Path) -> None:
    (tmp_path / "hivemind.py").write_text("import os; os._exit(3)")
    code, said = demo(tmp_path)
    assert (code, said) == (15, "plan-swarm: the demo swarm's process ended by itself\n")


@pytest.mark.parametrize(
    ("file", "code", "text"),
    [
        (".", 7, "it is a directory; name a file with --peers-file"),
        ("/dev/null", 7, "it is not a plain file; name a file with --peers-file"),
        ("no/such/folder/swarm.peers", 7, "there is no folder no/such/folder"),
        ("x" * 300, 7, "name a file with --peers-file"),
        ("-", 2, "--peers-file needs the name of a file"),
    ],
)
def test_a_bad_peers_file_is_refused_before_anything_starts(
    file: str, code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ending(lambda: command(["demo", "swarm", "--peers-file", file])) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("plan-swarm: ")
    assert err.count("\n") == 1
    assert text in err


def test_a_peers_file_with_something_else_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("keep me")
    done = run("demo", "swarm", "--peers-file", str(notes))
    assert (done.returncode, done.stdout) == (7, "")
    assert "holds something else than addresses of peers; name another file" in done.stderr
    assert notes.read_text() == "keep me"
