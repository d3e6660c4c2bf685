"""An earlier plan as the place to go on from."""

from __future__ import annotations

from planner.errors import InputInvalid
from planner.published import PublishedPlan
from planner.state import SwarmState
from planner.text import show
from solver.problem import Span


def check_model(plan: PublishedPlan, state: SwarmState, what: str = "the plan") -> None:
    """See whether a plan is for the model of `state`; `what` is how messages call it.

    Raises
    ------
    InputInvalid
        If it has another prefix, or another number of blocks.
    """
    if (plan.prefix, plan.num_blocks) != (state.prefix, state.num_blocks):
        raise InputInvalid(
            f"{what} is for {show(plan.prefix)} of {plan.num_blocks} blocks,"
            f" and the swarm read is {show(state.prefix)} of {state.num_blocks}"
        )


def targets_under_way(previous: PublishedPlan, state: SwarmState) -> dict[str, Span | None]:
    """What the earlier plan gave each server, by peer id, whether it is there already or not.

    Raises
    ------
    InputInvalid
        If the plan is for another model.
    """
    check_model(previous, state, "the previous plan")
    return {server.peer_id: server.target for server in previous.servers}
