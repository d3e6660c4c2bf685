from __future__ import annotations

import math

import numpy as np
import pytest

from solver import powers


@pytest.mark.parametrize("exponent", [0.0, 1.0, -1.0, 0.5, -7.25, 33.3, -60.01, 1e-9])
def test_powers_of_two(exponent):
    assert float(powers.power(exponent)) == pytest.approx(2.0**exponent, rel=1e-9)


def test_whole_powers_are_exact():
    assert powers.power(np.arange(-100.0, 100.0)).tolist() == [2.0**k for k in range(-100, 100)]


def test_what_is_out_of_reach_stays_finite():
    assert powers.power([math.inf, 1e300, -math.inf]).tolist() == [2.0**900, 2.0**900, 2.0**-1000]


def test_the_very_bits():
    """On a machine with others a search would go another way."""
    assert [value.hex() for value in powers.power([0.1, -3.7, 11.13]).tolist()] == [
        "0x1.125fbee25d8b5p+0",
        "0x1.3b2c47c01c05fp-4",
        "0x1.1823a1cb4c9b5p+11",
    ]
