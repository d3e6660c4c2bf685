"""`plan-swarm demo`: something to try the others on."""

from __future__ import annotations

import typer

from cli.exitcodes import ExitCode
from cli.options import Action

demo = typer.Typer(no_args_is_help=True, help="Start something on this machine to try plan-swarm on.")


@demo.callback()
def _demo() -> None:
    """Keep `swarm` a command of its own, though it is the only one."""


@demo.command()
def swarm() -> Action:
    """Start a private swarm of real Petals servers on this machine's CPU, and keep it until Ctrl-C."""

    def act() -> ExitCode:
        from cli.output import write_stdout
        from planner.agent.demo import run

        run(lambda line: write_stdout(f"{line}\n"))
        return ExitCode.SUCCESS

    return act
