"""The command line of `plan-swarm`, and how each of its runs ends.

Nothing heavy is imported here: ``--help`` and a shell's completion must not wait for OR-Tools.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli import config
from cli.asked import Asked, block_count, number, source_of, whole_number
from cli.commands.demo import demo
from cli.commands.dump import dump as dump_command
from cli.commands.keygen import keygen
from cli.commands.models import models
from cli.commands.publish import publish
from cli.commands.revoke import revoke
from cli.commands.serve import SETTINGS, serve
from cli.commands.status import status
from cli.commands.verify import verify
from cli.completion import complete_peer
from cli.ending import ending, leave
from cli.exitcodes import ExitCode, epilog
from cli.invoked import NAME
from cli.options import DEFAULT_TIMEOUT, PEERS_HELP, PEERS_VARIABLE, check_peers
from cli.streams import stand_in, unwritable

_read, _want, _search, _output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("What to read", "What is asked", "The search", "Output")
)
PEERS = "PEER: any unambiguous part of a peer id."

app = typer.Typer(
    name=NAME,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Movable(str, Enum):
    """Which servers may move."""

    ALL = "all"
    AGENTS = "agents"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"{NAME} {version(NAME)}")
        except PackageNotFoundError:
            typer.echo(f"{NAME} (not installed)")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=epilog())
def plan(
    context: typer.Context,
    dump_file: Annotated[
        str | None,
        _read(
            "--dump",
            metavar="FILE",
            help="A dump of the DHT, or a health monitor's JSON; - is standard input. Default: the living swarm.",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        _read(metavar="PREFIX", help="The model's DHT prefix; not needed for a dump of one model."),
    ] = None,
    initial_peers: Annotated[
        list[str] | None,
        _read("--initial-peers", metavar="MULTIADDRESS", envvar=PEERS_VARIABLE, help=PEERS_HELP),
    ] = None,
    timeout: Annotated[
        float | None,
        _read(parser=number, metavar="SECONDS", help="Give up reading the living swarm after so long. Default: 30."),
    ] = None,
    num_blocks: Annotated[
        int | None,
        _read(parser=block_count, metavar="N", help="Blocks of the model, where the input does not say."),
    ] = None,
    previous: Annotated[
        Path | None,
        _read(
            metavar="FILE",
            help="The plan that is under way, as --out wrote it: the search begins with it, and keeps it where nothing "
            "is better.",
        ),
    ] = None,
    span: Annotated[
        list[str] | None,
        _read(
            metavar="PEER=START:END",
            help=f"The blocks that a server really holds, where the reading is wrong or in doubt. {PEERS}",
            autocompletion=complete_peer,
        ),
    ] = None,
    pin: Annotated[
        list[str] | None,
        _want(
            metavar="PEER[=START:END]",
            help="This server stays where it is, or takes these blocks.",
            autocompletion=complete_peer,
        ),
    ] = None,
    cordon: Annotated[
        list[str] | None,
        _want(metavar="PEER", help="This server stays where it is.", autocompletion=complete_peer),
    ] = None,
    drain: Annotated[
        list[str] | None,
        _want(metavar="PEER", help="This server gives up all its blocks.", autocompletion=complete_peer),
    ] = None,
    movable: Annotated[
        Movable | None,
        _want(help="Who may move: all servers, or those that have an agent. Default: agents, where there are any."),
    ] = None,
    max_moves: Annotated[
        int | None,
        _want(parser=whole_number, metavar="N", help="Move at most so many servers."),
    ] = None,
    max_loads: Annotated[
        int | None,
        _want(parser=whole_number, metavar="N", help="Load at most so many blocks."),
    ] = None,
    min_gain: Annotated[
        str | None,
        _want(metavar="RPS|%", help="Move only for so much gain: 50 is RPS, 2% a share."),
    ] = None,
    min_replicas: Annotated[
        int | None,
        _want(parser=whole_number, metavar="N", help="Wanted servers on each block."),
    ] = None,
    resize: Annotated[
        bool,
        _want("--resize", metavar="", help="Servers may take shorter and longer spans, up to their capacity."),
    ] = False,
    min_span: Annotated[
        int | None,
        _want(parser=whole_number, metavar="N", help="With --resize, choose no span shorter than this. Default: 1."),
    ] = None,
    max_hops: Annotated[
        int | None,
        _want(
            parser=whole_number,
            metavar="N",
            help="A request should need no more servers than this to pass through the model.",
        ),
    ] = None,
    horizon: Annotated[
        float | None,
        _want(
            parser=number,
            metavar="SECONDS",
            help="Time over which the throughput lost to loading is averaged. Default: 14400, 4 hours.",
        ),
    ] = None,
    seconds_per_block: Annotated[
        float | None,
        _want(
            parser=number,
            metavar="SECONDS",
            help="Time to load a block. Default: what a server's agent measured, else 28.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        _search(parser=number, metavar="SECONDS", help="Search at most so long. Default: 10."),
    ] = None,
    workers: Annotated[
        int | None,
        _search(parser=whole_number, metavar="N", help="Threads of the search. Default: the cores that it may use."),
    ] = None,
    seed: Annotated[
        int | None,
        _search(parser=whole_number, metavar="N", help="Seed of all that is random. Default: 0."),
    ] = None,
    deterministic: Annotated[
        bool,
        _search(
            "--deterministic",
            metavar="",
            help="Search by an amount of work, not by the clock: the same input gives the same plan anywhere.",
        ),
    ] = False,
    explain: Annotated[
        bool,
        _search("--explain", metavar="", help="Say why each server stays or goes; searches once more for each."),
    ] = False,
    as_json: Annotated[bool, _output("--json", metavar="", help="Print the plan as one JSON document.")] = False,
    out: Annotated[
        Path | None,
        _output(metavar="FILE", help="Write the JSON document to a file too."),
    ] = None,
    detailed_exitcode: Annotated[
        bool,
        _output("--detailed-exitcode", metavar="", help="Exit with 10 where there is something to do."),
    ] = False,
    ascii_only: Annotated[bool, _output("--ascii", metavar="", help="Print nothing but ASCII.")] = False,
    quiet: Annotated[bool, _output("--quiet", metavar="", help="Show no progress.")] = False,
    config_file: Annotated[
        Path | None,
        _read(
            "--config",
            metavar="FILE",
            envvar=config.VARIABLE,
            callback=config.use,
            is_eager=True,
            help="Options that hold in every run, as TOML: initial-peers = [...]; before a command or after it. "
            f"Default: {config.SHOWN}.",
        ),
    ] = None,
    version: Annotated[
        bool,
        _output("--version", metavar="", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> Asked | None:
    """Plan which server of a Petals swarm holds which blocks.

    It shows the best placement, what that gains and costs, and how sure it is. It changes nothing.
    Without a command it plans; the commands below are about the living swarm.
    """
    typed = _typed(context)
    if context.invoked_subcommand is not None:
        if typed:
            raise typer.BadParameter(
                f"{typed[0]} is an option of planning and means nothing to {context.invoked_subcommand}; "
                "options of a command come after it"
            )
        return None
    from planner.errors import PolicyInvalid

    if dump_file is None and prefix is None:
        raise PolicyInvalid("there is nothing to read; name a model with --prefix, or a dump with --dump FILE")
    if dump_file is not None and (useless := {"--initial-peers", "--timeout"}.intersection(typed)):
        raise PolicyInvalid(f"{min(useless)} is for reading the living swarm; leave out --dump, or leave it out")
    if dump_file is None:
        initial_peers = check_peers(context, initial_peers)
    given = {
        "movable": movable.value if movable is not None else None,
        "max_moves": max_moves,
        "max_loads": max_loads,
        "min_replicas": min_replicas,
        "horizon": horizon,
        "seconds_per_block": seconds_per_block,
        "time_limit": time_limit,
        "workers": workers,
        "seed": seed,
        "resize": resize or None,
        "min_span": min_span,
        "max_hops": max_hops,
        "deterministic": deterministic or None,
    }
    return Asked(
        dump=dump_file,
        prefix=prefix,
        initial_peers=initial_peers or (),
        timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        num_blocks=num_blocks,
        previous=previous,
        pins=pin or (),
        spans=span or (),
        cordons=cordon or (),
        drains=drain or (),
        min_gain=min_gain,
        policy={name: value for name, value in given.items() if value is not None},
        out=out,
        json=as_json,
        explain=explain,
        detailed_exitcode=detailed_exitcode,
        ascii=ascii_only,
        quiet=quiet,
    )


def _typed(context: typer.Context) -> list[str]:
    """The options that stand on the command line, by name; not the one that is for all commands."""
    return [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if source_of(context, parameter.name) == "COMMANDLINE" and parameter.name != "config_file"
    ]


for _name, _function in (
    ("dump", dump_command),
    ("models", models),
    ("keygen", keygen),
    ("publish", publish),
    ("revoke", revoke),
    ("status", status),
    ("verify", verify),
):
    app.command(_name)(_function)
app.command("serve", context_settings=SETTINGS)(serve)
app.add_typer(demo, name="demo")


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    closed = stand_in()

    def action() -> ExitCode:
        if "stdout" in closed:
            from planner.errors import OutputUnwritable

            raise OutputUnwritable("cannot write standard output: it is closed; send it somewhere, as to /dev/null")
        return command(sys.argv[1:])

    leave(ending(action))


def command(arguments: Sequence[str]) -> ExitCode:
    """Do what the arguments ask; errors are raised."""
    asked = _parse(arguments)
    if isinstance(asked, ExitCode):
        return asked
    if not isinstance(asked, Asked):
        return asked()
    from cli.run import run

    return run(asked)


def _parse(arguments: Sequence[str]) -> Asked | Callable[[], ExitCode] | ExitCode:
    """What is asked; an exit code where the parser has answered by itself, as it does for ``--help``."""
    parser = typer.main.get_command(app)
    config.take_everywhere(parser)
    try:
        # Not standalone, because the parser would frame its errors and exit by itself.
        asked = parser.main(list(arguments), prog_name=NAME, standalone_mode=False)
    except SystemExit as leaving:
        completing = f"_{NAME.replace('-', '_').upper()}_COMPLETE" in os.environ
        # The one other reason for which the parser leaves with 1 is that nobody reads its help.
        if leaving.code == 1 and not completing:
            raise BrokenPipeError from leaving
        asked = leaving.code
    except BrokenPipeError:
        raise
    except OSError as error:  # of its own it writes, and reads nothing
        raise unwritable(error) from error
    return asked if isinstance(asked, Asked) or callable(asked) else ExitCode(int(asked or 0))
