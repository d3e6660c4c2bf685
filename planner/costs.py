"""What it costs a server to load blocks."""

from __future__ import annotations

from planner.policy import DEFAULT_SECONDS_PER_BLOCK, DEFAULT_SECONDS_PER_CACHED_BLOCK, Policy
from planner.state import Server


def load_seconds(server: Server, policy: Policy, num_blocks: int) -> tuple[float, ...]:
    """Seconds in which `server` loads each block of the model, shape ``(num_blocks,)``.

    A block that is not in its disk cache takes the operator's figure, else what its agent measured, else
    `DEFAULT_SECONDS_PER_BLOCK`. A cached one takes what its agent measured for such, else
    `DEFAULT_SECONDS_PER_CACHED_BLOCK`, but never longer than one that is not cached.
    """
    agent = server.agent
    measured = agent.seconds_per_block if agent is not None else None
    seconds = _first(policy.seconds_per_block, measured, DEFAULT_SECONDS_PER_BLOCK)
    if agent is None:
        return (seconds,) * num_blocks
    cached = min(seconds, _first(agent.seconds_per_cached_block, DEFAULT_SECONDS_PER_CACHED_BLOCK))
    return tuple(cached if block in agent.cached_blocks else seconds for block in range(num_blocks))


def _first(*figures: float | None) -> float:
    """The first figure that is known."""
    return next(figure for figure in figures if figure is not None)
