"""`plan-swarm demo`: something to try the others on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cli.asked import number
from cli.exitcodes import ExitCode
from cli.options import Action

demo = typer.Typer(no_args_is_help=True, help="Start something on this machine to try plan-swarm on.")


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


@demo.command()
def agents(
    seconds_per_block: Annotated[
        float | None,
        typer.Option(
            parser=number,
            metavar="SECONDS",
            show_default=False,
            help="Wait so long before each block that is loaded. Default: 2.",
        ),
    ] = None,
) -> Action:
    """Show on real servers what a move costs where they follow plans, and what it costs stock Petals (minutes)."""

    def act() -> ExitCode:
        from cli.interrupt import cleaning_up
        from cli.output import write_stdout
        from planner.agent.demo_agents import SECONDS_PER_BLOCK, run
        from planner.errors import PolicyInvalid

        pause = SECONDS_PER_BLOCK if seconds_per_block is None else seconds_per_block
        if not 0 <= pause <= 60:
            raise PolicyInvalid(f"--seconds-per-block must be from 0 to 60 seconds, not {pause:g}")
        with cleaning_up() as ending:
            run(
                lambda line: write_stdout(f"{line}\n"),
                seconds_per_block=pause,
                leave_if_told=ending.leave_if_told,
            )
        return ExitCode.SUCCESS

    return act
