"""Five minutes with a living swarm, as the README has them: pasted into real terminals, word for word."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.planner.agent.left_behind import assert_nothing_left, processes_of
from tests.terminal import CTRL_C, Terminal

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MARK = "PLAN_SWARM_TEST_MARK"
UP = "Ctrl-C takes everything down."

CHANGING = {
    r"/ip4/\S+": "MULTIADDRESS",
    r"12D3KooW\w+(…\w+)?": "PEER",
    r"ed25519:[\w-]{43}": "KEY",
    r"\b[0-9a-f]{32}\b": "PLAN",
    r"\bepoch \d{13}\b": "epoch EPOCH",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC": "TIME",
    r"\b[\d,]+ bytes\b": "BYTES",
    r"\bafter \d+ s\b": "after SECONDS",
    r"\d+ of (\d+) keys answered in .*?\)": r"TRIES of \1",
    r"/\S+/plan-swarm-demo-\w+": "FOLDER",
}
"""What no two runs have in common."""


def masked(text: str) -> str:
    """The text without what changes; rows of servers, which stand by peer id, in an order without it."""
    for pattern, name in CHANGING.items():
        text = re.sub(pattern, name, text)
    return re.sub(r"(?m)(^PEER .*\n)+", lambda rows: "".join(sorted(rows[0].splitlines(keepends=True))), text)


def assert_shown(shown: str, printed: str) -> None:
    """Line by line, what is printed is what is shown, where a line ``...`` stands for any number of lines."""
    lines = masked(shown).splitlines()
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in lines)
    if not re.fullmatch(pattern, masked(printed)):
        pytest.fail(f"the README has\n{masked(shown)}\nand printed was\n{masked(printed)}")


def walk() -> tuple[str, str, str, str]:
    """The README's commands and what they print, of the first terminal and of the second."""
    section = README.partition("\n## Live in five minutes\n")[2].partition("\n## ")[0]
    (first, up), *then = re.findall(r"```sh\n(.*?)```.*?```\n(.*?)```", section, flags=re.DOTALL)
    return first, up, "".join(commands for commands, _ in then), "".join(printed for _, printed in then)


def marked(mark: str) -> list[psutil.Process]:
    """Every process that was started, at whatever remove, with this mark."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """Of a shell: a home and a place for temporary files that must be empty again, and a mark on all it starts."""
    folder = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))  # short: sockets will be in it
    mark = secrets.token_hex(8)
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}
    try:
        yield {**keep, "HOME": str(folder), "TMPDIR": str(folder), MARK: mark}
    finally:
        for process in marked(mark):
            with suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder)


def checkout(folder: Path) -> None:
    """A folder in which the command is as `make` installs it."""
    command = folder / ".venv-test" / "bin" / "plan-swarm"
    command.parent.mkdir(parents=True)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom cli.app import main\nmain()\n"
    command.write_text(f"#!{sys.executable}\n{code}")
    command.chmod(0o755)


def test_five_minutes_with_a_living_swarm(tmp_path: Path, variables: dict[str, str]) -> None:
    start, up, commands, shown = walk()
    assert start == "make live-swarm\n"
    checkout(tmp_path)
    first, second = Terminal(tmp_path, variables), Terminal(tmp_path, variables)
    try:
        # The target's own recipe, without what it would install.
        first.paste(start.replace("make", f"make -f {ROOT}/Makefile -o .venv-test/everything"))
        first.until(UP, 150)
        second.paste(f"{commands}exec true\n")
        assert_shown(shown, second.until(None, 200))

        (swarm,) = Path(variables["TMPDIR"]).iterdir()
        pids = set(processes_of(swarm))
        first.paste(CTRL_C)
        first.paste("exec true\n")
        assert_shown(up, first.until(None, 30))
        assert_nothing_left(swarm, pids, timeout=5)
        assert marked(variables[MARK]) == []
        assert {file.name for file in tmp_path.iterdir()} == {".venv-test", "operator.pem", "plan.json"}
        assert list(Path(variables["TMPDIR"]).iterdir()) == []
    finally:
        for terminal in (first, second):
            os.kill(terminal.pid, signal.SIGKILL)
            terminal.close()
