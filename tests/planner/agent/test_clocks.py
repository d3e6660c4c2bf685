"""Whose clock is off: it takes more than half of those that answer to find that it is one's own."""

from __future__ import annotations

import pytest

from planner.agent.clocks import middle


@pytest.mark.parametrize(
    ("answers", "off"),
    [
        ([60.0], 0.0),
        ([-60.0], 0.0),
        ([60.0, 0.0], 0.0),
        ([60.0, 60.0], 60.0),
        ([-60.0, -61.0, 0.0], 0.0),
        ([-60.0, -61.0, -62.0, 0.0], -60.0),
        ([1e300, -1e300, 0.0, 1.0], 0.0),
    ],
)
def test_it_takes_more_than_half(answers, off):
    assert middle(answers) == off
