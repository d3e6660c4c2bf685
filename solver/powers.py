"""Powers of two and random numbers that are the same on every machine, bit by bit.

`numpy.exp` is not: it has other roundings for other processors, and one other rounding sends a search another way.
Here are only sums, products and square roots, which IEEE 754 leaves no choice in.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.problem import Floats, Ints

STEPS = 1024
"""Steps to the unit of an exponent that tables have."""
LN_2 = 0.6931471805599453


@cache
def _fractions() -> Floats:
    """``2 ** (-k / STEPS)`` for k from 0 to ``STEPS - 1``."""
    step = np.float64(0.5)
    for _ in range(STEPS.bit_length() - 1):
        step = np.sqrt(step)
    return np.concatenate(([1.0], np.cumprod(np.full(STEPS - 1, step))))


def power(exponents: Any) -> NDArray[Any]:
    """``2 ** exponents``, to ten digits; above ``2 ** 900`` it stays there, and infinity too."""
    negated = np.clip(exponents, -1000.0, 900.0) * -STEPS
    steps: Ints = np.floor(negated).astype(np.int64)
    whole, part = np.divmod(steps, STEPS)
    rest = (steps - negated) * (LN_2 / STEPS)
    found: NDArray[Any] = np.ldexp(_fractions()[part], -whole) * (1.0 + rest * (1.0 + rest / 2.0))
    return found


def share(done: int, of: int) -> float:
    """How far `done` is on the way to `of`, from 0 to 1, rounded once."""
    return float(Fraction(done, of)) if of else 1.0
