"""`plan-swarm` again and again, each run in a process of its own, forked from one that has imported everything already.

A live command imports hivemind, and with it torch: seconds of work, again for each. That and the interpreter's own
start are all that these runs do not do; tests of those, and of signals, have the command start from nothing.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from typing import Any

from tests.cli.process import ROOT, environment

TIMEOUT = 60.0
"""Seconds that a run may take."""


@functools.cache
def _warm() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.warm"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def end() -> None:
    """End the process that runs are forked from, if there is one."""
    if _warm.cache_info().currsize:
        process = _warm()
        _warm.cache_clear()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_warm(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command as `tests.cli.process.run` does, with nothing on standard input."""
    process = _warm()
    with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
        order = {
            "arguments": arguments,
            "environment": environment(**env),
            "cwd": os.getcwd(),
            "files": [stdout.name, stderr.name],
        }
        print(json.dumps(order), file=process.stdin, flush=True)
        came, _, _ = select.select([process.stdout], [], [], TIMEOUT)
        if not came:
            end()
            raise subprocess.TimeoutExpired(list(arguments), TIMEOUT, stdout.read(), stderr.read())
        return subprocess.CompletedProcess(
            list(arguments), int(process.stdout.readline()), stdout.read(), stderr.read()
        )


def wait_for_orders() -> None:
    """Fork for each order, and return in the child, which is then as if it had been started with it."""
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            begin(order)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)


def begin(order: dict[str, Any]) -> None:
    """Be the process that the order asks for."""
    for number, (file, flags) in enumerate(((os.devnull, os.O_RDONLY), *((f, os.O_WRONLY) for f in order["files"]))):
        opened = os.open(file, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
    sys.stderr.reconfigure(line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    sys.argv = ["plan-swarm", *order["arguments"]]


if __name__ == "__main__":
    import hivemind.dht.node
    import hivemind.utils.serializer  # noqa: F401

    import cli.app
    import planner.planning  # noqa: F401

    wait_for_orders()
    cli.app.main()
