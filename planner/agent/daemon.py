"""Whether the server's node of the DHT lives: hivemind's process of it, and that one's libp2p daemon.

hivemind starts neither again. Without the daemon the process goes on, hears nobody and is heard by nobody.
"""

from __future__ import annotations

from typing import Any


class Watched:
    """A DHT that is looked after; looking never waits for it, as it may be busy or stopped.

    Parameters
    ----------
    dht
        hivemind's `DHT`, started.
    """

    def __init__(self, dht: Any) -> None:
        self._dht = dht
        self._asked: Any = None

    def ended(self) -> str:
        """What of it has ended, as far as is known now; empty if nothing."""
        if not self._dht.is_alive():
            return "the process of the server's DHT"
        if self._asked is None:
            self._asked = self._dht.run_coroutine(_daemon_has_ended, return_future=True)
        if not self._asked.done():
            return ""
        asked, self._asked = self._asked, None
        return "the libp2p daemon of the server's DHT" if asked.exception() is None and asked.result() else ""


async def _daemon_has_ended(_dht: Any, node: Any) -> bool:
    """In the DHT's process, whose child the daemon is."""
    child = node.protocol.p2p._child
    return child is not None and child.returncode is not None
