"""`plan-swarm status`: what is published, and how far the servers are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asked import number
from cli.exitcodes import ExitCode
from cli.options import (
    DEFAULT_TIMEOUT,
    Action,
    InitialPeers,
    NumBlocks,
    PassphraseFile,
    Prefix,
    Quiet,
    Timeout,
    Trust,
)

if TYPE_CHECKING:
    from cli.live import Way
    from planner.status import Status

CLEAR = "\x1b[H\x1b[2J"


def status(
    prefix: Prefix,
    trust: Trust = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Trust your own key too, first of all.")] = None,
    passphrase_file: PassphraseFile = None,
    watch: Annotated[bool, typer.Option("--watch", metavar="", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            parser=number, metavar="SECONDS", show_default=False, help="Pause between two with --watch. Default: 10."
        ),
    ] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print one JSON document; with --watch one a line.")
    ] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", metavar="", help="Print nothing but ASCII.")] = False,
    initial_peers: InitialPeers = None,
    num_blocks: NumBlocks = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
) -> Action:
    """Show the plans published for a model, whether they count, and for every server where it is and should be."""

    def act() -> ExitCode:
        from cli.keyfiles import public_keys, signing_key
        from cli.live import check_installed, progress, say, swarm, tell
        from cli.output import write_stdout
        from planner.errors import NothingToPlan, PolicyInvalid, SwarmUnreachable

        check_installed()
        if not interval > 0:
            raise PolicyInvalid(f"--interval must be above 0 seconds, not {interval:g}")
        own = [signing_key(key, passphrase_file).public] if key is not None else []
        trusted, given = (*own, *public_keys(trust or ())), initial_peers or ()

        def look(way: Way, before: Status | None = None) -> Status:
            from planner.status import swarm_status

            rows = before.keys if before is not None else ()
            kept = {row.key.key_id: row.envelope for row in rows if row.envelope is not None}
            with progress(quiet, timeout) as report:
                return swarm_status(
                    prefix,
                    way.peers,
                    trusted,
                    kept=kept,
                    num_blocks=num_blocks,
                    timeout=timeout,
                    progress=report,
                )

        def show(found: Status) -> None:
            clear = CLEAR if watch and sys.stdout.isatty() and not as_json else ""
            write_stdout(clear + (_json(found, watch) if as_json else _text(found, ascii_only)))

        with swarm(given, timeout) as way:
            found = look(way)
            show(found)
            while watch:
                way.pause(interval)
                try:
                    found = look(way, found)
                except SwarmUnreachable as error:
                    say(f"not read: {error}; trying again in {interval:g} s")
                    continue
                show(found)
        if found.reading is not None:
            tell(found.reading.summary(), given, quiet)
            found.reading.check_whole()
        elif not found.keys:
            raise NothingToPlan(found.notes[0] if found.notes else f"nothing is known of {prefix}")
        return ExitCode.SUCCESS

    return act


def _json(found: Status, on_one_line: bool) -> str:
    return json.dumps(found.to_json(), indent=None if on_one_line else 2, ensure_ascii=True, allow_nan=False) + "\n"


def _text(found: Status, ascii_only: bool) -> str:
    from cli.output import lines_text
    from cli.statusview import view

    return lines_text(lambda look: view(found, look), ascii_only)
