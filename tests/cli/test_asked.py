"""What the command line says becomes the policy that it means."""

from __future__ import annotations

import pytest

from cli.asked import Asked, policy_of
from planner.policy import MinGain, Policy
from solver.problem import Span


def test_the_policy_gets_what_is_asked() -> None:
    asked = Asked(
        dump="-",
        pins=["a", "b=0:10"],
        spans=["c=3:5"],
        cordons=["d"],
        drains=["e", "f"],
        min_gain="2%",
        policy={"movable": "all", "max_moves": 3, "horizon": 60.0, "resize": True, "min_span": 2},
    )
    assert policy_of(asked) == Policy(
        pins=(("a", None), ("b", Span(0, 10))),
        spans=(("c", Span(3, 5)),),
        cordons=("d",),
        drains=("e", "f"),
        min_gain=MinGain(share=0.02),
        movable="all",
        max_moves=3,
        resize=True,
        min_span=2,
        horizon=60.0,
    )


@pytest.mark.parametrize(
    ("text", "gain"),
    [("50", MinGain(rps=50)), ("50rps", MinGain(rps=50)), ("0.5 RPS", MinGain(rps=0.5)), ("2 %", MinGain(share=0.02))],
)
def test_min_gain(text: str, gain: MinGain) -> None:
    assert policy_of(Asked(dump="-", min_gain=text)).min_gain == gain
