"""The shortest chain of spans, against trying all sets of them."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from solver import Span
from solver.hops import reaching, shortest_chain
from tests.solver.cases import spans

BLOCKS = 7


@st.composite
def some_spans(draw):
    start = draw(st.integers(0, BLOCKS - 1))
    return Span(start, draw(st.integers(start + 1, BLOCKS)))


def test_by_hand():
    assert shortest_chain(spans("0:2 2:4 4:5 1:4"), 5) == spans("0:2 1:4 4:5")
    assert shortest_chain(spans("0:2 2:5 1:4"), 5) == spans("0:2 2:5")
    assert shortest_chain(spans("0:2 3:5"), 5) is None
    assert shortest_chain(spans("1:5"), 5) is None
    assert shortest_chain(spans("0:4"), 5) is None
    assert shortest_chain((), 1) is None
    assert reaching(spans("1:3 0:2 1:2 0:1"), 3) == spans("0:2 1:3")


@given(st.lists(some_spans(), max_size=6))
def test_no_shorter_one_covers_the_model(held):
    everything = set(range(BLOCKS))
    covering = [
        size
        for size in range(1, len(held) + 1)
        for some in combinations(held, size)
        if everything == {block for span in some for block in range(*span)}
    ]
    chain = shortest_chain(held, BLOCKS)
    assert (None if chain is None else len(chain)) == min(covering, default=None)
    assert chain is None or {block for span in chain for block in range(*span)} == everything
