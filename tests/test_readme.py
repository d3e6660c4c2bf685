"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from typer.main import get_command

from cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


def test_the_two_commands():
    commands = re.findall(r"^    (make .*)$", README, flags=re.MULTILINE)
    assert commands == ["make demo", "make test"]


def test_the_plan_shown():
    command, shown = re.search(r"```\n\$ plan-swarm (.*?)\n(.*?)```", README, flags=re.DOTALL).groups()
    printed = run("-m", "cli", *command.split()).splitlines()
    for line in shown.splitlines():
        assert line == "..." or line in printed


def test_the_script():
    (script,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    first, *moves = run("-c", script).splitlines()
    assert first.split()[0] == "optimal"
    assert moves == ["server6 47:57 20:30 280.0"]


def test_the_options_named():
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w-])", README))
    commands = set(re.findall(r"plan-swarm ([a-z]+)", README)) & set(get_command(app).commands)
    text = "".join(run("-m", "cli", *command, "--help") for command in [(), *((name,) for name in sorted(commands))])
    assert {option for option in options if option not in text} == set()


def test_the_links_inside():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists()
