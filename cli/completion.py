"""What a shell offers for the options that name a server: the peers of the dump on the same line."""

from __future__ import annotations

import re

import typer

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
"""Only such peer ids are offered: others could mean something to the shell that is given them."""


def complete_peer(ctx: typer.Context, incomplete: str) -> list[str]:
    """The peer ids that begin with `incomplete`; none if anything goes wrong."""
    try:
        dump = ctx.params.get("dump_file")
        if not dump or dump == "-" or "=" in incomplete:
            return []
        from planner import load_state

        state = load_state(dump, prefix=ctx.params.get("prefix"), num_blocks=ctx.params.get("num_blocks"))
        peers = (server.peer_id for server in state.servers if _PLAIN.fullmatch(server.peer_id))
        return [peer for peer in peers if peer.startswith(incomplete)]
    except Exception:
        # Whatever is wrong with the line, running it says so; a shell that is completing must stay silent.
        return []
