from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import Policy, load_state, make_plan
from planner.drift import Drift, Override, check_drift, drift
from planner.errors import Drifted, InputInvalid
from planner.published import read_plan
from solver.problem import Span
from tests.plans import NOW, SERVERS, dump, identified, plan, swarm

PLAN = plan()
MOVER = PLAN.moves[0].peer_id


def names(state, of=PLAN, **asked):
    return [(one.override.value, one.peer_id) for one in drift(of, state, **asked)]


def with_server(peer_id, *new):
    """The swarm with another row in place of a peer's; none: it is gone."""
    return swarm(*(row for row in SERVERS if row[0] != peer_id), *new)


def test_the_swarm_that_was_planned_has_not_drifted():
    assert drift(PLAN, swarm()) == ()


def test_a_plan_just_made_serves_as_well():
    made = make_plan(swarm(), Policy(time_limit=5.0, workers=1))
    assert drift(made, swarm()) == ()
    assert names(with_server("d"), of=made) == [("peers", "d")]


@pytest.mark.parametrize("peer_id", [MOVER, "d"])
def test_a_span_that_changed(peer_id):
    rps = {row[0]: row[3] for row in SERVERS}[peer_id]
    (found,) = drift(PLAN, with_server(peer_id, (peer_id, 1, 3, rps)))
    assert (found.override, found.peer_id) == (Override.SPAN, peer_id)
    before = "2:4" if peer_id == "d" else "0:2"
    assert str(found) == f"{peer_id}: it held {before}, now 1:3 (--force span)"


def test_a_move_that_was_made_already_is_a_changed_span():
    assert names(with_server(MOVER, (MOVER, 2, 4, 10.0))) == [("span", MOVER)]


def test_a_server_that_is_gone():
    assert [str(one) for one in drift(PLAN, with_server("d"))] == ["d: it is gone; it held 2:4 (--force peers)"]
    assert names(with_server(MOVER)) == [("peers", MOVER)]


def test_a_server_that_is_new():
    found = drift(PLAN, swarm(*SERVERS, ("e", 1, 3, 1.0)))
    assert [str(one) for one in found] == ["e: it is new, and holds 1:3 (--force peers)"]
    newcomer = swarm(agents=[("n", {"state": "waiting", "capacity": 2, "throughput": 1.0})])
    assert [str(one) for one in drift(PLAN, newcomer)] == ["n: it is new, and holds no blocks (--force peers)"]


@pytest.mark.parametrize(
    ("rps", "drifted"), [(10.0, False), (8.0, False), (12.0, False), (7.99, True), (12.01, True), (0.0, True)]
)
@pytest.mark.parametrize("peer_id", ["a", "b", "c"])
def test_throughput_may_change_by_20_percent(rps, drifted, peer_id):
    found = names(with_server(peer_id, (peer_id, 0, 2, rps)))
    assert found == ([("throughput", peer_id)] if drifted else [])


def test_a_throughput_names_both_figures():
    (found,) = drift(PLAN, with_server("a", ("a", 0, 2, 1234.5)))
    assert str(found) == "a: its throughput went from 10.00 to 1,234.50 RPS (--force throughput)"


def test_the_throughput_of_a_server_that_may_not_move_counts_as_well():
    """The bottleneck that the plan promises rests on it."""
    made = make_plan(swarm(), Policy(time_limit=5.0, workers=1, cordons=("d",)))
    assert not made.servers[3].movable
    assert names(with_server("d", ("d", 2, 4, 1.0)), of=made) == [("throughput", "d")]


def test_a_throughput_of_nothing():
    rows = [*SERVERS[:3], ("d", 2, 4, 0.0)]
    made = make_plan(swarm(*rows), Policy(time_limit=5.0, workers=1))
    assert drift(made, swarm(*rows)) == ()
    assert names(swarm(), of=made) == [("throughput", "d")]


def test_throughput_is_compared_at_the_length_of_the_target():
    """The plan of a resized server states what it passes at its target: no drift by itself."""
    state = swarm(info={"forward_rps": 100.0})
    fields = PLAN.document()
    for row in fields["servers"]:
        if row["peer_id"] == MOVER:
            row.update(target=[2, 3], loaded=[2], dropped=[0, 1], kept=0, throughput=15.0)  # 10 * (3 / 2) / (2 / 2)
    resized = read_plan(identified(fields))
    assert drift(resized, state) == ()
    assert names(swarm(), of=resized) == [("throughput", MOVER)]


def test_several_changes_are_all_named_by_peer():
    state = swarm(("a", 0, 2, 1.0), ("b", 1, 2, 10.0), ("d", 2, 4, 5.0), ("e", 0, 4, 1.0))
    assert names(state) == [("throughput", "a"), ("span", "b"), ("peers", "c"), ("peers", "e")]


def test_what_drift_ignores():
    """Records' ages, public names, adapters, and that a server is joining anew: nothing that a plan rests on."""
    state = swarm(info={"public_name": "other", "adapters": ["x"], "cache_tokens_left": 5}, read_at=NOW + 500)
    assert drift(PLAN, state) == ()


def uncertain(missing, stretch=("u", 1, 7), rps=3.0):
    """A server that states no span, with gaps in what is seen of it."""
    document = dump(("z", 0, 8, 5.0), num_blocks=8)
    peer_id, start, end = stretch
    document["records"] += [
        {"uid": f"m.{block}", "peer_id": peer_id, "expiration": NOW + 100, "value": [2, rps]}
        for block in range(start, end)
        if block not in missing
    ]
    return load_state(document)


def test_a_span_that_the_operator_told_holds_while_the_reading_leaves_it_possible():
    told = Policy(time_limit=5.0, workers=1, spans=(("u", Span(1, 7)),))
    made = make_plan(uncertain({3}), told)
    assert made.servers[0].current == Span(1, 7)
    assert drift(made, uncertain({3})) == ()
    assert drift(made, uncertain({4, 5})) == ()  # other keys flap in each reading
    assert drift(made, uncertain(())) == ()  # and now all are there
    assert drift(made, uncertain({1, 3})) == ()
    assert names(uncertain({3}, ("u", 1, 8)), of=made) == [("span", "u")]  # block 7 was not told
    assert names(uncertain((), ("u", 1, 6)), of=made) == [("span", "u")]  # certain, and another


def test_a_told_span_makes_no_change_of_throughput():
    """Petals' rule for other lengths must start from the span told, not from the one the reading stretched."""
    document = dump(("z", 0, 8, 5.0), num_blocks=8)
    document["records"] += [
        {"uid": f"m.{block}", "peer_id": "u", "expiration": NOW + 100, "value": [2, 3.0, {"forward_rps": 50.0}]}
        for block in (1, 2, 5, 6)
    ]
    state = load_state(document)
    assert state.servers[0].span == Span(0, 8)
    made = make_plan(state, Policy(time_limit=5.0, workers=1, spans=(("u", Span(1, 7)),)))
    assert drift(made, state) == ()


def test_without_a_told_span_an_uncertain_one_that_looks_different_is_drift():
    made = make_plan(uncertain({3}), Policy(time_limit=5.0, workers=1))
    assert drift(made, uncertain({3})) == ()
    assert names(uncertain(()), of=made) == [("span", "u")]


def test_another_model_cannot_be_overridden():
    with pytest.raises(InputInvalid, match="the plan is for 'm' of 4 blocks, and the swarm read is 'm' of 5"):
        drift(PLAN, swarm(num_blocks=5))
    with pytest.raises(InputInvalid, match="the swarm read is 'other' of 4"):
        drift(PLAN, replace(swarm(), prefix="other"))


def test_an_expired_plan():
    assert drift(PLAN, swarm(), now=NOW + 3600) == ()
    (found,) = drift(PLAN, swarm(), now=NOW + 3700)
    assert str(found) == "the plan expired 100 s ago; plan again (--force expired)"


CHANGES = [Drift(override, "a", f"something about {override.value}") for override in Override]


def test_nothing_stands_where_all_is_overridden():
    assert check_drift(()) == ()
    assert check_drift(CHANGES, list(Override)) == tuple(CHANGES)


@pytest.mark.parametrize("left", Override, ids=lambda one: one.value)
def test_each_name_overrides_its_own_and_nothing_else(left):
    with pytest.raises(Drifted, match=rf"so plan again: a: something .* \(--force {left.value}\)$"):
        check_drift(CHANGES, set(Override) - {left})


def test_the_message_is_one_line_however_much_drifted():
    many = [Drift(Override.SPAN, f"peer\x1b{number}" + "x" * 500, "it held 0:2, now 1:3") for number in range(500)]
    with pytest.raises(Drifted, match=r"and 497 more$") as caught:
        check_drift(many)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800


ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(1, 4), st.floats(0.1, 100.0)).filter(
        lambda row: row[1] < row[2]
    ),
    min_size=1,
    unique_by=lambda row: row[0],
)


@given(ROWS)
def test_there_is_no_drift_exactly_where_spans_peers_and_throughput_are_near(rows):
    before, after = {row[0]: row[1:] for row in SERVERS}, {row[0]: row[1:] for row in rows}
    expected = set()
    for peer_id in before.keys() | after.keys():
        if peer_id not in before or peer_id not in after:
            expected.add(("peers", peer_id))
            continue
        if before[peer_id][:2] != after[peer_id][:2]:
            expected.add(("span", peer_id))
        if not 0.8 <= after[peer_id][2] / before[peer_id][2] <= 1.2:
            expected.add(("throughput", peer_id))
    found = names(swarm(*rows))
    assert set(found) == expected
    assert len(found) == len(expected)
    assert [peer for _, peer in found] == sorted(peer for _, peer in found)


def test_overrides_are_what_force_takes():
    assert sorted(one.value for one in Override) == ["expired", "partial", "peers", "span", "throughput"]
