"""The competitors' rules: cases that a reader can check by hand, and what holds of every answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.competitors import COMPETITORS, DoesNotApply, Task, columns, equal_stages, exo, parallax, petals_rule
from benchmarks.instances import DATA, REAL, planned, stock
from planner import Policy, load_state
from planner.baseline import petals_baseline
from planner.selection import resolve_policy
from solver import Problem, Server, Span, Status, evaluate, solve
from tests.solver.cases import AMPLE, holds, problem, spans, waits

BY_NAME = {competitor.name: competitor for competitor in COMPETITORS}


def free(capacity: int, rps: float, num_blocks: int) -> Server:
    """A newcomer with free lengths: what it passes is shared among its blocks."""
    return Server(None, {length: rps / length for length in range(1, capacity + 1)}, (1.0,) * num_blocks)


def freed(num_blocks: int, *servers: Server) -> Problem:
    return replace(problem(num_blocks, waits(1, 1.0)), servers=servers)


def placed(name: str, case: Problem) -> tuple[Span, ...]:
    (answer,) = BY_NAME[name].rule(Task(case))
    return answer.placement


# Equal stages -------------------------------------------------------------------------------------------


def test_stages_differ_by_a_block_at_most():
    assert equal_stages.cut(10, 3) == [Span(0, 3), Span(3, 6), Span(6, 10)]


def test_a_peer_joins_the_weakest_stage():
    assert equal_stages.balanced([[5.0, 5.0], [3.0, 3.0], [1.0, 1.0]], [0.0, 0.0]) == [0, 1, 1]


def test_a_peer_goes_over_from_the_strongest_stage_to_the_weakest():
    # Two of 1 RPS join a stage each; that of 4 joins the first, which can then spare its other peer.
    assert equal_stages.balanced([[1.0, 1.0], [1.0, 1.0], [4.0, 4.0]], [0.0, 0.0]) == [1, 1, 0]


def test_the_best_number_of_stages_is_taken():
    # One stage of 4 blocks passes 2 x 2 RPS; two of 2 blocks pass 4 RPS each: equal, and the smaller number wins.
    case = freed(4, free(4, 8.0, 4), free(4, 8.0, 4))
    assert placed("equal stages", case) == spans("0:4 0:4")
    # A server that slows down with every block more than in proportion is better in its own stage.
    case = freed(4, *(Server(None, {2: 5.0, 4: 1.0}, (1.0,) * 4) for _ in range(2)))
    assert placed("equal stages", case) == spans("0:2 2:4")


def test_fixed_lengths_that_differ_have_no_equal_stages():
    with pytest.raises(DoesNotApply, match="every server"):
        placed("equal stages", problem(4, holds("0:1", 1.0), holds("1:4", 1.0)))


# exo ----------------------------------------------------------------------------------------------------


def test_blocks_are_shared_by_memory_with_one_for_everybody():
    assert exo.proportional(10, [3, 1]) == [8, 2]  # 7.5 and 2.5: the first of equal remainders has the block
    assert exo.proportional(4, [100, 1, 1]) == [2, 1, 1]  # all 4 blocks, less one for each that has none


def test_the_ring_begins_with_the_most_memory():
    assert placed("exo", freed(6, free(2, 1.0, 6), free(4, 1.0, 6))) == spans("4:6 0:4")


def test_one_ring_has_no_place_for_more_servers_than_blocks_or_for_fixed_lengths():
    with pytest.raises(DoesNotApply, match="more servers"):
        placed("exo", freed(2, *(free(2, 1.0, 2) for _ in range(3))))
    with pytest.raises(DoesNotApply, match="fixed"):
        placed("exo", problem(4, holds("0:2", 1.0), holds("2:4", 1.0)))


# Parallax -----------------------------------------------------------------------------------------------


def test_the_water_rises_to_the_capacities():
    assert parallax.water_filled(10, [8, 8], [3.0, 1.0]) == [8, 2]
    assert parallax.water_filled(10, [4, 8], [3.0, 1.0]) == [4, 6]


def test_the_dynamic_program_makes_two_pipelines_where_the_greedy_rule_makes_one():
    # The case that its authors give: 70 layers, capacities 40, 40, 20, 20, 10, 10.
    capacities = [40, 40, 20, 20, 10, 10]
    found = parallax.by_dynamic_program(capacities, 70)
    assert sorted(sorted(capacities[one] for one in pipeline) for pipeline in found) == [[10, 20, 40]] * 2
    assert parallax.greedily(capacities, 70) == [[0, 1]]


def test_the_greedy_rule_spends_its_smallest_whole_server_first_while_another_pipeline_is_left():
    assert parallax.greedily([10, 8, 5, 5], 8) == [[1], [0], [2, 3]]


def test_fixed_spans_follow_one_another_and_the_last_is_pulled_back():
    case = problem(5, holds("0:3", 1.0), holds("0:3", 2.0), holds("0:1", 1.0))
    # One pipeline of the two long ones, 0:3 and 2:5; the third goes to the lightest block, the first of them.
    assert placed("Parallax", case) == spans("0:3 2:5 0:1")


def test_too_many_states_are_left_to_the_greedy_rule(monkeypatch):
    monkeypatch.setattr(parallax, "MAX_STATES", 3)
    assert parallax.by_dynamic_program([40, 40, 20, 20, 10, 10], 70) is None


# The Petals rule ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [REAL, DATA / "churn-80x10-1.json"], ids=lambda path: path.stem)
def test_the_rule_is_charged_as_in_every_plan(path):
    state = load_state(path)
    policy = resolve_policy(state, Policy())
    known = [petals_baseline(state, replace(policy, seed=seed)) for seed in petals_rule.SHUFFLES]
    given_ = stock(path)
    best, median, imagined = petals_rule.answer(Task(given_.problem, seen=given_.seen))
    ranked = sorted(known, key=lambda one: one.objective)
    for answer, expected in ((best, ranked[-1]), (median, ranked[3])):
        assert answer.charged.objective == pytest.approx(expected.objective, rel=1e-12)
        assert evaluate(given_.problem, answer.placement).min_throughput == expected.min_throughput
    assert best.charged.loads in {one.blocks_loaded for one in known}
    assert imagined.charged is None
    assert (best.of, median.of, imagined.of) == ("best", "median", "imagined best")


# The plain integer program ------------------------------------------------------------------------------


def test_the_columns_are_counted_without_being_made():
    case = planned(REAL)
    table = columns.columns(case)
    assert columns.count_columns(case) == table.server.size
    assert columns.count_entries(case) == table.entries == table.blocks().size
    assert columns.least_rps(case) > 0


def test_columns_are_charged_for_what_is_new():
    case = problem(3, holds("0:2", 10.0, seconds=(5.0, 7.0, 11.0)), horizon=100.0)
    table = columns.columns(case)
    assert [(int(s), int(e)) for s, e in zip(table.start, table.end, strict=True)] == [(0, 2), (1, 3)]
    assert table.penalty.tolist() == [0.0, 10.0 * 11.0 / 100.0]
    assert table.blocks().tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("name", ["HiGHS", "CP-SAT, plain"])
@pytest.mark.parametrize(
    ("case", "why"),
    [
        (problem(4, holds("0:2", 1.0)), "hole"),
        (problem(2, holds("0:2", 1.0), max_moves=0), "rows"),
        (problem(2, holds("0:2", 0.0)), "0 RPS"),
    ],
    ids=["hole", "limit", "nothing"],
)
def test_what_the_plain_program_cannot_say_is_not_asked_of_it(name, case, why):
    with pytest.raises(DoesNotApply, match=why):
        BY_NAME[name].rule(Task(case, seconds=5.0))


def test_a_program_that_is_too_large_is_not_made(monkeypatch):
    monkeypatch.setattr(columns, "MAX_ENTRIES", 3)
    with pytest.raises(DoesNotApply, match="more than 3"):
        columns.columns(problem(3, holds("0:2", 1.0)))


@st.composite
def swarms(draw):
    """Small swarms that can hold their whole model; some have free lengths."""
    num_blocks = draw(st.integers(2, 6))
    chance = random.Random(draw(st.integers(0, 10_000)))
    whole = Server(None, {num_blocks: 1.5}, (1.0,) * num_blocks)
    if draw(st.booleans()):
        others = [free(chance.randint(1, num_blocks), chance.uniform(1, 9), num_blocks) for _ in range(2)]
        return freed(num_blocks, *others, whole)
    rows = []
    for _ in range(chance.randint(1, 3)):
        length = chance.randint(1, num_blocks)
        start = chance.randint(0, num_blocks - length)
        rows.append(holds(f"{start}:{start + length}", round(chance.uniform(1, 9), 2), seconds=chance.choice([0, 60])))
    return problem(num_blocks, *rows, waits(num_blocks, 1.5), horizon=1000.0)


@given(swarms())
@settings(max_examples=15)
def test_every_answer_is_valid_and_none_is_above_what_is_proven(case):
    solution = solve(case, AMPLE)
    assert solution.status is Status.OPTIMAL
    best = evaluate(case, solution.placement).objective
    near = 1e-4 + solution.rounding_slack
    for competitor in COMPETITORS:
        try:
            answers = competitor.rule(Task(case, seconds=20.0))
        except DoesNotApply:
            continue
        for answer in answers:
            worth = evaluate(case, answer.placement)
            assert worth.holes == 0
            assert worth.objective <= best + near
            if answer.bound is not None:
                assert worth.objective - near <= answer.bound
                assert worth.objective == pytest.approx(best, abs=near)
                assert answer.bound == pytest.approx(best, abs=0.001 + near)


def test_ours_tells_how_far_it_was_and_what_it_came_to():
    case = planned(DATA / "churn-80x10-1.json")
    (answer,) = BY_NAME["ours"].rule(Task(case, seconds=0.5))
    assert answer.moments[-1].objective == evaluate(case, answer.placement).objective
    assert answer.bound >= answer.moments[-1].objective
    assert [moment.seconds for moment in answer.moments] == sorted(moment.seconds for moment in answer.moments)
