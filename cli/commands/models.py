"""`plan-swarm models`: what a living swarm serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.exitcodes import ExitCode
from cli.options import DEFAULT_TIMEOUT, Action, InitialPeers, Quiet, Timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from cli.look import Look
    from planner.swarm_models import ModelRow


def models(
    initial_peers: InitialPeers = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
) -> Action:
    """List the models of a living swarm: prefix, blocks, servers, bottleneck, holes."""

    def act() -> ExitCode:
        import json

        from cli import words
        from cli.live import progress, say, swarm, tell
        from cli.output import lines_text, write_stdout
        from planner.errors import PartialReading

        given = initial_peers or ()
        with swarm(given, timeout) as way, progress(quiet, timeout):
            from planner.swarm_models import read_models

            found = read_models(way.peers, timeout)
        rows = found.rows
        if as_json:
            write_stdout(json.dumps([vars(row) for row in rows], indent=2) + "\n")
        else:
            write_stdout(lines_text(lambda look: _table(rows, look)))
        tell(words.count(len(rows), "model"), given, quiet)
        for problem in found.problems:
            say(f"warning: {problem}")
        partial = [row.prefix for row in rows if row.partial]
        if partial:
            raise PartialReading(f"keys of {', '.join(partial[:5])} are likely to be missing; try a longer --timeout")
        return ExitCode.SUCCESS

    return act


def _table(rows: Sequence[ModelRow], look: Look) -> list[Text]:
    from cli import table, words

    if not rows:
        return look.wrap("This swarm announces no models.")

    def shown(value: object) -> str:
        return look.dash if value is None else str(value)

    columns = [
        table.Column("prefix", [look.safe(row.prefix) for row in rows], shrinks_to=20, style="bold"),
        table.Column("blocks", [str(row.num_blocks) for row in rows], right=True),
        table.Column("servers", [shown(row.servers) for row in rows], right=True),
        table.Column(
            "bottleneck RPS",
            [look.dash if row.bottleneck is None else words.rps(row.bottleneck) for row in rows],
            right=True,
        ),
        table.Column("holes", [shown(row.holes) for row in rows], right=True),
        table.Column("repository", [look.safe(row.repository or "") for row in rows], shrinks_to=10, drop=1),
    ]
    notes = [line for row in rows if row.note for line in look.wrap(f"{look.safe(row.prefix)}: {look.safe(row.note)}")]
    return table.render(columns, look) + notes
