"""Throughput in integers: the one place where RPS become the units that CP-SAT counts in.

A unit is ``1 / scale`` RPS, with a power of two as scale, so that scaling itself is exact in floats and only
the rounding to integers loses something. Throughput is rounded down and penalties up: what the integer
program reaches, the real placement reaches too. What is lost is summed up as the rounding slack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from solver.problem import Floats, Ints

MAX_EXPONENT = 256
"""Beyond it throughput is too small to tell from none, and near the ends of the floats."""
MAX_ROW_SUM = 2**30
"""Coefficients of a row must sum below 2^31, or CP-SAT's presolve may certify a wrong optimum
(https://github.com/google/or-tools/issues/5293); half of that leaves room for levels and big-M terms."""


@dataclass(frozen=True)
class Scale:
    """RPS to units and back.

    Parameters
    ----------
    exponent
        ``scale = 2 ** exponent`` units make one RPS.
    """

    exponent: int

    @property
    def units(self) -> float:
        """Units in one RPS."""
        return math.ldexp(1.0, self.exponent)

    def down(self, rps: Floats | float) -> Ints:
        """RPS as units, rounded down."""
        return np.floor(np.ldexp(rps, self.exponent)).astype(np.int64)

    def up(self, rps: Floats | float) -> Ints:
        """RPS as units, rounded up."""
        return np.ceil(np.ldexp(rps, self.exponent)).astype(np.int64)

    @property
    def rps(self) -> float:
        """RPS in one unit; a power of two, so that units times it are exact."""
        return math.ldexp(1.0, -self.exponent)


def choose_scale(largest_row_sum: float) -> Scale:
    """The finest scale at which a row whose coefficients sum to `largest_row_sum` RPS stays below `MAX_ROW_SUM`."""
    if largest_row_sum <= 0:
        return Scale(0)
    _, exponent = math.frexp(largest_row_sum)
    return Scale(min(MAX_ROW_SUM.bit_length() - 1 - exponent, MAX_EXPONENT))
