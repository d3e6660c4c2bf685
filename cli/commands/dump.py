"""`plan-swarm dump`: the raw records of a living swarm, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exitcodes import ExitCode
from cli.options import DEFAULT_TIMEOUT, Action, InitialPeers, NumBlocks, Prefix, Quiet, Timeout


def dump(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; compressed where it ends in .gz.")],
    prefix: Prefix,
    initial_peers: InitialPeers = None,
    num_blocks: NumBlocks = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
) -> Action:
    """Write the raw records of a living swarm to a file, for --dump."""

    def act() -> ExitCode:
        from cli.interrupt import shielded
        from cli.live import read, say, tell
        from cli.output import check_output
        from planner.dump import write_dump

        check_output(out, option="OUT")
        given = initial_peers or ()
        reading = read(prefix, given, num_blocks, timeout, quiet)
        with shielded():
            write_dump(out, reading.dump())
        tell(f"wrote {out}: {len(reading.records):,} records; {reading.summary()}", given, quiet)
        for warning in reading.warnings:
            say(f"warning: {warning}")
        reading.check_whole()
        return ExitCode.SUCCESS

    return act
