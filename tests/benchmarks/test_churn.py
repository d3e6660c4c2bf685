"""The generator of churned swarms, against what the script that made the files in `benchmarks/data` gives."""

from __future__ import annotations

import pytest

from benchmarks import churn
from benchmarks.instances import DATA, planned

SWARMS = {
    (30, 6, 5): [
        (0, 30, 384.22),
        (0, 8, 320.92),
        (8, 3, 277.31),
        (23, 7, 414.83),
        (0, 30, 933.48),
        (0, 30, 371.1),
    ],
    (80, 4, 1): [(0, 17, 371.32), (17, 60, 1574.41), (0, 7, 525.57), (0, 17, 1506.07)],
    (126, 5, 11): [
        (0, 101, 446.28),
        (101, 10, 1334.28),
        (111, 9, 617.25),
        (120, 6, 1075.79),
        (17, 16, 422.78),
    ],
}


@pytest.mark.parametrize("size", SWARMS)
def test_the_same_numbers_give_the_same_swarm(size):
    assert [(one.span.start, one.span.length, one.throughput) for one in churn.swarm(*size)] == SWARMS[size]


@pytest.mark.parametrize("name", ["churn-80x10-1", "churn-80x100-4"])
def test_the_problem_is_the_one_that_the_planner_poses_of_the_file(name):
    blocks, servers, seed = (int(number) for number in name.removeprefix("churn-").replace("x", "-").split("-"))
    assert churn.problem(blocks, servers, seed) == planned(DATA / f"{name}.json")


def test_a_model_may_be_shorter_than_the_longest_spans():
    assert all(one.span.end <= 24 for one in churn.swarm(24, 50, 1))
