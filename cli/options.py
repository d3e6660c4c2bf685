"""Options that several commands have, so that each is written and explained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli.asked import number, whole_number
from cli.exitcodes import ExitCode

Action = Callable[[], ExitCode]
"""What a command does once its line has been parsed: errors in it are ours, not the parser's."""

PEERS_HELP = (
    "A node of the swarm's DHT, ending in /p2p/ and its peer id; several, or separated by commas. "
    "Default: Petals' public bootstrap peers."
)
PEERS_VARIABLE = "PLAN_SWARM_INITIAL_PEERS"

InitialPeers = Annotated[
    list[str] | None,
    typer.Option("--initial-peers", metavar="MULTIADDRESS", envvar=PEERS_VARIABLE, help=PEERS_HELP),
]
Timeout = Annotated[
    float,
    typer.Option(
        parser=number, metavar="SECONDS", show_default=False, help="Give up reading after so long. Default: 30."
    ),
]
Prefix = Annotated[str, typer.Option(metavar="PREFIX", help="The model's DHT prefix.")]
NumBlocks = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar="N", help="Blocks of the model, where the swarm does not announce it."),
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
