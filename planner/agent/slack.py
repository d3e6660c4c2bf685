"""Whether a move leaves every block with what the plan's floor asks for, counting only what is proven.

Anyone writes anything into anyone's record. So a server counts for a block only if the plan lists it, its record says
ONLINE there, and it said so itself when it was asked over libp2p; and it counts with the lesser of what it announces
and what the plan, which its operator signed, has for it. A server that the plan does not list counts nothing: nobody
who is trusted has vouched for its throughput, and it could claim any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.plan import PlannedServer
from planner.published import PublishedPlan
from planner.state import SwarmState
from planner.text import escape
from solver.problem import Span


@dataclass(frozen=True)
class Slack:
    """What a server's move under a plan would leave.

    Parameters
    ----------
    plan, row
        The plan, and what it says of the server.
    span
        What the server serves now.
    state
        The swarm as it announces itself.
    confirmed
        What peers answered that they serve; None where they did not answer or serve nothing.
    """

    plan: PublishedPlan
    row: PlannedServer
    span: Span | None
    state: SwarmState
    confirmed: Mapping[str, Span | None]

    @property
    def at_stake(self) -> tuple[int, ...]:
        """The blocks that have less after the move: those that it drops, and all where it may be slower there.

        A longer span is taken to be: mostly it is, and who says otherwise could be anybody. A shorter one is if its
        record announces more than the plan has for it; a forged record only ever keeps it where it is.
        """
        if self.span is None:
            return ()
        target = self.row.target
        announced = next((one.throughput for one in self.state.servers if one.peer_id == self.row.peer_id), 0.0)
        longer = target is not None and target.length > self.span.length
        slower = target is not None and target.length < self.span.length and self.row.throughput < announced
        return tuple(range(*self.span)) if longer or slower else outside(self.span, target)

    def announced(self) -> set[str]:
        """The other servers of the plan that announce any block at stake ONLINE: whom to ask."""
        planned, wanted = {other.peer_id for other in self.plan.servers if other is not self.row}, set(self.at_stake)
        return {one.peer_id for one in self.state.servers if one.peer_id in planned and wanted & one.serving}

    def below_floor(self, gone: frozenset[str] = frozenset()) -> str | None:
        """Which block the move would leave with too little; None if none.

        Where the plan itself ends with a hole, a block may be left without a server; else never, whatever the floor: a
        floor of 0 says that throughput does not matter, not that the model may break meanwhile.

        Parameters
        ----------
        gone
            Peers that count as being off all that the plan has them drop.
        """
        for block in self.at_stake:
            left, silent = self._left(block, gone)
            note = f"; {escape(silent[0], 128)} announces it, and does not answer for it" if silent else ""
            if not left and any(one.target is not None and block in one.target for one in self.plan.servers):
                return f"block {block} would have no server{note}"
            # The floor may be the very sum of the throughputs that stay, added in another order.
            if math.fsum(left) < self.plan.floor * (1 - 1e-9):
                rest = f"{math.fsum(left):,.2f} RPS, and the plan's floor is {self.plan.floor:,.2f}"
                return f"block {block} would be left with {rest}{note}"
        return None

    def _left(self, block: int, gone: frozenset[str]) -> tuple[list[float], list[str]]:
        """The RPS of each server that stays on a block, and who announces it but did not say so itself."""
        planned = {other.peer_id: other for other in self.plan.servers if other is not self.row}
        left = [self.row.throughput] if self.row.target is not None and block in self.row.target else []
        silent = []
        for server in self.state.servers:
            other = planned.get(server.peer_id)
            if other is None or block not in server.serving:
                continue
            answer = self.confirmed.get(server.peer_id)
            if answer is None or block not in answer:
                silent.append(server.peer_id)
            elif server.peer_id not in gone or block not in other.dropped:
                # Not more than it will have at its target, even before it is there: it may begin at any moment.
                left.append(min(server.throughput, other.throughput))
        return left, silent


def outside(span: Span | None, other: Span | None) -> tuple[int, ...]:
    """The blocks of `span` that are not in `other`, ascending."""
    return tuple(block for block in range(*span or (0, 0)) if other is None or block not in other)
