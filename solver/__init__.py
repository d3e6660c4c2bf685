"""Pure optimization of span placement: numpy and OR-Tools, no I/O, nothing of Petals but its rule.

Names are imported on first use, so that the Petals rule and the validator come without OR-Tools.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.petals_rule import RuleRun, Verdict, best_start, run_to_end, simulate, verdict
    from solver.problem import Limits, Placement, Problem, Progress, Server, Solution, Span, Stage, Status
    from solver.stages import Infeasible, solve
    from solver.validator import Evaluation, InvalidPlacement, evaluate

_HOME = {
    "solver.petals_rule": ("RuleRun", "Verdict", "best_start", "run_to_end", "simulate", "verdict"),
    "solver.problem": ("Limits", "Placement", "Problem", "Progress", "Server", "Solution", "Span", "Stage", "Status"),
    "solver.stages": ("Infeasible", "solve"),
    "solver.validator": ("Evaluation", "InvalidPlacement", "evaluate"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Evaluation",
    "Infeasible",
    "InvalidPlacement",
    "Limits",
    "Placement",
    "Problem",
    "Progress",
    "RuleRun",
    "Server",
    "Solution",
    "Span",
    "Stage",
    "Status",
    "Verdict",
    "best_start",
    "evaluate",
    "run_to_end",
    "simulate",
    "solve",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
