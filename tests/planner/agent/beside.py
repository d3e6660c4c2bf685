"""A script as a process of its own beside a swarm, which answers each time it is asked."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[2]), "HIVEMIND_LOGLEVEL": "ERROR"}


def started(*arguments: str) -> subprocess.Popen[str]:
    """A Python process whose end is waited for by whoever sends it a signal; its output is read."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@contextmanager
def beside(script: str, arguments: list[str], folder: Path, retries: int = 3) -> Iterator[Callable[[], Any]]:
    """Start a script of this folder, whose sockets go with `folder`; what it gives asks it for its next answer."""
    with (
        tempfile.TemporaryFile("r+") as errors,
        subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A stock client tries for ever where it cannot go on.
            env={**ENVIRONMENT, "TMPDIR": str(folder), "PETALS_MAX_RETRIES": str(retries)},
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> Any:
            process.stdin.write(b"\n")
            process.stdin.flush()
            came, _, _ = select.select([process.stdout], [], [], 100)
            answer = process.stdout.readline() if came else b""
            assert answer, errors.seek(0) or errors.read()[-2000:]
            return json.loads(answer)

        try:
            yield ask
        finally:
            os.killpg(process.pid, signal.SIGKILL)
