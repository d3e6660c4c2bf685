"""`plan-swarm demo`: something to try the others on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cli.exitcodes import ExitCode
from cli.options import Action

demo = typer.Typer(no_args_is_help=True, help="Start something on this machine to try plan-swarm on.")


@demo.callback()
def _demo() -> None:
    """Keep `swarm` a command of its own, though it is the only one."""


@demo.command()
def swarm(
    peers_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds the initial peers while all servers are up, for --initial-peers."),
    ] = None,
) -> Action:
    """Start a private swarm of real Petals servers on this machine's CPU, and keep it until Ctrl-C."""

    def act() -> ExitCode:
        from cli.interrupt import cleaning_up
        from cli.invoked import invoked
        from cli.output import check_output, write_stdout
        from planner.agent.demo import run

        if peers_file is not None:
            check_output(peers_file, option="--peers-file")
        with suppress(KeyboardInterrupt), cleaning_up() as ending:  # Ctrl-C is its normal end
            run(
                lambda line: write_stdout(f"{line}\n"),
                peers_file=peers_file,
                leave_if_told=ending.leave_if_told,
                command=invoked(),
            )
        return ExitCode.SUCCESS

    return act
