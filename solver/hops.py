"""How many servers a request passes through: the shortest chain of spans that covers the model.

A span may be left at any block, so the fewest intervals that cover ``[0, num_blocks)`` are such a chain; taking
always the span that reaches farthest among those that hold the next block finds them.
"""

from __future__ import annotations

from collections.abc import Iterable

from solver.problem import Span


def reaching(spans: Iterable[Span], num_blocks: int) -> tuple[Span, ...]:
    """Of the spans with the same start the one that reaches farthest, ascending: shortest chains need no others."""
    farthest: list[Span | None] = [None] * num_blocks
    for span in spans:
        known = farthest[span.start]
        if known is None or span.end > known.end:
            farthest[span.start] = span
    return tuple(span for span in farthest if span is not None)


def shortest_chain(spans: Iterable[Span], num_blocks: int) -> tuple[Span, ...] | None:
    """The spans of a shortest chain, from the first block to the last; None if some block is in no span."""
    chain: list[Span] = []
    reached, best = 0, Span(0, 0)
    for span in (*reaching(spans, num_blocks), Span(num_blocks, num_blocks)):
        # All that start up to what is reached are known by now: go on where the farthest of them ends.
        while span.start > reached:
            if best.end <= reached:
                return None
            chain.append(best)
            reached = best.end
        if span.end > best.end:
            best = span
    return tuple(chain)
