"""Plan which server of a Petals swarm holds which blocks.

>>> from planner import load_state, make_plan
>>> state = load_state("examples/llama-65b-hf.json")
>>> plan = make_plan(state)
>>> plan.status
'nothing_to_do'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from planner.errors import PlanSwarmError
from planner.plan import Plan
from planner.policy import MinGain, Policy
from planner.state import SwarmState
from solver.problem import Span

if TYPE_CHECKING:
    from planner.planning import make_plan
    from planner.reading import load_state

__all__ = ["MinGain", "Plan", "PlanSwarmError", "Policy", "Span", "SwarmState", "load_state", "make_plan"]

# Imported when first asked for: planning needs OR-Tools, which takes long to import and is not on every server.
_LAZY = {"load_state": "planner.reading", "make_plan": "planner.planning"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
