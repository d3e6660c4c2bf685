"""Which blocks a server's handler processes may serve, and how many calls are inside each: in memory that they share.

There is no lock, as a process that is killed while it holds one would stop all others for good. Each counter is
written by one handler alone, and each flag by the server alone. A handler first counts itself in and then looks at the
flag; the server first sets the flag and then looks at the counters, again and again: so one of the two sees the other.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Iterable, Sequence
from enum import IntEnum


class Flag(IntEnum):
    """What may be done with a block."""

    CLOSED = 0
    """Nothing: it is not here."""
    DRAINING = 1
    """What is inside may go on; nothing new comes in."""
    OPEN = 2


class NotServed(RuntimeError):
    """A block is asked for that may not be used; worded as stock Petals words it, which its clients log and survive."""

    def __init__(self, uid: str) -> None:
        super().__init__(f"Remote peer does not serve {uid}")


class Gate:
    """Flags of all blocks of a model, and counters of the calls inside, for every handler process.

    Parameters
    ----------
    num_blocks
        Blocks of the model: each has a flag, CLOSED at first.
    num_handlers
        Handler processes: each has counters of its own.
    """

    def __init__(self, num_blocks: int, num_handlers: int) -> None:
        context = multiprocessing.get_context("fork")
        self.num_blocks, self.num_handlers = num_blocks, num_handlers
        self._flags = context.RawArray(ctypes.c_uint8, num_blocks)
        self._inside = context.RawArray(ctypes.c_int32, num_blocks * num_handlers)

    def set(self, blocks: Iterable[int], flag: Flag) -> None:
        """Set the flags of some blocks: the server's to do."""
        for block in blocks:
            self._flags[block] = flag

    def flag(self, block: int) -> Flag:
        """What may be done with a block."""
        return Flag(self._flags[block])

    def blocks(self, flag: Flag) -> tuple[int, ...]:
        """The blocks with this flag, in order."""
        return tuple(block for block in range(self.num_blocks) if self._flags[block] == flag)

    def below(self, flag: Flag, blocks: Iterable[int]) -> int | None:
        """The first of `blocks` that has less than `flag`, None where there is none."""
        return next((block for block in blocks if self._flags[block] < flag), None)

    def enter(self, handler: int, blocks: Sequence[int]) -> int | None:
        """Count a new call in, unless a block is not OPEN; then that block is returned and nothing has changed."""
        self._count(handler, blocks, 1)
        if (refused := self.below(Flag.OPEN, blocks)) is not None:
            self._count(handler, blocks, -1)
        return refused

    def leave(self, handler: int, blocks: Sequence[int]) -> None:
        """Count a call out that `enter` has let in."""
        self._count(handler, blocks, -1)

    def inside(self, blocks: Iterable[int]) -> int:
        """The most calls inside any of the blocks."""
        rows = range(0, len(self._inside), self.num_blocks)
        return max((sum(self._inside[row + block] for row in rows) for block in blocks), default=0)

    def _count(self, handler: int, blocks: Iterable[int], change: int) -> None:
        for block in blocks:
            self._inside[handler * self.num_blocks + block] += change
