"""How a run ends: with an exit code, and where something went wrong with one line that says what."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import typer

from cli.exitcodes import ExitCode, code_for
from cli.interrupt import leave_interrupted, noting_interrupts
from cli.streams import abandon, unwritable


def ending(action: Callable[[], ExitCode]) -> ExitCode:
    """Do `action`; each error becomes one line on standard error and an exit code, never a traceback."""
    with noting_interrupts() as interrupted:
        try:
            return _flushed(action())
        except BrokenPipeError:
            abandon(sys.stdout)
            return ExitCode.CLOSED_PIPE
        except (KeyboardInterrupt, typer.Abort):
            leave_interrupted()
        except Exception as error:
            if interrupted():
                leave_interrupted()
            return _complain(error)


def leave(code: ExitCode) -> NoReturn:
    """End the process; its work is done and written.

    Where a thread of a library goes on, Python's own end would wait for it, or take away what it stands on.
    """
    # A Ctrl-C that comes too late must not change what is told of the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if threading.active_count() == 1:
        sys.exit(int(code))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(int(code))


def _flushed(code: ExitCode) -> ExitCode:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from error
    return code


def _complain(error: Exception) -> ExitCode:
    from cli import complaints
    from planner.errors import PlanSwarmError, PolicyInvalid

    # Of the parser's errors only this one has a public name in typer; its base is that of all of them.
    if isinstance(error, typer.BadParameter.__mro__[1]):
        complaints.complain(complaints.usage(error))
        return ExitCode.USAGE
    if isinstance(error, PlanSwarmError):
        message = str(error)
        complaints.complain(complaints.in_options(message) if isinstance(error, PolicyInvalid) else message)
        return code_for(error)
    complaints.unexpected(error)
    return ExitCode.UNEXPECTED
