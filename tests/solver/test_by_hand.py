"""Cases whose optimum a reader can check by hand. Reloading costs next to nothing unless a case says otherwise."""

from __future__ import annotations

import pytest

from solver import Infeasible, Limits, Status, evaluate, solve
from tests.solver.cases import AMPLE, holds, problem, solved, spans, waits


def best(case):
    """The placement as text, proven."""
    found = solved(case)
    assert found.status is Status.OPTIMAL
    return " ".join(map(str, found.placement))


# --- what is best


def test_two_servers_swap():
    # The constant leaves block 0 short. Only the stronger server on it, and the weaker one away, lifts the minimum
    # from min(1+2, 4+5) = 3 to min(1+5, 4+2) = 6; one of them alone would leave a block at 1 or 4.
    assert best(problem(2, holds("0:1", 2.0), holds("1:2", 5.0), base=(1.0, 4.0))) == "1:2 0:1"


def test_a_hole_is_closed():
    # Two on 0:2, nobody on 2:4: whoever has the lower throughput costs less to move.
    assert best(problem(4, holds("0:2", 7.0), holds("0:2", 5.0))) == "0:2 2:4"


def test_a_newcomer_goes_where_it_is_needed():
    assert best(problem(4, waits(2, 5.0), base=(9.0, 3.0, 3.0, 9.0))) == "1:3"


def test_newcomers_alone_cover_an_empty_model():
    # 3 + 2 + 2 blocks: any order covers all, the lexicographically smallest lets them stand in theirs.
    assert best(problem(7, waits(3, 1.0), waits(2, 1.0), waits(2, 1.0))) == "0:3 3:5 5:7"


def test_a_pin_blocks_the_best():
    # As in the swap, but the stronger one is pinned: with 1:2 for the weaker one block 0 would have only 1.
    assert best(problem(2, holds("0:1", 2.0), holds("1:2", 5.0, only="1:2"), base=(1.0, 4.0))) == "0:1 1:2"


def test_a_pin_elsewhere_moves_a_server_for_nothing():
    assert best(problem(3, holds("0:1", 2.0, only="2:3"), base=(1.0, 1.0, 9.0))) == "2:3"


def test_only_pins():
    case = problem(3, holds("0:1", 2.0, only="2:3"), waits(2, 4.0, only="0:2"), horizon=8.0)
    found = solved(case)
    # 2 RPS on block 2; one block of a server of 2 RPS and two of one of 4, a second each: (2 + 8) / 8.
    assert found.bound == evaluate(case, found.placement).objective == 2.0 - 10.0 / 8.0


def test_one_forbidden_to_stay_takes_the_next_best():
    # Block 0 has 2 without it; on 1:2 the minimum would be the 1 of block 2.
    assert best(problem(3, holds("0:1", 2.0, may_stay=False), base=(2.0, 4.0, 1.0))) == "2:3"
    # Nothing is gained by it, so the shortest way decides; it must go all the same.
    assert best(problem(3, holds("0:1", 2.0, may_stay=False), base=(1.0, 1.0, 1.0))) == "1:2"


def test_equal_servers():
    # Three alike on 0:2 of 6 blocks: one on each pair of blocks.
    assert best(problem(6, *[holds("0:2", 4.0)] * 3)) == "0:2 2:4 4:6"


def test_a_model_of_one_block():
    assert best(problem(1, holds("0:1", 4.0), waits(1, 2.0))) == "0:1 0:1"


def test_nobody_to_place():
    found = solved(problem(3, base=(1.0, 2.0, 3.0)))
    assert (found.placement, found.bound, found.status) == ((), 1.0, Status.OPTIMAL)


def test_a_length_to_choose():
    # 3 blocks at 4 RPS or one at 9: the constant holds 2 of them, so one block at 9 is best.
    by_length = {1: 9.0, 2: 5.0, 3: 4.0}
    assert best(problem(3, holds("0:3", by_length), base=(9.0, 9.0, 0.0))) == "2:3"
    assert best(problem(3, holds("0:1", by_length))) == "0:3"


def test_a_longer_span_is_loaded_in_part():
    # From 1:2 to 0:3 loads two blocks, at 4 RPS and a second each, over 16 seconds: 4 - 8 / 16.
    case = problem(3, holds("1:2", {1: 9.0, 3: 4.0}), horizon=16.0)
    assert solved(case).bound == pytest.approx(3.5)


# --- what comes before the objective


def test_replicas_come_before_the_objective():
    # The objective wants the server on the weak block 2; two replicas on each of 0 and 1 come first.
    rows = holds("0:2", 1.0, may_stay=True), waits(2, 1.0)
    assert best(problem(3, *rows, base=(9.0, 9.0, 1.0), replicas=(0, 1, 2), min_replicas=2)) == "0:2 0:2"
    assert best(problem(3, *rows, base=(9.0, 9.0, 1.0), replicas=(0, 1, 2))) == "0:2 1:3"


def test_holes_come_before_replicas():
    # Two replicas on 0:2 would take both servers there; that leaves 2:4 to nobody.
    assert best(problem(4, holds("0:2", 1.0), holds("0:2", 1.0), min_replicas=2)) == "0:2 2:4"


def test_holes_that_cannot_be_closed():
    # 5 blocks, two servers of 2: a hole remains, and the bottleneck is that of the others, which is 3.
    case = problem(5, holds("0:2", 3.0), holds("0:2", 4.0))
    found = solved(case)
    worth = evaluate(case, found.placement)
    assert (worth.holes, worth.min_throughput) == (1, 3.0)
    assert found.bound == pytest.approx(worth.objective)
    assert " ".join(map(str, found.placement)) == "2:4 0:2"  # loading 3 RPS costs less than loading 4


def test_zero_throughput_covers_too():
    # The server without throughput closes the hole, although the bottleneck falls from 5 to 0.
    case = problem(2, holds("0:1", 5.0), holds("0:1", 0.0))
    assert best(case) == "0:1 1:2"
    assert evaluate(case, spans("0:1 1:2")).min_throughput == 0.0


@pytest.mark.parametrize("horizon", [0.5, 60.0])
def test_forced_moves_are_chosen_by_cost_however_high(horizon):
    # A hole must be closed by one of two, at costs far above every bottleneck: 300 s or 200 s at 1 RPS.
    rows = holds("0:1", 1.0, seconds=(0.0, 300.0)), holds("0:1", 1.0, seconds=(0.0, 200.0))
    assert best(problem(2, *rows, horizon=horizon)) == "0:1 1:2"
    # The same with two ways for one of them, of which the one that loads more blocks costs less.
    costs = (0.0, 0.0, 0.0, 10.0, 10.0, 900.0)
    rows = holds("0:3", 1.0, seconds=costs, may_stay=False), waits(1, 1.0, only="0:1")
    base = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert best(problem(6, *rows, base=base, horizon=horizon)) == "1:4 0:1"


# --- the objective's second term


def test_a_short_horizon_keeps_everybody_in_place():
    # Closing up 3 RPS of bottleneck costs 5 RPS * 1 s; over one second that is not worth it, over a minute it is.
    rows = holds("0:1", 2.0), holds("1:2", 5.0)
    assert best(problem(2, *rows, base=(1.0, 4.0), horizon=1.0)) == "0:1 1:2"
    assert best(problem(2, *rows, base=(1.0, 4.0), horizon=60.0)) == "1:2 0:1"


@pytest.mark.parametrize("horizon", [1e-6, 1e12])
def test_extreme_horizons(horizon):
    case = problem(2, holds("0:1", 2.0), holds("1:2", 5.0), base=(1.0, 4.0), horizon=horizon)
    assert best(case) == ("0:1 1:2" if horizon < 1 else "1:2 0:1")


@pytest.mark.parametrize("rps", [1e7, 1e-6, 1e-12, 1e-60])
def test_extreme_throughput(rps):
    # Three servers of 1, 1 and 2 for two blocks: the two weaker ones together.
    case = problem(2, holds("0:1", rps), holds("1:2", rps), holds("1:2", 2 * rps))
    assert best(case) == "0:1 0:1 1:2"


@pytest.mark.parametrize("rps", [1e-300, 5e-324, 0.0])
def test_throughput_that_is_as_good_as_none(rps):
    # The hole is closed all the same.
    assert best(problem(2, holds("0:1", rps), holds("0:1", rps))) == "0:1 1:2"


def test_huge_and_tiny_throughput_together():
    # Block 1 has the tiny server only, whoever goes where; the huge one has nothing to gain by moving.
    case = problem(2, holds("0:1", 1e7), holds("1:2", 1e-6))
    found = solved(case)
    assert evaluate(case, found.placement).min_throughput == pytest.approx(1e-6, abs=2 * found.rounding_slack)


# --- ties


def test_fewer_loads_where_reloading_is_free():
    # Block 4 is a hole. Either server closes it, with the bottleneck at 4 in any case (blocks 2 and 3 have no more):
    # the first by two loads (3:5), the second by one (4:5).
    rows = holds("0:2", 4.0, seconds=0.0), holds("0:1", 4.0, seconds=0.0)
    assert best(problem(5, *rows, base=(9.0, 9.0, 4.0, 4.0, 0.0))) == "0:2 4:5"


def test_fewer_loads_at_equal_cost():
    # The same, where two loads of half a second cost what one of a second costs.
    rows = holds("0:2", 4.0, seconds=0.5), holds("0:1", 4.0)
    assert best(problem(5, *rows, base=(9.0, 9.0, 4.0, 4.0, 0.0), horizon=16.0)) == "0:2 4:5"


def test_fewer_loads_at_equal_bottleneck():
    # Blocks 2 and 3 need a server: 0:2 loads both, 1:3 only block 3. Reloading is free here.
    rows = holds("0:2", 4.0, seconds=0.0), holds("1:3", 4.0, seconds=0.0)
    assert best(problem(4, *rows, base=(4.0, 4.0, 4.0, 0.0))) == "0:2 2:4"


def test_fewer_moves_at_equal_loads():
    # Blocks 2 and 3 are holes. One server closes both by two loads; or both servers one each, by one load each.
    # Block 6 keeps the bottleneck at 4, so that nothing is gained by both of them on 2:4.
    rows = holds("0:2", 4.0, seconds=0.0), holds("4:6", 4.0, seconds=0.0)
    assert best(problem(7, *rows, base=(9.0, 9.0, 0.0, 0.0, 9.0, 9.0, 4.0))) == "0:2 2:4"


def test_the_weakest_quarter_decides():
    # Blocks 3 and 4 are at 1: wherever the newcomer goes the minimum stays 1, but of 8 blocks the two weakest count,
    # so that it should go to one of the two.
    case = problem(8, waits(1, 1.0), base=(5.0, 5.0, 5.0, 1.0, 1.0, 5.0, 5.0, 5.0))
    assert best(case) == "3:4"
    # With three blocks at 1 the two weakest stay at 1 wherever it goes, and only the order of targets is left.
    case = problem(8, waits(1, 1.0), base=(5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 5.0, 5.0))
    assert best(case) == "0:1"


def test_then_the_smallest_distance():
    # It must leave, and lifts nothing wherever it goes: 0:1 would come first in order, the neighbour is nearer.
    assert best(problem(5, holds("3:4", 1.0, may_stay=False), base=(3.0,) * 5)) == "2:3"
    assert best(problem(5, holds("4:5", 1.0, may_stay=False), base=(3.0,) * 5)) == "3:4"


def test_then_the_smallest_targets():
    # All four newcomers are alike but for their cost: no tie-break but the last tells the orders apart.
    rows = [waits(1, 1.0, seconds=float(n) / 8) for n in (3, 1, 2, 0)]
    assert best(problem(4, *rows)) == "0:1 1:2 2:3 3:4"


def test_the_order_of_many_servers_is_found_in_several_solves():
    # 20 servers of one block on 20 blocks, each different: the weights of all at once would overflow.
    rows = [waits(1, 1.0, seconds=float(n) / 64) for n in range(20)]
    found = solved(problem(20, *rows))
    assert [target.start for target in found.placement] == list(range(20))
    assert found.stages[-1].proven


@pytest.mark.parametrize("seed", range(4))
def test_chance_does_not_sway_what_is_proven(seed):
    # Costs of 27.3 s make ties that floats split by a hair: whichever the local search meets, the answer is one.
    # The strongest costs most to move, so it stays; the others go in their order.
    rows = [holds("0:2", rps, seconds=27.3) for rps in (0.1, 0.2, 0.3)]
    case = problem(6, *rows, horizon=14_400.0)
    assert solved(case, Limits(60.0, seed=seed)).placement == spans("2:4 4:6 0:2")


def test_equal_costs_are_equal_to_the_last_bit():
    # 27.3 has no exact sums, so that the differences of its cumulated sums are not the same everywhere. A newcomer's
    # place costs the same all over, and only its targets' order is left.
    case = problem(12, waits(5, 762.9, seconds=27.3), base=(9.0,) * 12, horizon=14_400.0)
    assert best(case) == "0:5"


# --- limits


def test_move_limit():
    # With two moves it is the swap, which gives min(1 + 5, 4 + 2) = 6; staying gives 3.
    rows = holds("0:1", 2.0), holds("1:2", 5.0)
    assert best(problem(2, *rows, base=(1.0, 4.0), max_moves=2)) == "1:2 0:1"
    # 5 RPS to block 0 leaves 4 on block 1: 4 is better than 3, and it is one move.
    assert best(problem(2, *rows, base=(1.0, 4.0), max_moves=1)) == "0:1 0:1"
    assert best(problem(2, *rows, base=(1.0, 4.0), max_moves=0)) == "0:1 1:2"


def test_load_limit():
    # The hole 2:4 needs two loads; with one, half of it is closed by a step to the right.
    rows = holds("0:2", 7.0), holds("0:2", 5.0)
    assert best(problem(4, *rows, max_loads=2)) == "0:2 2:4"
    assert best(problem(4, *rows, max_loads=1)) == "0:2 1:3"
    assert best(problem(4, *rows, max_loads=0)) == "0:2 0:2"


@pytest.mark.parametrize("limits", [{"max_moves": 0}, {"max_loads": 1}])
def test_limits_that_leave_a_newcomer_out(limits):
    with pytest.raises(Infeasible):
        solve(problem(3, waits(2, 1.0), holds("0:1", 1.0), **limits), AMPLE)


def test_pins_beyond_the_limits():
    with pytest.raises(Infeasible, match="1 moves, at most 0"):
        solve(problem(3, holds("0:1", 1.0, only="1:2"), max_moves=0), AMPLE)


# --- what is said of it


def test_what_the_stages_say():
    # A newcomer of 4 RPS loads one block in a second: 4 - 4 / 16. The cost that every placement has is in it.
    case = problem(2, waits(1, 4.0), base=(4.0, 0.0), horizon=16.0)
    found = solved(case)
    (stage,) = [stage for stage in found.stages if stage.name == "objective"]
    assert stage.value == pytest.approx(3.75)
    assert stage.proven


def test_a_good_hint_survives_a_search_without_time():
    case = problem(4, holds("0:2", 7.0), holds("0:2", 5.0))
    found = solved(case, Limits(seconds=0.0), hints=(spans("0:2 2:4"), spans("0:3 0:1"), ()))
    assert found.placement == spans("0:2 2:4")
    assert found.status is Status.FEASIBLE
