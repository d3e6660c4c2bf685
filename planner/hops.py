"""How few servers a request could pass through, however the servers are placed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.problem import Span


def fewest_hops(num_blocks: int, fixed: Sequence[Span], lengths: Sequence[int]) -> int | None:
    """A lower bound on the length of a chain that covers the model; None if all together cannot cover it.

    It is exact where nothing is fixed, or one gap is left between what is: free servers are taken as if a long one
    could be cut into pieces to fill several gaps.

    Parameters
    ----------
    fixed
        The spans of servers that cannot be placed.
    lengths
        For each other server, the most blocks that it may hold.
    """
    reach = np.arange(num_blocks + 1)
    for span in fixed:
        inside = reach[span.start : span.end]
        np.maximum(inside, span.end, out=inside)
    of_free = np.concatenate([[0], np.cumsum(np.sort(np.array(lengths, dtype=np.int64))[::-1])])
    covered = np.zeros(num_blocks + 1, dtype=np.int64)
    fewest: int | None = None
    for chosen in range(len(fixed) + 1):
        if fewest is not None and chosen >= fewest:
            break
        # What the best `chosen` of the fixed spans leave open; then the longest free servers.
        missing = num_blocks - int(covered[0])
        free = int(np.searchsorted(of_free, missing))
        if free < of_free.size and (fewest is None or chosen + free < fewest):
            fewest = chosen + free
        # From a block on, the next span chosen covers most by beginning here and reaching farthest, or later.
        more = reach - np.arange(num_blocks + 1) + covered[reach]
        more = np.maximum.accumulate(more[::-1])[::-1]
        if more[0] == covered[0]:
            break
        covered = more
    return fewest
