"""The tables of quality, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.instances import INSTANCES
from benchmarks.quality import below, label, proven
from benchmarks.runner import Row

MISSING = "–"
ROUNDING = 1e-9
"""Share by which sums of the same throughput may differ."""
BESIDE_THE_RULE = """\
### Beside the Petals rule

Bottlenecks in RPS, and blocks loaded. *Rule*: run to its end; where that is, and what is loaded on the way, chance
decides: lowest and highest bottleneck of all shuffles, and the loads of all of them together. It stands still where it
would gain less than it asks for (balance quality 0.75). *No worse*: what a plan loads that comes to each shuffle's
bottleneck at least, all together: to stay, where that does, else ours with the longest limit. *Imagined*: where the
rule's simulation comes to, each move loading a whole span, as stock servers do.

| instance | rule | loads, all | no worse: loads, all | share | ours | loads | imagined | loads |
|---|---|---|---|---|---|---|---|---|"""
TOGETHER = "churn-80x"
"""Instances that are summed up."""
BEST_KNOWN = {instance.name: instance.best_known for instance in INSTANCES}


def table(quality: dict[str, Any]) -> str:
    """All objectives in one table, a table an instance, the sources, and why some are missing."""
    rows: list[Row] = quality["rows"]
    parts = [_head(quality), _overview(quality["instances"], rows), "![quality over time](quality.svg)"]
    parts += [
        _of_one(facts, [row for row in rows if row["instance"] == facts["instance"]]) for facts in quality["instances"]
    ]
    return "\n\n".join(
        [*parts, _beside_the_rule(quality["instances"], rows), _sources(quality["sources"]), _absent(rows)]
    )


def _head(quality: dict[str, Any]) -> str:
    shuffles = quality["shuffles"]
    return f"""## Quality

Objectives in RPS, as design.md defines them: the bottleneck less what loading costs. Each competitor ran in a process
of its own, one after another, and every placement went through our validator. *Petals rule*: run to its end, every
restart loading its whole span, which its objective and its loads count; best and median of {len(shuffles)} shuffles.
*Imagined best*: where that rule's simulation would come to if everybody went on moving, loading only what is new.
Seconds and MiB of the rule are those of all its shuffles and simulations together. Seconds leave out imports; MiB is
the peak of the whole process, of which Python and the problem take about what a rule's row shows.
Threads: {quality["workers"]}, seed: {quality["seed"]}, shuffles: {shuffles[0]} to {shuffles[-1]}."""


def _overview(instances: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    labels = list(dict.fromkeys(label(row) for row in rows if row["of"] or "objective" in row))
    lines = [
        f"| instance | best known | {' | '.join(labels)} | lowest bound |",
        f"|---|---|{'---|' * (len(labels) + 1)}",
    ]
    for facts in instances:
        own = {label(row): row for row in rows if row["instance"] == facts["instance"]}
        best = max((row["objective"] for row in own.values() if _whole(row)), default=None)
        cells = [_objective(own.get(name), best) for name in labels]
        known = [_number(BEST_KNOWN.get(facts["instance"])), *cells, _number(proven(list(own.values())))]
        lines.append(f"| {facts['instance']} | {' | '.join(known)} |")
    return "\n".join(lines)


def _objective(row: Row | None, best: float | None) -> str:
    """An objective, the best in bold; one that leaves holes is not comparable and says so."""
    if row is None or "objective" not in row:
        return MISSING
    text = _number(row["objective"])
    if row["holes"]:
        return f"{text} ({row['holes']} holes)"
    return f"**{text}**" if best is not None and row["objective"] >= best - 1e-9 * abs(best) else text


def _whole(row: Row) -> bool:
    return "objective" in row and not row["holes"]


def _of_one(facts: dict[str, Any], rows: Sequence[Row]) -> str:
    bound = proven(rows)
    lines = [
        f"### {facts['instance']}",
        "",
        f"{facts['servers']:,} servers that may move, {facts['blocks']:,} blocks; the plain program has"
        f" {facts['columns']:,} columns.",
        f"Gap: to the lowest bound that any of them proved, {_number(bound)} RPS.",
        "",
        "| | bottleneck | objective | bound | gap, % | loads | seconds | MiB | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gap = below(row, bound)
        if "objective" not in row and row.get("bound") is None:
            continue
        cells = [
            _number(row.get("bottleneck")),
            _objective(row, None),
            _number(row.get("bound")),
            MISSING if gap is None else f"{100 * gap:.2f}",
            f"{row['loads']:,}" if "loads" in row else MISSING,
            f"{row['seconds']:.2f}",
            MISSING if row["memory_mib"] is None else f"{row['memory_mib']:,.0f}",
            row.get("why_not") or row["note"],
        ]
        lines.append(f"| {label(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(figure: float | None) -> str:
    return MISSING if figure is None else f"{figure:.2f}"


def _beside_the_rule(instances: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    """Bottlenecks and loads of the rule, of where its simulation would come to, and of ours with the most time."""
    lines, together = [BESIDE_THE_RULE], (0, 0)
    for facts in instances:
        name = facts["instance"]
        own = [row for row in rows if row["instance"] == name and "objective" in row]
        rule = next((row for row in own if row["competitor"] == "Petals rule" and row["of"] == "best"), None)
        imagined = next((row for row in own if row["of"] == "imagined best"), None)
        ours = max((row for row in own if row["competitor"] == "ours"), key=lambda row: row["limit"], default=None)
        if rule is None or imagined is None or ours is None:
            continue
        loads = sum(end["loads"] for end in rule["ends"])
        fewest = [no_worse(end, (facts["staying"], ours)) for end in rule["ends"]]
        ours_loads = None if None in fewest else sum(few for few in fewest if few is not None)
        if name.startswith(TOGETHER) and ours_loads is not None:
            together = (together[0] + loads, together[1] + ours_loads)
        lowest, highest = (of(end["bottleneck"] for end in rule["ends"]) for of in (min, max))
        cells = [
            name,
            f"{lowest:.2f} to {highest:.2f}" if lowest < highest else f"{lowest:.2f}",
            f"{loads:,}",
            MISSING if ours_loads is None else f"{ours_loads:,}",
            MISSING if ours_loads is None else _share(ours_loads, loads),
            f"{_bottleneck(ours)} | {ours['loads']:,}",
            f"{_bottleneck(imagined)} | {imagined['stock_loads']:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if any(facts["instance"].startswith(TOGETHER) for facts in instances):
        loads, few = together
        lines.append(f"| *{TOGETHER}… together* | | {loads:,} | {few:,} | {_share(few, loads)} | | | | |")
    return "\n".join(lines)


def no_worse(end: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> int | None:
    """The fewest loads of those plans that come to a bottleneck at least, without more holes; None if none does."""
    return min(
        (
            plan["loads"]
            for plan in plans
            if (plan["holes"], -plan["bottleneck"]) <= (end["holes"], -end["bottleneck"] * (1 - ROUNDING))
        ),
        default=None,
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else MISSING


def _bottleneck(row: Row) -> str:
    return f"{row['bottleneck']:.2f}" + (f" ({row['holes']} holes)" if row["holes"] else "")


def _sources(sources: dict[str, str]) -> str:
    return "\n".join(["### Who they are", "", *(f"- {name}: {source}" for name, source in sources.items())])


def _absent(rows: Sequence[Row]) -> str:
    """Who has no place in the tables, by reason."""
    missing: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "objective" not in row:
            missing.setdefault((label(row), row["why_not"]), []).append(row["instance"])
    if not missing:
        return ""
    lines = [f"- {name}: {why}: {', '.join(instances)}" for (name, why), instances in missing.items()]
    return "\n".join(["### Who is missing where", "", *lines])
