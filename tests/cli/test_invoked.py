"""The way to call the command again that hints give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.invoked import invoked
from tests.cli.process import ROOT


def test_by_name_where_that_is_enough_and_else_with_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "a folder" / "plan-swarm"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(ROOT)!r})\nfrom cli.invoked import *\n"
    )
    with command.open("a") as file:
        file.write("print(invoked())")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    printed = subprocess.run(["a folder/plan-swarm"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed == f"'{command}'\n"
    assert subprocess.run([printed], shell=True, capture_output=True, text=True).stdout == printed  # noqa: S602
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    assert subprocess.run(["plan-swarm"], capture_output=True, text=True, check=True).stdout == "plan-swarm\n"


def test_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(ROOT / "cli" / "__main__.py"), "demo", "swarm"])
    assert invoked() == f"{sys.executable} -m cli"
