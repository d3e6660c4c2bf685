"""What holds for every swarm."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Span, Status, evaluate
from tests.solver.cases import holds, problem, solved

BLOCKS = 8
RPS = st.sampled_from([1.0, 2.0, 3.5, 10.0, 762.94, 33.3])


@st.composite
def rows(draw):
    length = draw(st.integers(1, BLOCKS))
    start = draw(st.integers(0, BLOCKS - length))
    return holds(f"{start}:{start + length}", draw(RPS))


swarms = st.lists(rows(), min_size=1, max_size=4)
horizons = st.sampled_from([60.0, 14_400.0, 1e9])


@given(swarms, horizons)
@settings(max_examples=40)
def test_never_below_staying(servers, horizon):
    case = problem(BLOCKS, *servers, horizon=horizon)
    staying = evaluate(case, tuple(server.current for server in case.servers))
    assert not staying.better_than(evaluate(case, solved(case).placement))


@given(swarms, horizons, st.sampled_from([0.25, 2.0, 1024.0]))
@settings(max_examples=30)
def test_scaled_throughput_scales_the_answer(servers, horizon, factor):
    case = problem(BLOCKS, *servers, horizon=horizon)
    scaled = replace(
        case,
        servers=tuple(
            replace(server, throughput={n: rps * factor for n, rps in server.throughput.items()})
            for server in case.servers
        ),
    )
    one, other = solved(case), solved(scaled)
    assert one.placement == other.placement
    assert evaluate(scaled, other.placement).objective == factor * evaluate(case, one.placement).objective


@given(swarms, st.data())
@settings(max_examples=30)
def test_a_pinned_server_never_moves(servers, data):
    case = problem(BLOCKS, *servers)
    index = data.draw(st.integers(0, len(servers) - 1))
    pinned = case.replace_server(index, only=case.servers[index].current)
    assert solved(pinned).placement[index] == case.servers[index].current


@given(swarms, horizons, st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_order_of_servers_does_not_matter(servers, horizon, random):
    shuffled = servers[:]
    random.shuffle(shuffled)
    one, other = (problem(BLOCKS, *some, horizon=horizon) for some in (servers, shuffled))
    found, again = solved(one), solved(other)
    slack = 2 * max(found.rounding_slack, again.rounding_slack)
    difference = evaluate(one, found.placement).objective - evaluate(other, again.placement).objective
    assert abs(difference) <= slack


@given(swarms)
@settings(max_examples=30)
def test_a_longer_horizon_never_lowers_the_objective(servers):
    best = []
    for horizon in (60.0, 3600.0, 1e9):
        case = problem(BLOCKS, *servers, horizon=horizon)
        found = solved(case)
        assert found.status is Status.OPTIMAL
        worth = evaluate(case, found.placement)
        best.append((-worth.holes, worth.objective + 2 * found.rounding_slack, worth.objective))
    for (holes, _, low), (more, high, _) in itertools.pairwise(best):
        assert holes == more
        assert low <= high


def test_spans_print_as_operators_write_them():
    assert str(Span(3, 7)) == "3:7"
