"""Where the daemon sends new streams: it goes on sending them to a handler that was killed, until it is told not to.

A handler that ends by itself says so. The connections of one that is killed end too, yet not the address that it has
given for new streams; so whoever comes after it takes that back, or every so many sessions would fail for good.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from planner.agent.compat import prepare

prepare()

from hivemind.p2p.p2p_daemon_bindings.control import ControlClient  # noqa: E402
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure  # noqa: E402


def address_of(p2p: Any) -> str:
    """Where a replica of hivemind's `P2P` takes its streams."""
    return str(p2p._client.control.listen_maddr)


async def take_back(p2p: Any, address: str, names: Iterable[str]) -> None:
    """Have the daemon of `p2p` send no streams of these names to `address` any more."""
    ours = p2p._client.control
    listen = type(ours.listen_maddr)(address)
    theirs = ControlClient(ours.daemon_connector, listen, _initialized_with_create=True)
    for name in names:
        theirs.handlers[name] = None
        with suppress(ControlFailure):  # it died before it had given its address
            await theirs.remove_stream_handler(name)
    with suppress(OSError):
        os.remove(listen["unix"])
