"""Those that place servers, all by one interface: what rules do, what general solvers find, and ours."""

from __future__ import annotations

from benchmarks.competitors import equal_stages, exo, highs, ours, parallax, petals_rule, plain_cpsat
from benchmarks.competitors.answer import Answer, Charged, Competitor, DoesNotApply, Moment, Rule, Task

__all__ = ["COMPETITORS", "OURS", "Answer", "Charged", "Competitor", "DoesNotApply", "Moment", "Rule", "Task"]

OURS = Competitor("ours", ours.answer, "`solver.solve`", limited=True)

COMPETITORS = (
    Competitor(
        "Petals rule",
        petals_rule.answer,
        "`petals.server.block_selection`, Petals 2.2.0.post1: run to its end with balance quality 0.75, 8 shuffles",
        stock=True,
    ),
    Competitor(
        "equal stages",
        equal_stages.answer,
        "SWARM parallelism, Ryabinin et al., ICML 2023 (arXiv 2301.11913), adaptive swarm rebalancing",
    ),
    Competitor(
        "exo",
        exo.answer,
        "exo-explore/exo, `exo/topology/ring_memory_weighted_partitioning_strategy.py` and"
        " `src/exo/master/placement_utils.py`",
    ),
    Competitor(
        "Parallax",
        parallax.answer,
        "GradientHQ/parallax, `src/scheduling/layer_allocation.py` (arXiv 2509.26182)",
    ),
    Competitor("HiGHS", highs.answer, "highspy on the plain integer program of `columns.py`", limited=True),
    Competitor("CP-SAT, plain", plain_cpsat.answer, "OR-Tools on the same, with its own settings", limited=True),
    OURS,
)
