"""The instances, with the best objective known for each (RPS, as design.md defines it) and its source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner import Policy
from solver import Span

DATA = Path(__file__).parent / "data"
REAL = DATA.parent.parent / "examples" / "llama-65b-hf.json"


@dataclass(frozen=True)
class Instance:
    """A dump with the policy it is planned under."""

    name: str
    path: Path
    policy: Policy
    best_known: float | None


INSTANCES = (
    Instance("llama-65b-hf", REAL, Policy(), 2899.81),
    Instance("llama-65b-hf, server4=21:40", REAL, Policy(spans=(("server4", Span(21, 40)),)), 2863.96),
    Instance("llama-65b-hf, server4=20:40", REAL, Policy(spans=(("server4", Span(20, 40)),)), 2899.81),
    Instance("churn-80x10-1", DATA / "churn-80x10-1.json", Policy(), 1115.08),
    Instance("churn-80x20-2", DATA / "churn-80x20-2.json", Policy(), 7098.8),
    Instance("churn-80x50-3", DATA / "churn-80x50-3.json", Policy(), 15045.5),
    Instance("churn-80x100-4", DATA / "churn-80x100-4.json", Policy(), 25386.8),
)
