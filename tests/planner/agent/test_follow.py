from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.agent import follow
from planner.agent.follow import ANSWER_AGE, Ask, Go, Intend, Stay, View, decide
from planner.agent.record import Intent
from planner.agent.slack import Slack
from planner.agent.turns import CLOCKS, MARGIN, STOPPING, TURN, Turns
from planner.decode import CLOCK_SKEW
from planner.keys import generate
from planner.state import Server, ServerState
from solver.problem import Span
from tests.planner.agent.following import (
    EPOCH,
    NOW,
    PLAN_ID,
    REFRESH,
    FellBelow,
    Swarm,
    World,
    heartbeat,
    online,
    outside,
    plan_of,
    row,
    state_of,
    verified,
)
from tests.planner.agent.worlds import worlds

# a and b share blocks 0 to 3, c has 4 to 7: b goes over to c.
A, B, C = row("a", (0, 4), (0, 4)), row("b", (0, 4), (4, 8)), row("c", (4, 8), (4, 8))
SERVERS = (online("a", 0, 4), online("b", 0, 4), online("c", 4, 8))
WAIT = REFRESH + ANSWER_AGE + MARGIN
READY = NOW - WAIT
OWN = Intent(PLAN_ID, EPOCH, (Span(0, 4),), READY)


def view(peer_id="b", rows=(A, B, C), servers=SERVERS, floor=10.0, answers=None, **fields):
    """A view of b, asked and answered by everybody at what they announce, ready to go."""
    (me,) = [one for one in servers if one.peer_id == peer_id]
    confirmed = {one.peer_id: one.span for one in servers if one.peer_id != peer_id} | (answers or {})
    of = {
        "now": NOW,
        "peer_id": peer_id,
        "span": me.span,
        "refresh": REFRESH,
        "state": state_of(*servers),
        "plan": verified(plan_of(*rows, floor=floor)),
        "heartbeat": heartbeat(),
        "confirmed": confirmed,
        "asked_at": NOW - 1,
        "own_intent": OWN,
    }
    return View(**{**of, **fields})


def why(*arguments, word="waiting", **fields):
    step = decide(view(*arguments, **fields))
    assert isinstance(step, Stay)
    assert step.state == word
    return step.why


def test_the_margin_covers_answers_stopping_and_clocks_and_leaves_something_of_a_turn():
    assert ANSWER_AGE + STOPPING + CLOCK_SKEW <= MARGIN < TURN / 2


# --- one agent, by hand


def test_it_asks_announces_waits_and_goes():
    assert decide(view(confirmed={}, asked_at=None, own_intent=None)) == Ask(("a",))
    first = decide(view(own_intent=None))
    assert isinstance(first, Intend)
    assert first.intent == Intent(PLAN_ID, EPOCH, (Span(0, 4),), NOW)
    assert first.again_at == NOW + WAIT
    assert "blocks 0, 1, 2, 3" in first.why
    early = decide(view(own_intent=replace(OWN, since=READY + 1)))
    assert isinstance(early, Intend)
    assert early.intent.since == READY + 1
    assert decide(view()) == Go(Span(4, 8), PLAN_ID, EPOCH)


def test_an_intent_of_another_plan_or_from_the_future_does_not_count_as_waited():
    for own in (replace(OWN, epoch=EPOCH - 1), replace(OWN, plan_id="cd" * 16), replace(OWN, since=NOW + 1)):
        step = decide(view(own_intent=own))
        assert isinstance(step, Intend)
        assert step.intent.since == NOW


def test_answers_that_are_old_or_from_the_future_move_nobody():
    for asked_at in (NOW - ANSWER_AGE - 0.1, NOW + 1, None):
        assert "too long to answer" in why(asked_at=asked_at)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heartbeat": None}, "no fresh heartbeat of plan"),
        ({"heartbeat": heartbeat(fresh_until=NOW)}, "no fresh heartbeat"),
        ({"heartbeat": heartbeat(epoch=EPOCH + 1)}, "no fresh heartbeat"),
        ({"heartbeat": heartbeat(plan_id="cd" * 16)}, "no fresh heartbeat"),
        ({"heartbeat": heartbeat(prefix="other")}, "no fresh heartbeat"),
        ({"heartbeat": heartbeat(key=generate().public)}, "no fresh heartbeat"),
        ({"partial": True}, "read only in part"),
        ({"state": None}, "could not be read"),
        ({"state": state_of(*SERVERS, read_at=NOW - REFRESH - 2)}, "too old"),
        ({"state": replace(state_of(*SERVERS), prefix="other")}, "for another model"),
        ({"state": state_of(*SERVERS, num_blocks=9)}, "for another model"),
    ],
)
def test_what_keeps_every_move_from_beginning(changes, said):
    assert said in why(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan": None}, ""),
        ({"plan": None, "ahead": -CLOCKS}, ""),
        ({"plan": None, "ahead": CLOCKS + 0.1}, "this machine's clock differs by more than 3 s"),
        ({"ahead": -60.0}, "this machine's clock differs by more than 3 s from other servers': set it"),
        ({"plan": verified(None)}, f"plan {PLAN_ID} was revoked"),
        ({"plan": verified(None, plan_id=None)}, "all plans were revoked"),
        ({"plan": verified(plan_of(A, B, C), valid_until=NOW)}, f"plan {PLAN_ID} has expired"),
        ({"rows": (A, C)}, f"plan {PLAN_ID} does not have this server"),
        ({"pinned": True}, "pinned by its owner"),
        ({"span": Span(4, 8)}, ""),
        ({"rows": (A, row("b", (4, 8), (4, 8)), C)}, "does not move it, and found it with 4:8"),
    ],
)
def test_nothing_to_follow(changes, said):
    text = why(word="serving", **changes)
    assert said in text
    assert bool(text) == bool(said)


def test_it_drops_only_what_the_plan_says_that_it_drops():
    # Of 0:5 it drops 0 to 3 on its way to 4:8, as it would of 0:4, where the plan found it.
    assert isinstance(decide(view(span=Span(0, 5))), Go)
    # Of 1:4 it would drop 1 as well, of which neither floor nor turns know.
    rows = (A, row("b", (2, 4), (4, 6)), C)
    assert "found it with 2:4, not 1:4: plan again" in why(rows=rows, span=Span(1, 4))


def test_a_half_done_move_is_taken_up_again():
    # Its load failed after 0 and 1 were dropped: it serves what it kept, and goes on at once, as nothing more is lost.
    rows = (A, row("b", (0, 4), (2, 6)), C)
    servers = (SERVERS[0], online("b", 2, 4), SERVERS[2])
    assert decide(view(rows=rows, servers=servers, own_intent=None)) == Go(Span(2, 6), PLAN_ID, EPOCH)


# --- newcomers, drains, growth


def newcomer(**fields):
    rows = (A, row("b", None, (4, 8)), C)
    servers = (SERVERS[0], Server("b", ServerState.WAITING, None, 10.0), SERVERS[2])
    return view(rows=rows, servers=servers, confirmed={}, asked_at=None, own_intent=None, **fields)


def test_a_newcomer_goes_at_once_but_under_plan_and_lease():
    assert decide(newcomer()) == Go(Span(4, 8), PLAN_ID, EPOCH)
    for changes in ({"heartbeat": None}, {"partial": True}, {"plan": None}, {"pinned": True}):
        step = decide(newcomer(**changes))
        assert isinstance(step, Stay)
        # Else the decoder would not take it for a newcomer.
        assert step.state == "waiting"


def test_a_newcomer_that_the_plan_gives_nothing_waits():
    step = decide(replace(newcomer(), plan=verified(plan_of(A, row("b", None, None), C))))
    assert step == Stay(f"plan {PLAN_ID} gives it no blocks", "waiting")


def test_a_server_that_lost_its_blocks_takes_those_that_the_plan_counts_on():
    rows = (A, row("b", (0, 4), (0, 4)), C)
    assert decide(replace(newcomer(), plan=verified(plan_of(*rows)))) == Go(Span(0, 4), PLAN_ID, EPOCH)


def test_a_drained_server_keeps_to_the_floor():
    rows = (A, row("b", (0, 4), None), C)
    assert decide(view(rows=rows)) == Go(None, PLAN_ID, EPOCH)
    assert "block 0 would be left with 10.00 RPS, and the plan's floor is 10.10" in why(rows=rows, floor=10.1)


def test_a_shorter_span_that_is_slower_has_less_throughput_on_what_it_keeps():
    # An odd table: c has 10 RPS at 4:8 and 6 at 4:7; at 4:7 with 10 only block 7 is at stake, which a and b hold too.
    held = (online("a", 4, 8), online("b", 7, 8), online("c", 4, 8))
    for rps, block in ((6.0, 4), (10.0, 7)):
        rows = (row("a", (4, 8), (4, 8)), row("b", (7, 8), (7, 8)), row("c", (4, 8), (4, 7), rps=rps))
        step = why("c", rows=rows, servers=held, floor=99.0, own_intent=None)
        assert f"block {block} would be left with" in step


def test_a_longer_span_has_less_throughput_on_what_it_keeps():
    # c at 4:8 has 10 RPS a block, at 2:8 only 6: blocks 4 to 7 have nobody else.
    rows = (A, B, row("c", (4, 8), (2, 8), rps=6.0))
    assert isinstance(decide(view("c", rows=rows, floor=6.0, own_intent=None)), Go)
    assert "block 4 would be left with 6.00 RPS" in why("c", rows=rows, floor=6.1, own_intent=None)


# --- floor: who counts


def test_the_floor_counts_what_announces_itself_online_and_answers():
    assert isinstance(decide(view(floor=10.0)), Go)
    assert "block 0 would be left with 10.00 RPS" in why(floor=10.5)
    assert "a announces it, and does not answer for it" in why(answers={"a": None})
    assert "block 3 would have no server; a announces it" in why(answers={"a": Span(0, 3)})
    assert "block 0 would have no server" in why(servers=(online("a", 2, 6), *SERVERS[1:]), answers={"a": Span(0, 4)})


def test_joining_blocks_do_not_count_but_those_that_a_joining_server_keeps_do():
    def loading(*kept):
        return Server("a", ServerState.JOINING, Span(0, 4), 10.0, serving=frozenset(kept))

    assert isinstance(decide(view(servers=(loading(0, 1, 2, 3), *SERVERS[1:]))), Go)
    assert "block 0 would have no server" in why(servers=(loading(1, 2, 3), *SERVERS[1:]))


def test_a_forged_throughput_counts_no_more_than_the_plans():
    inflated = (online("a", 0, 4, 1e7), *SERVERS[1:])
    assert "would be left with 10.00 RPS" in why(servers=inflated, floor=11.0)
    lowered = (online("a", 0, 4, 3.0), *SERVERS[1:])
    assert "would be left with 3.00 RPS" in why(servers=lowered)


def test_a_stranger_that_the_plan_does_not_list_counts_nothing_and_is_not_asked():
    with_stranger = (*SERVERS, online("z", 0, 8, 1000.0))
    assert "would be left with 10.00 RPS" in why(servers=with_stranger, floor=11.0)
    assert decide(view(servers=with_stranger, confirmed={}, asked_at=None)) == Ask(("a",))


def test_a_floor_of_zero_still_makes_no_hole_unless_the_plan_ends_with_it():
    alone = (row("b", (0, 4), (4, 8)), C)
    servers = SERVERS[1:]
    # Nobody is left on 0:4 in the plan's end: its operator signed the hole.
    assert isinstance(decide(view(rows=alone, servers=servers, floor=0.0)), Go)
    assert "block 0 would be left with 0.00 RPS" in why(rows=alone, servers=servers, floor=1.0)
    # In this plan somebody is to come; until then the block is not left.
    coming = (*alone, row("n", None, (0, 4)))
    assert why(rows=coming, servers=servers, floor=0.0) == "block 0 would have no server"


def test_a_swap_of_sole_holders_moves_nobody():
    rows = (row("a", (0, 4), (4, 8)), row("c", (4, 8), (0, 4)))
    servers = (SERVERS[0], SERVERS[2])
    assert "block 0 would have no server" in why("a", rows=rows, servers=servers, floor=0.0)
    assert "block 4 would have no server" in why("c", rows=rows, servers=servers, floor=0.0)


def test_a_floor_that_is_the_sum_of_what_stays_is_kept():
    rows = (*(row(name, (0, 4), (0, 4), rps=0.1) for name in "acd"), row("b", (0, 4), (4, 8)))
    servers = (*(online(name, 0, 4, 0.1) for name in "acd"), SERVERS[1])
    assert isinstance(decide(view(rows=rows, servers=servers, floor=0.1 + 0.1 + 0.1)), Go)


# --- order


AFTER = (A, row("b", (0, 4), (4, 8), wave=1, after=("c",)), row("c", (4, 8), (2, 6)))


def test_a_predecessor_is_done_when_it_announces_and_answers_its_target():
    there = (*SERVERS[:2], online("c", 2, 6))
    assert isinstance(decide(view(rows=AFTER, servers=there)), Go)
    assert decide(view(rows=AFTER, servers=there, confirmed={}, asked_at=None)) == Ask(("a", "c"))
    says = "waits for c to serve 2:6: "
    assert why(rows=AFTER) == says + "it announces 4:8"
    assert why(rows=AFTER, servers=SERVERS[:2]) == says + "it is not in the swarm"
    assert why(rows=AFTER, servers=there, answers={"c": None}) == says + "it announces that, and does not answer"
    answered = {"c": Span(4, 6)}
    assert why(rows=AFTER, servers=there, answers=answered) == says + "it announces that, and answers for 4:6 only"
    joining = Server("c", ServerState.JOINING, Span(2, 6), 10.0, serving=frozenset((4, 5)))
    assert why(rows=AFTER, servers=(*SERVERS[:2], joining)) == says + "it is joining"
    partly = online("c", 2, 6, serving=frozenset((2, 3, 4)), offline=frozenset((5,)))
    assert why(rows=AFTER, servers=(*SERVERS[:2], partly)) == says + "it announces a part of it OFFLINE"


def test_nobody_is_asked_while_the_records_alone_say_no():
    assert "waits for c" in why(rows=AFTER, confirmed={}, asked_at=None)


def test_a_drained_predecessor_is_done_when_it_is_gone_and_does_not_answer():
    rows = (A, row("b", (0, 4), (4, 8), wave=1, after=("c",)), row("c", (4, 8), None))
    assert isinstance(decide(view(rows=rows, servers=SERVERS[:2], answers={"c": None})), Go)
    says = "waits for c to serve no blocks: it "
    assert why(rows=rows, servers=SERVERS[:2], answers={"c": Span(4, 8)}) == says + "still answers for 4:8"
    assert why(rows=rows) == says + "announces 4:8"


def test_a_newcomer_keeps_to_an_order_that_the_plan_gives_it():
    rows = (A, row("b", None, (4, 8), wave=1, after=("c",)), row("c", (4, 8), (2, 6)))
    step = decide(replace(newcomer(), plan=verified(plan_of(*rows))))
    assert isinstance(step, Stay)
    assert "waits for c" in step.why


# --- intents. a, b and d hold 0:4; one of them must stay. Moments at which it is a's turn, or b's.


def rivals(*, floor=10.0, rps=10.0):
    rows = (row("a", (0, 4), (4, 8), rps), row("b", (0, 4), (4, 8), rps), row("d", (0, 4), (0, 4), rps), C)
    servers = (*(online(name, 0, 4, rps) for name in "abd"), SERVERS[2])
    return {"rows": rows, "servers": servers, "floor": floor}


def in_turn_of(peer_id, floor=10.0):
    turns = Turns(plan_of(*rivals(floor=floor)["rows"]))
    (mine,) = [one for one in rivals()["rows"] if one.peer_id == peer_id]
    return turns.next_turn(mine, NOW) + 1


def at(moment, peer_id="b", intents=(), **fields):
    intents = dict.fromkeys(intents, OWN) if not isinstance(intents, dict) else intents
    of = {"now": moment, "asked_at": moment - 1, "heartbeat": heartbeat(), "intents": intents}
    of = {**rivals(), **of, "own_intent": replace(OWN, since=moment - WAIT), **fields}
    of.setdefault("state", state_of(*of["servers"], read_at=moment))
    return decide(view(peer_id, **of))


def test_where_there_is_room_for_both_both_go():
    moment = in_turn_of("a")
    assert isinstance(at(moment, "a", "b"), Go)
    assert isinstance(at(moment, "b", "a"), Go)


def test_where_there_is_room_for_one_whose_turn_it_is_goes_and_the_other_lets_it():
    tight = {"floor": 20.0}
    for first, second in ("ab", "ba"):
        moment = in_turn_of(first)
        assert isinstance(at(moment, first, second, **tight), Go)
        step = at(moment, second, first, **tight)
        assert isinstance(step, Intend)
        assert step.why == f"lets {first} go first, which drops the same blocks"
        # It keeps its place, and looks again in its own turn at the latest.
        assert step.intent.since == moment - WAIT
        assert isinstance(at(step.again_at, second, first, **tight), Go)


def test_near_the_end_of_a_turn_both_let_the_other_go():
    # By a clock that is a little off it is the other's turn already.
    moment = in_turn_of("a") - 1 + TURN - 2 * MARGIN + 1
    for first, second in ("ab", "ba"):
        assert isinstance(at(moment, first, second, floor=20.0), Intend)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("other plan", {"intents": {"a": replace(OWN, plan_id="cd" * 16)}}),
        ("other epoch", {"intents": {"a": replace(OWN, epoch=EPOCH - 1)}}),
        ("a server that does not move", {"intents": "d"}),
        ("one that has moved", {"intents": "a", "servers": (online("a", 4, 8), *rivals()["servers"][1:]), "floor": 10}),
        ("a stranger", {"intents": "z"}),
        ("oneself", {"intents": "b"}),
    ],
)
def test_an_intent_counts_only_from_whom_the_plan_moves_and_where_it_is(name, changes):
    assert isinstance(at(in_turn_of("a"), "b", **{"floor": 20.0, **changes}), Go)


def test_an_intent_of_one_that_does_not_answer_does_not_count_but_neither_does_its_throughput():
    step = at(in_turn_of("a"), "b", "a", answers={"a": None})
    assert isinstance(step, Go)
    step = at(in_turn_of("a"), "b", "a", answers={"a": None}, floor=20.0)
    assert isinstance(step, Stay)
    assert "a announces it, and does not answer for it" in step.why


def test_what_an_intent_says_that_it_covers_does_not_matter():
    moment = in_turn_of("a")
    nothing, everything = replace(OWN, blocks=(Span(7, 8),)), replace(OWN, blocks=(Span(0, 8),))
    assert isinstance(at(moment, "b", {"a": nothing}, floor=20.0), Intend)
    # c, which moves too, drops other blocks: no word of it holds b back.
    rows = (*rivals()["rows"][:3], row("c", (4, 8), (0, 4)))
    assert isinstance(at(moment, "b", {"c": everything}, floor=20.0, rows=rows), Go)


# --- turns


moves = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 4), st.integers(0, 5), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


def rows_of(drawn):
    return [
        row(f"p{number:02}", (start, start + length), (target, target + length), wave=wave)
        for number, (_, start, length, target, wave) in enumerate(drawn)
        if start != target
    ]


@given(moves, st.floats(NOW, NOW + 5000), st.floats(0, MARGIN))
def test_of_two_that_share_a_block_never_does_each_come_first_by_clocks_within_the_margin(drawn, now, apart):
    rows = rows_of(drawn)
    turns = Turns(plan_of(*rows, num_blocks=10))
    for one in rows:
        for other in rows:
            if one is not other and set(one.dropped) & set(other.dropped):
                first = other not in turns.before(one, now)
                assert not (first and one not in turns.before(other, now + apart))


@given(moves, st.floats(NOW, NOW + 5000))
def test_everybody_has_a_turn_in_which_nobody_comes_before(drawn, now):
    rows = rows_of(drawn)
    turns = Turns(plan_of(*rows, num_blocks=10))
    # No more turns than moves with which one may share a block, and itself.
    most = max((sum(bool(set(one.dropped) & set(other.dropped)) for other in rows) for one in rows), default=1)
    for one in rows:
        if one.dropped:
            begin = turns.next_turn(one, now)
            assert now < begin <= now + most * TURN + 1e-6
            for moment in (begin, begin + TURN - 2 * MARGIN - 0.001):
                assert turns.before(one, moment) == []


# --- whatever is in a view


spans = st.none() | st.tuples(st.integers(0, 7), st.integers(1, 8)).map(
    lambda ends: Span(min(ends), max(max(ends), min(ends) + 1))
)
intents = st.dictionaries(
    st.sampled_from("abcz"),
    st.builds(Intent, st.sampled_from([PLAN_ID, "cd" * 16]), st.integers(6, 8), st.just(()), st.floats(0, 1e11)),
)


@given(
    st.sampled_from("abcdz"),
    spans,
    st.floats(0, 100),
    st.dictionaries(st.sampled_from("abcz"), spans),
    intents,
    st.none() | st.just(OWN),
    st.floats(NOW - 100, NOW + 100),
    st.permutations(SERVERS).flatmap(lambda servers: st.integers(1, 3).map(lambda count: tuple(servers[:count]))),
)
def test_it_never_raises_and_never_goes_without_being_ready(peer_id, where, floor, answers, others, own, now, servers):
    given_view = View(
        now=now,
        peer_id=peer_id,
        span=where,
        refresh=REFRESH,
        state=state_of(*servers),
        plan=verified(plan_of(*AFTER, floor=floor)),
        heartbeat=heartbeat(),
        confirmed=answers,
        asked_at=NOW,
        intents=others,
        own_intent=own,
    )
    step = decide(given_view)
    if isinstance(step, Go):
        planned = {one.peer_id: one for one in AFTER}[peer_id]
        assert step.target == planned.target != where
        assert set(outside(where, step.target)) <= set(planned.dropped)
        assert not outside(where, step.target) or (own is not None and now - own.since >= WAIT)
    assert decide(given_view) == step


# --- whole swarms


def longest(plan, loads, world):
    """Seconds in which all must be done, even if no two moves go at the same time.

    Of each: its load, its wait, a few looks, and near the end of a turn the time in which rivals let each other go.
    """
    each = 4 * world.refresh + ANSWER_AGE + MARGIN + TURN
    return sum(loads[one.peer_id] + each for one in plan.moves) + 2 * world.refresh


@settings(max_examples=300)
@given(worlds(), st.integers(0, 2**32), st.sampled_from([5.0, 60.0]))
def test_a_swarm_keeps_to_the_floor_and_comes_to_its_end(world, seed, refresh):
    plan, loads = world
    of = World(seed, refresh, skew=1.5)
    swarm = Swarm(plan, loads, of).run(longest(plan, loads, of))
    assert swarm.done, (swarm.why, swarm.went)
    assert len(swarm.went) == len(plan.moves)
    began = {peer: when for when, peer in swarm.went}
    for one in plan.moves:
        assert all(swarm.servers[other].done_at <= began[one.peer_id] for other in one.after)


@settings(max_examples=150)
@given(worlds(), st.integers(0, 2**32))
def test_forged_intents_delay_it_for_a_bounded_time_and_never_below_the_floor(world, seed):
    plan, loads = world
    of = World(seed, skew=1.5, forged_intents=True)
    # Each move waits for its turn at most; more turns than servers there cannot be.
    swarm = Swarm(plan, loads, of).run(longest(plan, loads, of) + len(plan.moves) * len(plan.servers) * TURN)
    assert swarm.done, (swarm.why, swarm.went)


@settings(max_examples=150)
@given(worlds(), st.integers(0, 2**32), st.data())
def test_whatever_crashes_is_lost_partial_or_forged_nobody_goes_below_the_floor(world, seed, data):
    plan, loads = world
    names = st.sampled_from([one.peer_id for one in plan.servers])
    crash = st.tuples(names, st.floats(0, 600), st.none() | st.floats(0, 300))
    of = World(
        seed,
        skew=1.5,
        forged_intents=data.draw(st.booleans()),
        forged_servers=data.draw(st.booleans()),
        lost=data.draw(st.sampled_from([0.0, 0.3])),
        partial=data.draw(st.sampled_from([0.0, 0.3])),
        crashes=tuple(data.draw(st.lists(crash, max_size=3, unique_by=lambda one: one[0]))),
    )
    Swarm(plan, loads, of).run(3600)


@pytest.mark.parametrize("count", [2, 5, 12])
def test_many_that_could_all_take_one_slack_take_it_one_after_another(count):
    # All hold 0:2, of which one too many is there; each that leaves comes back round as another's slack.
    rows = [row(f"p{n:02}", (0, 2), (2, 4), 1.0) for n in range(count)]
    rows += [row(f"q{n:02}", (2, 4), (0, 2), 1.0, after=()) for n in range(count)]
    plan = plan_of(*rows, floor=count - 1.0, num_blocks=4)
    for seed in range(5):
        swarm = Swarm(plan, dict.fromkeys((one.peer_id for one in rows), 30.0), World(seed, skew=1.5)).run(50_000)
        assert swarm.done, swarm.why


def _by_records_alone(self, block, gone):
    there = {one.peer_id: one for one in self.state.servers if block in one.serving}
    others = [one for one in self.plan.servers if one is not self.row and one.peer_id in there]
    return [one.throughput for one in others if one.peer_id not in gone or block not in one.dropped], []


@pytest.mark.parametrize(
    ("place", "attribute", "weak"),
    [
        (follow, "MARGIN", -REFRESH - ANSWER_AGE),
        (follow, "_intends", lambda *_: False),
        (Slack, "_left", _by_records_alone),
    ],
    ids=["no waiting", "deaf to intents", "by records alone"],
)
def test_the_simulation_catches_a_rule_that_is_too_weak(monkeypatch, place, attribute, weak):
    rows = [row(f"p{n}", (0, 2), (2, 4), 1.0) for n in range(8)]
    plan = plan_of(*rows, row("q", (0, 4), (0, 4), 1.0), floor=8.0, num_blocks=4)

    def many() -> None:
        for seed in range(100):
            Swarm(plan, {}, World(seed, skew=1.5)).run(600)

    many()
    monkeypatch.setattr(place, attribute, weak)
    with pytest.raises(FellBelow):
        many()


def test_without_turns_forged_intents_would_hold_back_for_ever(monkeypatch):
    moment, held = in_turn_of("b"), {"intents": "a", "floor": 20.0}
    assert isinstance(at(moment, "b", **held), Go)
    monkeypatch.setattr(Turns, "_rank", lambda self, one, moment: (one.wave or 0, one.peer_id))
    assert all(isinstance(at(moment + n * TURN, "b", **held), Intend) for n in range(10))
