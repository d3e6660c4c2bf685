"""What strangers have put into the DHT, bounded before Petals reads it and escaped before it is logged.

Petals takes any subkey for a peer id, and decoding base 58 takes a time that grows with the square of its length: in
the process of the DHT, which answers nobody meanwhile. And it logs such a subkey as it is, each time that it reads it.
"""

from __future__ import annotations

import logging

from planner.agent.compat import prepare

prepare()

from hivemind.p2p import PeerID  # noqa: E402

from planner.fields import MAX_PEER_ID  # noqa: E402
from planner.text import escape  # noqa: E402

MAX_NEWS = 1000
"""Different lines about strangers' records that are let through: a stranger may make any number."""

_from_base58 = PeerID.from_base58.__func__


def _bounded(cls: type, text: str) -> object:
    if len(text) > MAX_PEER_ID:
        raise ValueError(f"no peer id has {len(text):,} characters")
    return _from_base58(cls, text)


class OnceEach(logging.Filter):
    """Lets each line through once, and escaped."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is news."""
        text = escape(record.getMessage(), 300)
        if text in self._said or len(self._said) >= MAX_NEWS:
            return False
        self._said.add(text)
        record.msg, record.args = text, ()
        return True


def beware() -> None:
    """Bound and escape what strangers write, in this process and those that are forked from it afterwards."""
    PeerID.from_base58 = classmethod(_bounded)
    reader = logging.getLogger("petals.utils.dht")
    if not any(isinstance(one, OnceEach) for one in reader.filters):
        reader.addFilter(OnceEach())
