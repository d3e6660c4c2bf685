"""From what was asked to what is shown: read, plan, render."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.asked import Asked, policy_of
from cli.exitcodes import ExitCode
from planner.errors import InfeasibleDemands, OutputUnwritable, PartialReading
from planner.text import escape

if TYPE_CHECKING:
    from planner.live import Reading
    from planner.plan import Plan
    from planner.state import SwarmState


def run(asked: Asked) -> ExitCode:
    """Plan and show the plan.

    Raises
    ------
    PlanSwarmError
        If the input, the demands or the output are not in order.
    BrokenPipeError
        If the reader of standard output has gone.
    """
    from cli.interrupt import leaving_at_once, search_stopper
    from cli.output import check_output
    from cli.progress import ProgressLine
    from planner import load_state
    from planner.plan_file import load_plan

    policy = policy_of(asked)
    if asked.out is not None:
        check_output(asked.out, [asked.dump, asked.previous])
    previous = None if asked.previous is None else load_plan(asked.previous, "to go on from")
    if asked.dump is not None:
        reading, state = None, load_state(asked.dump, prefix=asked.prefix, num_blocks=asked.num_blocks)
    else:
        reading, state = _read_live(asked)

    # OR-Tools takes a while to import: nobody should wait for it to learn of a mistyped path.
    with leaving_at_once():
        from planner import make_plan

    progress = ProgressLine(sys.stderr, quiet=asked.quiet)
    try:
        with search_stopper() as stop:
            plan = make_plan(state, policy, progress=progress, stop=stop, explain=asked.explain, previous=previous)
    finally:
        progress.erase()
    _show(plan, asked)
    if reading is not None:
        reading.check_whole()
    if state.partial:
        raise PartialReading(f"{escape(str(asked.dump))} is of a swarm that was read in part only; read it again")
    return ExitCode.SOMETHING_TO_DO if asked.detailed_exitcode and plan.moves else ExitCode.SUCCESS


def _read_live(asked: Asked) -> tuple[Reading, SwarmState]:
    """The swarm as it is now; what is doubtful in the reading is among the state's warnings."""
    from cli.live import read, tell

    assert asked.prefix is not None  # the command line was refused otherwise
    reading = read(asked.prefix, asked.initial_peers, asked.num_blocks, asked.timeout, asked.quiet)
    tell(reading.summary(), asked.initial_peers, asked.quiet)
    state = reading.state()
    return reading, replace(state, warnings=(*reading.warnings, *state.warnings))


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
