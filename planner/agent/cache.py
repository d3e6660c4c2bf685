"""Petals' attention cache with a budget that may change while handlers use it."""

from __future__ import annotations

import ctypes
import multiprocessing

from planner.agent.compat import prepare

prepare()

from petals.server.memory_cache import MemoryCache  # noqa: E402

UNLIMITED = 2**62


class SharedMemoryCache(MemoryCache):
    """Handlers see a new budget at once: stock Petals gives each of them a copy when it is forked.

    Parameters
    ----------
    max_size_bytes, max_alloc_timeout
        As of `MemoryCache`.
    """

    def __init__(self, max_size_bytes: int | None, max_alloc_timeout: float | None = None) -> None:
        self._budget = multiprocessing.get_context("fork").RawValue(ctypes.c_int64, UNLIMITED)
        super().__init__(max_size_bytes, max_alloc_timeout)

    @property
    def max_size_bytes(self) -> int:
        """Bytes that all sessions may take together."""
        return int(self._budget.value)

    @max_size_bytes.setter
    def max_size_bytes(self, value: int) -> None:
        self._budget.value = min(value, UNLIMITED)

    def collect(self) -> None:
        """Free what ended sessions have left behind, which Petals frees only when the next step comes.

        To be called where steps are computed, and not while one is.
        """
        with self.use_cache():
            pass
