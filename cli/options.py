"""Options that several commands have, so that each is written and explained once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli import config
from cli.asked import block_count, number, prefix_text, source_of
from cli.exitcodes import ExitCode

Action = Callable[[], ExitCode]
"""What a command does once its line has been parsed: errors in it are ours, not the parser's."""

PEERS_HELP = (
    "A node of the swarm's DHT, ending in /p2p/ and its peer id; several, or separated by commas. "
    "Default: Petals' public bootstrap peers."
)
PEERS_VARIABLE = "PLAN_SWARM_INITIAL_PEERS"


def check_peers(context: typer.Context, given: list[str] | None) -> list[str] | None:
    """The initial peers as they were given, where they are peers; None where none were given at all.

    Raises
    ------
    PolicyInvalid
        If they are no addresses, or if they were given and are empty: who names a swarm does not mean the public one.
    """
    peers = [peer for text in given or () for peer in text.replace(",", " ").split()]
    where, way_out = _peers_from(context)
    if where is None or context.resilient_parsing:
        return given
    from planner.addresses import EXAMPLE, wrong_with
    from planner.errors import PolicyInvalid
    from planner.text import escape

    if not peers:
        raise PolicyInvalid(f"{where} names no peer; write one like {EXAMPLE}, or {way_out} for the public swarm")
    for peer in peers:
        if (wrong := wrong_with(peer)) is not None:
            raise PolicyInvalid(f"{where}: '{escape(peer, 100)}': {wrong}; write it like {EXAMPLE}")
    return given


def _peers_from(context: typer.Context) -> tuple[str | None, str]:
    """Where the initial peers were given, and how not to; None if they were not."""
    source = source_of(context, "initial_peers")
    if source == "COMMANDLINE":
        return "--initial-peers", "leave it out"
    # The parser takes a variable that is empty for one that is not set.
    if PEERS_VARIABLE in os.environ:
        return PEERS_VARIABLE, "unset it"
    if source == "DEFAULT_MAP":
        return config.origin(context, "initial_peers"), "take it out"
    return None, ""


InitialPeers = Annotated[
    list[str] | None,
    typer.Option(
        "--initial-peers", metavar="MULTIADDRESS", envvar=PEERS_VARIABLE, help=PEERS_HELP, callback=check_peers
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        parser=number, metavar="SECONDS", show_default=False, help="Give up reading after so long. Default: 30."
    ),
]
Prefix = Annotated[str, typer.Option(parser=prefix_text, metavar="PREFIX", help="The model's DHT prefix.")]
NumBlocks = Annotated[
    int | None,
    typer.Option(parser=block_count, metavar="N", help="Blocks of the model, where the swarm does not announce it."),
]
Quiet = Annotated[bool, typer.Option("--quiet", metavar="", help="Show no progress.")]
KeyFile = Annotated[Path, typer.Option("--key", metavar="FILE", help="Your key, as plan-swarm keygen made it.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Holds the key's passphrase; without it, you are asked where there is one."),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="A public key that counts, as plan-swarm keygen prints it; several: first wins."),
]
DEFAULT_TIMEOUT = 30.0
