"""`plan-swarm keygen`: a new operator's key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exitcodes import ExitCode
from cli.options import Action


def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the key goes; what exists is not overwritten.")],
    passphrase_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds the passphrase; without it, you are asked on a terminal."),
    ] = None,
) -> Action:
    """Make a key to sign plans with, and print its public half, as --trust takes it."""

    def act() -> ExitCode:
        from cli.interrupt import shielded
        from cli.keyfiles import new_passphrase
        from cli.live import check_installed
        from cli.output import write_stdout

        check_installed("cryptography")
        from planner.keys import generate, save_key

        passphrase = new_passphrase(passphrase_file)
        key = generate()
        with shielded():
            save_key(file, key, passphrase)
        try:
            write_stdout(f"{key.public.text()}\n")
        except BaseException:
            file.unlink()  # nobody knows it, and the next try is to find the name free
            raise
        return ExitCode.SUCCESS

    return act
