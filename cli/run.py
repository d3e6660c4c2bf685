"""From what was asked to what is shown: read, plan, render."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cli.asked import Asked, policy_of
from cli.exitcodes import ExitCode
from planner.errors import InfeasibleDemands, OutputUnwritable

if TYPE_CHECKING:
    from planner.plan import Plan


def run(asked: Asked) -> ExitCode:
    """Plan and show the plan.

    Raises
    ------
    PlanSwarmError
        If the input, the demands or the output are not in order.
    BrokenPipeError
        If the reader of standard output has gone.
    """
    from cli.interrupt import search_stopper
    from cli.output import check_output
    from cli.progress import ProgressLine
    from planner import load_state

    policy = policy_of(asked)
    if asked.out is not None:
        check_output(asked.out, asked.dump)
    state = load_state(asked.dump, prefix=asked.prefix, num_blocks=asked.num_blocks)

    # OR-Tools takes a while to import: nobody should wait for it to learn of a mistyped path.
    from planner import make_plan

    progress = ProgressLine(sys.stderr, quiet=asked.quiet)
    try:
        with search_stopper() as stop:
            plan = make_plan(state, policy, progress=progress, stop=stop, explain=asked.explain)
    finally:
        progress.erase()
    _show(plan, asked)
    return ExitCode.SOMETHING_TO_DO if asked.detailed_exitcode and plan.moves else ExitCode.SUCCESS


def _show(plan: Plan, asked: Asked) -> None:
    from cli.output import json_text, view_text, write_file, write_stdout

    infeasible = plan.status == "infeasible"
    unwritten: OutputUnwritable | None = None
    if asked.out is not None and not infeasible:
        try:
            write_file(asked.out, plan)
        except OutputUnwritable as error:
            # The search is done: show what it found before saying that the file could not be written.
            unwritten = error
    if asked.json:
        write_stdout(json_text(plan))
    elif not infeasible:
        write_stdout(view_text(plan, asked.ascii))
    if infeasible:
        raise InfeasibleDemands(plan.warnings[0] if plan.warnings else "what is asked contradicts itself")
    if unwritten is not None:
        raise unwritten
