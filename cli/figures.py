"""The figures of a plan: now, planned, and what Petals' own rule would reach, side by side."""

from __future__ import annotations

from rich.text import Text

from cli import table, words
from cli.look import Look
from cli.sentence import proven, staying_differs
from planner.plan import Plan

NEGLIGIBLE = 1e-5
"""A gap that is shown as none where the plan is proven."""
PROOFS = {
    "sweep": "proven by a sweep",
    "branching": "proven by branch and bound",
    "only placement": "the only placement",
}
"""What proved a bound, where its name alone would not read well."""


def figures(plan: Plan, look: Look) -> list[Text]:
    """A compact block of numbers, and below it where the bottleneck is and what is proven."""
    now, staying, after, rule = plan.before, plan.staying, plan.after, plan.baseline
    apart = staying_differs(plan)
    seconds = [server.reload_seconds for server in plan.servers]
    none = look.dash
    rows = [
        (
            "bottleneck, RPS",
            words.rps(now.min_throughput),
            words.rps(staying.min_throughput),
            words.rps(after.min_throughput),
            words.rps(rule.min_throughput),
        ),
        ("holes", str(now.holes), str(staying.holes), str(after.holes), str(rule.holes)),
        (
            "reload penalty, RPS",
            none,
            none if apart else "0.00",
            words.rps(plan.objective.reload_penalty),
            words.rps(max(0.0, rule.min_throughput - rule.objective)),
        ),
        (
            "objective, RPS",
            none if apart else words.rps(staying.value),
            words.rps(staying.value),
            words.rps(plan.objective.value),
            words.rps(rule.objective),
        ),
        ("servers moved", none, none, str(len(plan.moves)), str(rule.servers_moved)),
        ("blocks loaded", none, none, str(plan.blocks_loaded), str(rule.blocks_loaded)),
        ("longest load", none, none, words.duration(max(seconds, default=0.0)), none),
        ("all loads together", none, none, words.duration(sum(seconds)), none),
    ]
    if not (now.holes or staying.holes or after.holes or rule.holes):
        del rows[1]
    label, first, still, planned, petals = (list(column) for column in zip(*rows, strict=True))
    columns = [
        table.Column("", label, shrinks_to=12),
        table.Column("now", first, right=True),
        *([table.Column("without moves", still, right=True, drop=2)] if apart else []),
        table.Column("plan", planned, right=True, style="bold"),
        table.Column("Petals' rule", petals, right=True, drop=1),
    ]
    return [*table.render(columns, look), Text(""), *_where(plan, look), *_proof(plan, look)]


def _where(plan: Plan, look: Look) -> list[Text]:
    now = words.blocks(plan.before.bottleneck_blocks, look)
    after = words.blocks(plan.after.bottleneck_blocks, look)
    places = f"blocks {now}" + (f" now, {after} in the plan" if after != now else "")
    return [*_item("bottleneck", places, look), *_item("path", _path(plan), look)]


def _path(plan: Plan) -> str:
    """Through how many servers a request passes on the shortest chain."""
    now, after = (words.count(hops, "server") if hops else "" for hops in (plan.before.hops, plan.after.hops))
    if now == after:
        return f"a request needs {now}" if now else "no request can pass, as there are holes"
    if not after:
        return f"a request needs {now} now; in the plan none can pass, as there are holes"
    if not now:
        return f"no request can pass now; in the plan it needs {after}"
    return f"a request needs {now} now, {plan.after.hops} in the plan"


def _proof(plan: Plan, look: Look) -> list[Text]:
    if plan.status == "infeasible" or plan.partial:
        return []
    # A proven plan's bound still lies above it by the rounding slack.
    gap = 0.0 if proven(plan) and plan.objective.gap < NEGLIGIBLE else plan.objective.gap
    how = PROOFS.get(plan.objective.bound_by, f"proven by {look.safe(plan.objective.bound_by)}")
    bound = f"no objective exceeds {words.rps(plan.objective.bound)} RPS (gap {words.percent(gap)}), {how}"
    lines = _item("bound", bound, look)
    if not plan.baseline.settled:
        lines += _item("Petals' rule", f"still moves servers after {words.count(plan.baseline.rounds, 'round')}", look)
    return lines


def _item(name: str, text: str, look: Look) -> list[Text]:
    return look.wrap(text, first=f"{name:<12}  ", later=" " * 14)
