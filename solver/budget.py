"""How much search is left: seconds of the clock, or work that takes about as long and is the same everywhere."""

from __future__ import annotations

import threading
import time

from solver.problem import Limits


class Budget:
    """The time of one search.

    Parameters
    ----------
    limits
        With `Limits.deterministic`, `Limits.seconds` are seconds of work as whoever does it declares by `spend`;
        the clock has no part in it.
    stop
        Once set, nothing is left.
    """

    def __init__(self, limits: Limits, stop: threading.Event) -> None:
        self.limits, self.stop = limits, stop
        self._began = time.monotonic()
        self._worked = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds on the clock since the search began."""
        return time.monotonic() - self._began

    @property
    def used(self) -> float:
        """Seconds of the limit that are used up."""
        return self._worked if self.limits.deterministic else self.elapsed

    def spend(self, seconds: float) -> None:
        """Declare work that takes about so long on one core of a usual machine."""
        self._worked += seconds

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the limit is used up; 0 if it is, or the search was stopped."""
        return 0.0 if self.stop.is_set() else max(0.0, self.limits.seconds * share - self.used)
