"""How a run ends: with an exit code, and where something went wrong with one line that says what."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from cli.exitcodes import ExitCode, code_for


def ending(action: Callable[[], ExitCode]) -> ExitCode:
    """Do `action`; each error becomes one line on standard error and an exit code, never a traceback."""
    try:
        code = action()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        abandon_stdout()
        return ExitCode.CLOSED_PIPE
    except (KeyboardInterrupt, typer.Abort):
        from cli.interrupt import leave_interrupted

        leave_interrupted()
    except Exception as error:
        return _complain(error)


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


def abandon_stdout() -> None:
    """Forget what standard output still holds, so that Python does not try to write it when it ends."""
    with open(os.devnull, "w") as devnull:
        os.dup2(devnull.fileno(), sys.stdout.fileno())
