"""Where a plan goes: standard output, and a file that is written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cli.interrupt import shielded
from cli.streams import unwritable
from planner.canonical import file_behind, write_whole
from planner.errors import PolicyInvalid
from planner.text import escape

if TYPE_CHECKING:
    from rich.text import Text

    from cli.look import Look
    from planner.plan import Plan


def check_output(path: Path, dump: str | None = None, option: str = "--out") -> None:
    """See before the search whether `path` can be written, so that nobody waits to learn that it cannot.

    Parameters
    ----------
    path
        As it was given.
    dump
        What is read.
    option
        The option or argument by which `path` was given.

    Raises
    ------
    OutputUnwritable
        If it cannot be.
    PolicyInvalid
        If it is the very dump that is read.
    """
    to_stdout = "; --json writes to standard output" if option == "--out" else ""
    if str(path) == "-":
        raise PolicyInvalid(f"{option} needs the name of a file{to_stdout}")
    target = file_behind(path, f"name a file with {option}{to_stdout}")
    if dump is not None and dump != "-" and target.exists() and os.path.exists(dump) and target.samefile(dump):
        raise PolicyInvalid(f"{option} {escape(str(path))} would overwrite the dump that is read; name another file")


def json_text(plan: Plan) -> str:
    """The plan's JSON document."""
    return json.dumps(plan.to_json(), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def write_file(path: Path, plan: Plan) -> None:
    """Write the plan's JSON document to `path`, whole or not at all, whatever signal comes meanwhile."""
    text = json_text(plan)
    with shielded():
        write_whole(path, text)


def view_text(plan: Plan, ascii_only: bool) -> str:
    """The view of the plan, as standard output can show it."""
    from cli.view import view

    return lines_text(lambda look: view(plan, look), ascii_only)


def lines_text(lines: Callable[[Look], list[Text]], ascii_only: bool = False) -> str:
    """The lines that are made for a look, as standard output can show them."""
    from rich.console import Console

    from cli.look import look_of
    from cli.view import to_text

    # Unlike rich, look at no stream but the one that is written to: 80 columns where it is a pipe or a file.
    look = look_of(sys.stdout, shutil.get_terminal_size((80, 24)).columns, ascii_only)
    console = Console(file=sys.stdout, width=look.width)
    colour = sys.stdout.isatty() and not console.no_color and console.color_system is not None
    return to_text(lines(look), console, colour)


def write_stdout(text: str) -> None:
    """Write to standard output, and see to it that it has arrived.

    Raises
    ------
    BrokenPipeError
        If its reader has gone.
    OutputUnwritable
        If it cannot be written otherwise.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from error
