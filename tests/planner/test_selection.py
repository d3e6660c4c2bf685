from __future__ import annotations

import pytest

from planner.errors import InfeasibleDemands, PolicyInvalid
from planner.policy import Policy
from planner.selection import Role, assign_roles, find_peer, resolve_policy
from solver.problem import Span
from tests.planner.build import joining, online, serving, swarm, waiting

FREE = Role()


def roles(state, **wishes):
    policy = resolve_policy(state, Policy(**wishes))
    return assign_roles(state.with_spans(dict(policy.spans)), policy)


# --- whom an operator means

PEERS = swarm(*(online(peer, 0, 1) for peer in ("QmAlpha", "QmAlphabet", "QmBeta", "QmGamma")))


@pytest.mark.parametrize(
    ("text", "peer_id"),
    [("QmBeta", "QmBeta"), ("Beta", "QmBeta"), ("amma", "QmGamma"), ("bet", "QmAlphabet"), ("QmAlpha", "QmAlpha")],
)
def test_any_unambiguous_part_names_a_peer_and_a_whole_id_always_does(text, peer_id):
    assert find_peer(PEERS, text).peer_id == peer_id


def test_an_ambiguous_part_lists_whom_it_may_mean():
    with pytest.raises(PolicyInvalid, match=r"^peer 'lpha' is ambiguous: it may be QmAlpha, QmAlphabet; write more$"):
        find_peer(PEERS, "lpha")


def test_an_unknown_peer_lists_those_that_are_like_it_or_all():
    with pytest.raises(PolicyInvalid, match=r"^no peer id contains 'QmBetta'; there are QmBeta"):
        find_peer(PEERS, "QmBetta")
    for text in ("zzz", "", "beta"):
        with pytest.raises(PolicyInvalid, match=f"^no peer id contains '{text}'; there are .*QmBeta"):
            find_peer(PEERS, text)


def test_long_lists_are_cut_and_escapes_are_shown():
    crowd = swarm(*(online(f"peer{number:02}", 0, 1) for number in range(20)))
    with pytest.raises(PolicyInvalid, match=r"it may be peer00, .*, peer07 and 12 more; write more$"):
        find_peer(crowd, "peer")
    with pytest.raises(PolicyInvalid, match=r"there are peer00, .* and 12 more$"):
        find_peer(crowd, "zzz")
    with pytest.raises(PolicyInvalid) as raised:
        find_peer(crowd, "\x1b[31m\n")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "wishes",
    [
        {"pins": (("x", None),)},
        {"spans": (("x", Span(0, 1)),)},
        {"cordons": ("x",)},
        {"drains": ("x",)},
    ],
)
def test_every_wish_names_its_peers_so(wishes):
    with pytest.raises(PolicyInvalid, match="no peer id contains 'x'; there are a, b"):
        resolve_policy(swarm(online("a", 0, 1), online("b", 0, 1)), Policy(**wishes))


def test_resolved_wishes_are_whole_and_sorted_and_equal_wishes_are_equal():
    wishes = Policy(
        pins=(("Gam", Span(0, 1)), ("Alphab", None), ("QmAlphab", None)),
        spans=(("QmGamma", Span(1, 2)), ("Bet", Span(0, 2)), ("Beta", Span(0, 2))),
        cordons=("Bet", "QmAlpha", "Beta"),
        drains=(),
    )
    resolved = resolve_policy(PEERS, wishes)
    assert resolved.pins == (("QmAlphabet", None), ("QmGamma", Span(0, 1)))
    assert resolved.spans == (("QmBeta", Span(0, 2)), ("QmGamma", Span(1, 2)))
    assert resolved.cordons == ("QmAlpha", "QmBeta")
    assert resolve_policy(PEERS, resolved) == resolved


def test_a_span_that_cannot_be_told():
    state = swarm(online("a", 0, 2), waiting("b", 2))
    with pytest.raises(PolicyInvalid, match=r"3:5.* is outside the model's 0:4"):
        resolve_policy(state, Policy(spans=(("a", Span(3, 5)),)))
    with pytest.raises(PolicyInvalid, match=r"^--span b=0:2: it holds no blocks yet"):
        resolve_policy(state, Policy(spans=(("b", Span(0, 2)),)))


# --- contradictions


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"pins": (("a", Span(0, 2)), ("a", Span(1, 3)))}, "--pin names a twice: at 0:2 and at 1:3; keep one"),
        ({"pins": (("a", None), ("a", Span(1, 3)))}, "--pin names a twice: at where it is and at 1:3; keep one"),
        ({"spans": (("a", Span(0, 2)), ("a", Span(1, 3)))}, "--span names a twice: at 0:2 and at 1:3; keep one"),
        ({"drains": ("a",), "cordons": ("a",)}, "a is asked to drain and to stay"),
        ({"drains": ("a",), "pins": (("a", None),)}, "a is asked to drain and to stay"),
        ({"drains": ("a",), "pins": (("a", Span(0, 2)),)}, "a is asked to drain and to stay"),
        ({"cordons": ("a",), "pins": (("a", Span(1, 3)),)}, "a is cordoned and pinned to 1:3: leave out one of them"),
        ({"pins": (("a", Span(3, 5)),)}, "--pin a=3:5 is outside the model's 0:4"),
        ({"pins": (("a", Span(0, 3)),)}, "--pin a=0:3 takes 3 blocks, it can hold 2"),
        ({"pins": (("wait", Span(0, 4)),)}, "--pin wait=0:4 takes 4 blocks, it can hold 3"),
        ({"pins": (("join", Span(1, 3)),)}, "--pin join=1:3 would move a server that is joining; plan again when"),
        ({"pins": (("doubt", Span(0, 1)),)}, "that is span uncertain; tell its true span with --span"),
        ({"pins": (("part", Span(0, 2)),)}, "that is partly offline; plan again when it has settled"),
    ],
)
def test_demands_that_contradict(wishes, reason):
    state = swarm(
        online("a", 0, 2),
        joining("join", 0, 2),
        online("doubt", 0, 3, uncertain=True),
        online("part", 1, 3, offline={1}),
        waiting("wait", 3),
    )
    with pytest.raises(InfeasibleDemands) as raised:
        roles(state, **wishes)
    assert reason in str(raised.value)


def test_what_is_said_twice_or_in_two_ways_is_no_contradiction():
    state = swarm(online("a", 0, 2), online("b", 2, 4))
    for wishes in (
        {"pins": (("a", Span(0, 2)), ("a", Span(0, 2)))},
        {"pins": (("a", Span(0, 2)),), "cordons": ("a",)},
        {"pins": (("a", None),), "cordons": ("a",)},
    ):
        assert roles(state, **wishes) == {"a": Role(why_not="pinned"), "b": FREE}


# --- who may move


def test_without_agents_everybody_may_move():
    state = swarm(online("a", 0, 2), online("b", 2, 4))
    assert roles(state) == roles(state, movable="all") == {"a": FREE, "b": FREE}
    assert roles(state, movable="agents") == {"a": Role("no agent"), "b": Role("no agent")}


def test_with_agents_only_they_may_move_unless_told_otherwise():
    state = swarm(online("a", 0, 2, agent=serving()), online("b", 2, 4), waiting("c", 1))
    assert roles(state) == roles(state, movable="agents") == {"a": FREE, "b": Role("no agent"), "c": FREE}
    assert roles(state, movable="all") == {"a": FREE, "b": FREE, "c": FREE}


def test_an_agent_may_be_pinned_by_its_owner():
    state = swarm(online("a", 0, 2, agent=serving(pinned=True)), waiting("c", 1, pinned=True))
    held = Role("pinned by its agent")
    assert roles(state) == roles(state, movable="all") == {"a": held, "c": held}
    assert roles(state, pins=(("a", Span(1, 3)),), drains=("c",)) == {"a": Role(only=Span(1, 3)), "c": Role("drained")}


def test_who_cannot_be_moved_is_a_constant():
    state = swarm(
        joining("a", 0, 2, agent=serving()),
        online("b", 0, 2, uncertain=True, agent=serving()),
        online("c", 0, 2, offline={1}, agent=serving()),
        waiting("d", None),
        waiting("e", 0),
    )
    reasons = ["joining", "span uncertain", "partly offline", "capacity unknown", "capacity unknown"]
    assert list(roles(state).values()) == [Role(reason) for reason in reasons]
    assert list(roles(state, movable="all").values()) == [Role(reason) for reason in reasons]


def test_whose_span_is_told_may_move():
    state = swarm(online("b", 0, 2, uncertain=True), online("c", 0, 2, offline={1}), joining("j", 0, 2))
    told = tuple((peer, Span(0, 2)) for peer in "bcj")
    assert roles(state, spans=told) == {"b": FREE, "c": FREE, "j": Role("joining")}


def test_pins_and_cordons():
    state = swarm(online("a", 0, 2), online("b", 2, 4), joining("c", 1, 3), online("d", 0, 3, uncertain=True))
    pinned = (("a", None), ("b", Span(1, 3)), ("c", Span(1, 3)), ("d", Span(0, 3)))
    assert roles(state, pins=pinned) == {
        "a": Role("pinned"),
        "b": Role(only=Span(1, 3)),
        "c": Role("pinned"),
        "d": Role("pinned"),
    }
    cordoned = roles(state, cordons=("a", "c"))
    assert (cordoned["a"], cordoned["b"], cordoned["c"]) == (Role("cordoned"), FREE, Role("cordoned"))


def test_a_pin_may_be_shorter_than_the_present_span_or_as_long_as_the_capacity():
    state = swarm(online("a", 0, 2, agent=serving(capacity=3)), waiting("w", 2))
    wishes = (("a", Span(3, 4)), ("w", Span(1, 2)))
    assert roles(state, pins=wishes) == {"a": Role(only=Span(3, 4)), "w": Role(only=Span(1, 2))}
    assert roles(state, pins=(("a", Span(1, 4)),))["a"] == Role(only=Span(1, 4))


def test_a_pin_is_the_operators_word_also_where_no_agent_follows():
    state = swarm(online("a", 0, 2, agent=serving()), online("b", 0, 2))
    assert roles(state, pins=(("b", Span(2, 4)),))["b"] == Role(only=Span(2, 4))


def test_drains():
    state = swarm(
        online("a", 0, 2), joining("b", 0, 2), online("c", 0, 2, uncertain=True), waiting("d", 2), waiting("e", 2)
    )
    drained = roles(state, drains=("a", "b", "c", "d"))
    assert all(drained[peer] == Role(drained=True) for peer in "abc")
    # A newcomer has nothing to give up: it goes on waiting.
    assert drained["d"] == Role(why_not="drained")
    assert drained["e"] == FREE


def test_a_newcomer_that_shall_stay_goes_on_waiting():
    state = swarm(waiting("a", 2), waiting("b", 2))
    assert roles(state, pins=(("a", None),), cordons=("b",)) == {"a": Role("pinned"), "b": Role("cordoned")}
