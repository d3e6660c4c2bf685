"""What plans reach, beside the Petals rule and the best values known."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.instances import INSTANCES, Instance
from planner import SwarmState, load_state, make_plan
from planner.baseline import petals_baseline
from planner.formulate import formulate
from planner.selection import resolve_policy
from solver import Span, evaluate, simulate

SHUFFLES = range(8)


def measure(seconds: float) -> list[dict[str, Any]]:
    """One row an instance, all in this run."""
    return [_row(instance, seconds) for instance in INSTANCES]


def _row(instance: Instance, seconds: float) -> dict[str, Any]:
    state = load_state(instance.path)
    policy = replace(resolve_policy(state, instance.policy), time_limit=seconds)
    known = state.with_spans(dict(policy.spans))
    rules = [petals_baseline(known, replace(policy, seed=shuffle)) for shuffle in SHUFFLES]
    began = time.perf_counter()
    plan = make_plan(state, policy)
    return {
        "instance": instance.name,
        "servers": len(state.servers),
        "best_known": instance.best_known,
        "petals_rule_best": max(rule.objective for rule in rules),
        "petals_rule_median": statistics.median(rule.objective for rule in rules),
        "petals_rule_loads": statistics.median(rule.blocks_loaded for rule in rules),
        "petals_imagined_best": _imagined(known, policy),
        "status": plan.status,
        "bottleneck": plan.after.min_throughput,
        "objective": plan.objective.value,
        "bound": plan.objective.bound,
        "gap": plan.objective.gap,
        "blocks_loaded": plan.blocks_loaded,
        "seconds": time.perf_counter() - began,
    }


def _imagined(state: SwarmState, policy: Any) -> float:
    """Where the rule's own simulation comes to, best of the shuffles; kept blocks are not loaded anew."""
    problem = formulate(state, policy).problem
    spans = [server.current for server in problem.servers if server.current is not None]
    lengths = np.array([span.length for span in spans])
    objectives = []
    for shuffle in SHUFFLES:
        starts = simulate(
            [span.start for span in spans],
            lengths,
            [server.throughput[span.length] for server, span in zip(problem.servers, spans, strict=True)],
            problem.num_blocks,
            np.random.RandomState(shuffle),
            base=problem.base_throughput,
        )
        placement = [Span(int(start), int(start + length)) for start, length in zip(starts, lengths, strict=True)]
        objectives.append(evaluate(problem, placement).objective)
    return max(objectives)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "## Quality",
        "",
        "Objectives in RPS, as design.md defines them. *Rule*: Petals' own rule run to its end with balance quality",
        "0.75, every restart loading its whole span. *Imagined*: where that rule's simulation would come to if",
        "everybody went on moving, loading only what is new. 8 shuffles each.",
        "",
        "| instance | servers | rule: best | median | loads | imagined: best | best known | ours | bound | gap, % |"
        " bottleneck | loads | seconds | status |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['instance']} | {row['servers']} | {row['petals_rule_best']:.2f} | {row['petals_rule_median']:.2f} |"
        f" {row['petals_rule_loads']:g} | {row['petals_imagined_best']:.2f} | {row['best_known']:.2f} |"
        f" **{row['objective']:.2f}** | {row['bound']:.2f} | {100 * row['gap']:.2f} | {row['bottleneck']:.2f} |"
        f" {row['blocks_loaded']} | {row['seconds']:.1f} | {row['status']} |"
        for row in rows
    ]
    return "\n".join(lines)
