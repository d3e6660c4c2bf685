"""Petals' rule in cases that a reader can check by hand, then on random swarms."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import petals_swarm
from solver.petals_rule import WAITING, Load, best_start, run_to_end, simulate, verdict


def rng(seed=0):
    return np.random.RandomState(seed)


def throughputs(starts, lengths, rps, num_blocks):
    total = np.zeros(num_blocks)
    for start, length, speed in zip(starts, lengths, rps, strict=True):
        if start != WAITING:
            total[start : start + length] += speed
    return total


@st.composite
def swarms(draw, waiting=False):
    num_blocks = draw(st.integers(1, 14))
    speed = st.one_of(st.sampled_from([0.0, 0.1, 1.0, 1.1, 2.0, 10.0]), st.floats(0, 1000))
    starts, lengths, rps = [], [], []
    for _ in range(draw(st.integers(1, 9))):
        lengths.append(draw(st.integers(1, num_blocks)))
        starts.append(draw(st.integers(WAITING if waiting else 0, num_blocks - lengths[-1])))
        rps.append(draw(speed))
    return SimpleNamespace(columns=(starts, lengths, rps), num_blocks=num_blocks, count=len(rps))


# --- the best start


@pytest.mark.parametrize(
    ("blocks", "length", "start"),
    [
        ([0, 0, 0, 0], 2, 0),  # all equal: the smallest
        ([5, 1, 5, 1, 0], 1, 4),
        ([5, 1, 5, 1, 0], 2, 3),
        ([0, 9, 9, 0, 8], 2, 3),  # (0, 8) is below (0, 9), though both have the lowest block
        ([3, 0, 0, 3, 0, 0, 0], 2, 1),  # ties between 1, 4 and 5
        ([1, 1, 1, 0, 2, 2, 2], 3, 1),
        ([2, 2, 2, 0, 1, 1, 1], 3, 3),
        ([7], 1, 0),
        ([4, 2], 2, 0),  # the whole model
        ([-0.1, 0, 0], 1, 0),  # a swarm without its only server, the margin taken off
    ],
)
def test_the_window_that_needs_a_server_most(blocks, length, start):
    assert best_start(blocks, length) == start


@pytest.mark.parametrize("length", [0, -1, 4])
def test_a_window_must_fit(length):
    with pytest.raises(ValueError, match=f"a window of {length} blocks does not fit into 3 blocks"):
        best_start([1, 2, 3], length)


@given(
    st.lists(st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), st.floats(-10, 10)), min_size=1, max_size=30).flatmap(
        lambda blocks: st.tuples(st.just(blocks), st.integers(1, len(blocks)))
    )
)
def test_the_window_is_the_smallest_of_all(case):
    blocks, length = case
    assert (
        best_start(blocks, length)
        == min((sorted(blocks[start : start + length]), start) for start in range(len(blocks) - length + 1))[1]
    )


# --- one server's verdict


def test_two_servers_on_one_half_one_of_them_goes():
    # Blocks 0 and 1 have 20, 2 and 3 have none: a hole, so the quality is 0, and 2:4 is the best place.
    answer = verdict([0, 0], [2, 2], [10.0, 10.0], 1, 4, rng())
    assert answer == petals_swarm.Verdict(restart=True, balance_quality=0.0, best_start=2)


def test_nobody_leaves_the_only_copy():
    answer = verdict([0, 1, 1], [1, 1, 1], [1.0, 9.0, 9.0], 0, 2, rng())
    assert (answer.restart, answer.balance_quality) == (False, None)


def test_a_server_on_its_best_place_stays():
    answer = verdict([0, 2, 0, 2], [2, 2, 2, 2], [10.0] * 4, 3, 4, rng())
    assert (answer.restart, answer.balance_quality, answer.best_start) == (False, None, 2)


def test_the_quality_decides():
    # Blocks [30, 10]; with one server on the other side [20, 20]: a quality of a half.
    asked = ([0, 0, 0, 1], [1] * 4, [10.0] * 4, 0, 2)
    assert verdict(*asked, rng()) == petals_swarm.Verdict(True, 0.5, 1)
    assert not verdict(*asked, rng(), balance_quality=0.5).restart
    assert verdict(*asked, rng(), balance_quality=0.502).restart
    assert not verdict(*asked, rng(), balance_quality=0.5005).restart  # within the margin of 0.001


def test_above_one_it_always_restarts():
    answer = verdict([0, 2], [2, 2], [10.0, 10.0], 0, 4, rng(), balance_quality=1.01)
    assert (answer.restart, answer.balance_quality) == (True, None)


def test_a_constant_counts_and_never_moves():
    # The constant fills the hole, so that the swarm is as even as the newer server can make it.
    answer = verdict([0, 0], [2, 2], [10.0, 10.0], 1, 4, rng(), base=[0.0, 0.0, 20.0, 20.0])
    assert (answer.restart, answer.best_start) == (False, 0)


def test_newcomers_are_not_seen():
    with_one = verdict([0, 0, WAITING], [2, 2, 2], [10.0, 10.0, 99.0], 1, 4, rng())
    assert with_one == verdict([0, 0], [2, 2], [10.0, 10.0], 1, 4, rng())


@pytest.mark.parametrize(
    ("columns", "server", "message"),
    [
        (([0], [3], [1.0]), 0, "inside the model's 0:2"),
        (([1], [2], [1.0]), 0, "inside the model's 0:2"),
        (([-2], [1], [1.0]), 0, "inside the model's 0:2"),
        (([0], [0], [1.0]), 0, "must have a block"),
        (([0], [1], [float("nan")]), 0, "rps must be finite"),
        (([0], [1], [-1.0]), 0, "rps must be finite"),
        (([0, 0], [1], [1.0]), 0, "one entry for each server"),
        (([WAITING], [1], [1.0]), 0, "server 0 holds no blocks"),
        (([0], [1], [1.0]), 1, "server 1 holds no blocks"),
    ],
)
def test_contradictions_are_named(columns, server, message):
    with pytest.raises(ValueError, match=message):
        verdict(*columns, server, 2, rng())


def test_arrays_of_the_wrong_length_are_named():
    with pytest.raises(ValueError, match="base needs a finite number for each of the 2 blocks"):
        run_to_end([0], [1], [1.0], 2, 0, base=[1.0])
    with pytest.raises(ValueError, match="movable needs one entry for each of the 1 servers"):
        run_to_end([0], [1], [1.0], 2, 0, movable=[True, False])


# --- the simulation


def test_everybody_takes_the_best_place():
    assert sorted(simulate([0, 0, 0, 0], [1, 1, 1, 1], [1.0] * 4, 4, rng())) == [0, 1, 2, 3]


def test_who_may_not_move_stays_in_the_simulation():
    assert simulate([0, 0], [1, 1], [1.0, 1.0], 2, rng(), movable=[False, True]).tolist() == [0, 1]


@given(swarms(), st.integers(0, 3))
def test_the_simulation_ends_and_never_lowers_the_bottleneck(swarm, seed):
    sweeps = SimpleNamespace(count=0)

    class Counting:
        def __init__(self):
            self.random = random.Random(seed)

        def shuffle(self, x):
            sweeps.count += 1
            self.random.shuffle(x)

    starts, lengths, rps = swarm.columns
    after = simulate(starts, lengths, rps, swarm.num_blocks, Counting())
    before, reached = (throughputs(s, lengths, rps, swarm.num_blocks) for s in (starts, after))
    assert sweeps.count < 100
    assert reached.min() >= before.min() - 1e-9 * before.max()


# --- run to its end


def test_a_run_closes_the_hole_and_settles():
    run = run_to_end([0, 0], [2, 2], [10.0, 10.0], 4, 0)
    assert sorted(run.starts) == [0, 2]
    assert (len(run.moves), run.rounds, run.settled) == (1, 2, True)
    assert (run.moves[0].old, run.moves[0].new) == (0, 2)


def test_newcomers_join_one_after_another():
    run = run_to_end([WAITING] * 3, [2, 2, 4], [10.0, 10.0, 1.0], 4, 0)
    assert run.starts.tolist() == [0, 2, 0]
    assert run.moves == (Load(0, WAITING, 0), Load(1, WAITING, 2), Load(2, WAITING, 0))
    assert (run.rounds, run.settled) == (1, True)


def test_a_swarm_in_balance_is_left_alone():
    run = run_to_end([0, 2], [2, 2], [10.0, 9.0], 4, 0)
    assert (run.starts.tolist(), run.moves, run.rounds, run.settled) == ([0, 2], (), 1, True)


def test_who_does_not_run_the_rule_stays_and_counts():
    run = run_to_end([0, 0], [2, 2], [10.0, 10.0], 4, 0, movable=[True, False])
    assert run.starts.tolist() == [2, 0]


def test_a_constant_counts_in_a_run():
    run = run_to_end([WAITING], [2], [1.0], 4, 0, base=[1.0, 0.0, 0.0, 1.0])
    assert run.starts.tolist() == [1]


def test_no_servers():
    run = run_to_end([], [], [], 3, 0)
    assert (run.starts.size, run.moves, run.rounds, run.settled) == (0, (), 0, True)


def test_a_run_that_is_broken_off_says_so():
    run = run_to_end([0, 0, 0], [1, 1, 1], [1.0] * 3, 3, 0, max_looks=1)
    assert not run.settled


@given(swarms(waiting=True), st.integers(0, 2**32 - 1))
def test_shortcuts_change_nothing(swarm, seed):
    pruned, full = (run_to_end(*swarm.columns, swarm.num_blocks, seed, prune=prune) for prune in (True, False))
    assert pruned.starts.tolist() == full.starts.tolist()
    assert (pruned.moves, pruned.rounds, pruned.settled) == (full.moves, full.rounds, full.settled)


@pytest.mark.parametrize("seed", range(6))
def test_shortcuts_change_nothing_in_larger_swarms(seed):
    random_ = np.random.RandomState(seed)
    lengths = random_.randint(2, 16, 30)
    starts = [random_.randint(0, (40 if seed % 2 else 20) - length + 1) for length in lengths]
    rps = np.round(random_.lognormal(6, 0.7, 30), 2)
    pruned, full = (run_to_end(starts, lengths, rps, 40, seed, prune=prune) for prune in (True, False))
    assert pruned.moves
    assert (pruned.moves, pruned.rounds, pruned.settled) == (full.moves, full.rounds, full.settled)


@given(swarms(waiting=True), st.integers(0, 9))
def test_a_run_tells_what_happened(swarm, seed):
    starts, lengths, rps = swarm.columns
    run = run_to_end(starts, lengths, rps, swarm.num_blocks, seed)
    replayed = list(starts)
    for move in run.moves:
        assert move.old == replayed[move.server]
        replayed[move.server] = WAITING
        before = throughputs(replayed, lengths, rps, swarm.num_blocks)
        assert move.new == best_start(before, lengths[move.server])
        replayed[move.server] = move.new
    assert run.starts.tolist() == replayed
    assert run.rounds <= swarm.count


def test_the_same_seed_gives_the_same_run():
    starts, lengths, rps = [0] * 12, [3] * 12, [float(n) for n in range(1, 13)]
    first, second = (run_to_end(starts, lengths, rps, 12, 5) for _ in range(2))
    assert first.moves == second.moves
