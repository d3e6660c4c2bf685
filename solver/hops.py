"""How many servers a request passes through: the shortest chain of spans that covers the model.

A span may be left at any block, so the fewest intervals that cover ``[0, num_blocks)`` are such a chain; taking
always the span that reaches farthest among those that hold the next block finds them.
"""

from __future__ import annotations

from collections.abc import Iterable

from solver.problem import Span


def shortest_chain(spans: Iterable[Span], num_blocks: int) -> tuple[Span, ...] | None:
    """The spans of a shortest chain, from the first block to the last; None if some block is in no span."""
    farthest: list[Span | None] = [None] * num_blocks
    for span in spans:
        known = farthest[span.start]
        if known is None or span.end > known.end:
            farthest[span.start] = span
    chain: list[Span] = []
    reached, best = 0, Span(0, 0)
    for block in range(num_blocks):
        here = farthest[block]
        if here is not None and here.end > best.end:
            best = here
        if block == reached:
            if best.end <= block:
                return None
            chain.append(best)
            reached = best.end
    return tuple(chain)
