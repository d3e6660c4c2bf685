"""Warnings of a reading, collected: one line each, in a fixed order, and never a flood."""

from __future__ import annotations

from collections.abc import Iterable

from planner.records import Rejection
from planner.text import some

MAX_DROPPED_LINES = 20
"""Lines of warnings for dropped records: anyone may write any number of bad ones."""

_Reason = tuple[str | None, str, str]


class Notes:
    """What was dropped or is doubtful.

    A warning that concerns a peer starts with its peer id and a colon. What concerns servers that are planned
    has a line each; records dropped for the same reason share one, and only some of those lines are kept.
    """

    def __init__(self, notes: Iterable[str] = (), rejections: Iterable[Rejection] = ()) -> None:
        self._notes = set(notes)
        self._dropped: dict[_Reason, int] = {}
        self._blocks: dict[_Reason, set[int]] = {}
        for rejection in rejections:
            self.drop(rejection)

    def add(self, peer_id: str | None, text: str) -> None:
        """Warn of something doubtful about a peer, or, where `peer_id` is None, about the whole reading."""
        self._notes.add(text if peer_id is None else f"{peer_id}: {text}")

    def drop(self, rejection: Rejection) -> None:
        """Warn that a record was dropped."""
        reason = (rejection.peer_id, rejection.what, rejection.reason)
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        if rejection.block is not None:
            self._blocks.setdefault(reason, set()).add(rejection.block)

    def lines(self) -> tuple[str, ...]:
        """All warnings, sorted; a last line counts the dropped records that have none."""
        counts = {self._line(reason, count): count for reason, count in self._dropped.items()}
        shown = sorted(counts)[:MAX_DROPPED_LINES]
        left = sum(counts.values()) - sum(counts[line] for line in shown)
        return (*sorted(self._notes.union(shown)), *([f"... and {left:,} more dropped records"] if left else []))

    def _line(self, reason: _Reason, count: int) -> str:
        peer_id, what, why = reason
        if peer_id is None:
            return f"dropped {f'a {what}' if count == 1 else f'{count:,} {what}s'}: {why}"
        blocks = self._blocks.get(reason)
        where = f" of {blocks_text(blocks)}" if blocks else ""
        return f"{peer_id}: dropped its {what if count == 1 else f'{what}s'}{where}: {why}"


def blocks_text(blocks: Iterable[int]) -> str:
    """``block 3``, or ``blocks 3, 4, 5, 6, 7 and 2 more``."""
    numbers = sorted(set(blocks))
    return f"{'block' if len(numbers) == 1 else 'blocks'} {some(numbers)}"
