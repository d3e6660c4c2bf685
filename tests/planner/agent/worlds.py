"""Plans that a swarm can carry out, as hypothesis draws them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from tests.planner.agent.following import plan_of, row

BLOCKS = 5


@st.composite
def worlds(draw, moves_at_most=5):
    """A plan, and by peer how long its load takes in seconds.

    Whatever move goes first, another can follow until all are done: found by going through all sets of moves that may
    be done at some time. Where that is not so without an order, and in half of the other cases, each move has to wait
    for the one before.
    """
    count = draw(st.integers(3, 7))
    rows = []
    for name in draw(st.permutations(range(count))):
        length = draw(st.integers(1, 3))
        current, target = ((start, start + length) for start in draw(st.tuples(*[st.integers(0, BLOCKS - length)] * 2)))
        kind = draw(st.sampled_from(["move", "move", "move", "stay", "newcomer", "drain"]))
        target = {"stay": current, "drain": None}.get(kind, target)
        rps = float(draw(st.integers(1, 5)))
        rows.append(row(f"p{name}", None if kind == "newcomer" else current, target, rps))
    held = [math.fsum(one.throughput for one in rows if one.current and b in one.current) for b in range(BLOCKS)]
    floor = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])) * min((rps for rps in held if rps > 0), default=0.0)
    order = _in_order(rows, floor, moves_at_most)
    while {one.peer_id for one in rows if one.moves} != set(order):
        # Who finds no room stays where it is; what it would have brought does not come then.
        rows = [one if one.peer_id in order else row(one.peer_id, *[one.current] * 2, one.throughput) for one in rows]
        order = _in_order(rows, floor, moves_at_most)
    if draw(st.booleans()) or not _always_goes_on(rows, floor):
        before = {after: (peer_id,) for peer_id, after in pairwise(order)}
        rows = [
            replace(one, wave=order.index(one.peer_id), after=before.get(one.peer_id, ())) if one.moves else one
            for one in rows
        ]
    assert _always_goes_on(rows, floor)
    loads = {one.peer_id: float(draw(st.sampled_from([0, 20, 200]))) for one in rows}
    return plan_of(*rows, floor=floor, num_blocks=BLOCKS), loads


def _may_go(rows, done, one, floor):
    """Whether one more move may begin when those in `done` are done, and no other is on its way."""
    for block in one.dropped:
        spots = [
            (other, other.target if other.peer_id in done else other.current) for other in rows if other is not one
        ]
        left = [other.throughput for other, spot in spots if spot is not None and block in spot]
        hole = not left and any(other.target is not None and block in other.target for other in rows)
        if hole or math.fsum(left) < floor * (1 - 1e-9):
            return False
    return set(one.after) <= done


def _in_order(rows, floor, at_most):
    """As many moves as may be done one after another."""
    order = []
    while len(order) < at_most:
        free = [r for r in rows if r.moves and r.peer_id not in order and _may_go(rows, set(order), r, floor)]
        if not free:
            break
        order.append(free[0].peer_id)
    return order


def _always_goes_on(rows, floor):
    movers = [one for one in rows if one.moves]
    seen, front = {frozenset()}, [frozenset()]
    while front:
        done = front.pop()
        following = {done | {r.peer_id} for r in movers if r.peer_id not in done and _may_go(rows, done, r, floor)}
        if not following and len(done) < len(movers):
            return False
        front += following - seen
        seen |= following
    return True
