"""The first sentences of the view: what to do, what it gains, and how sure that is."""

from __future__ import annotations

from cli import words
from cli.look import Look
from planner.plan import Plan

TIE_BREAKS = frozenset({"loads", "moves", "changes", "weakest", "distance", "order"})
"""The stages that only choose among placements of one objective: a plan is the best one without their proof."""


def headline(plan: Plan, look: Look) -> str:
    """What to do and what it gains."""
    if plan.status == "infeasible":
        return "There is no plan: what is asked contradicts itself or the swarm."
    if plan.partial and not plan.moves:
        return "Nobody is moved: the swarm was read in part only."
    if not plan.moves:
        return "Nothing to do: " + _standstill(plan)
    return f"{_deeds(plan)}: {_gains(plan, look)}."


def certainty(plan: Plan) -> str:
    """How sure it is that there is nothing better; empty where the headline says so already."""
    if plan.status == "infeasible" or plan.partial:
        return ""
    if proven(plan):
        return "Proven: no placement has a better objective." if plan.moves else ""
    found = f"found in {words.duration(plan.search.seconds)}"
    left = f"{words.at_most(plan.objective.gap)} is left."
    if plan.search.interrupted:
        return f"Interrupted: the best placement {found}; {left}"
    return f"The best placement {found}, not proven; {left}" if plan.moves else f"Not proven; {left}"


def proven(plan: Plan) -> bool:
    """Whether no placement has a better objective, up to the rounding slack."""
    deciding = [stage for stage in plan.search.stages if stage.name not in TIE_BREAKS]
    return plan.status in ("optimal", "nothing_to_do") and all(stage.proven for stage in deciding)


def staying_differs(plan: Plan) -> bool:
    """Whether the swarm changes even where nobody moves: as newcomers, joining and drained servers make it."""
    now, staying = plan.before, plan.staying
    return words.rps(staying.min_throughput) != words.rps(now.min_throughput) or staying.holes != now.holes


def _standstill(plan: Plan) -> str:
    holes = f"; {words.count(plan.after.holes, 'block')} without a server" if plan.after.holes else ""
    if proven(plan):
        return f"the placement is the best one for this objective{holes}; proven."
    if plan.search.interrupted:
        return f"no better placement found before the search was stopped{holes}."
    return f"no better placement found in {words.duration(plan.search.seconds)}{holes}."


def _deeds(plan: Plan) -> str:
    placed = sum(server.current is None for server in plan.moves)
    drained = sum(server.target is None for server in plan.moves)
    moved = len(plan.moves) - placed - drained
    deeds = [
        f"{verb} {words.count(number, thing)}"
        for verb, number, thing in (
            ("move", moved, "server"),
            ("place", placed, "newcomer"),
            ("drain", drained, "server"),
        )
        if number
    ]
    text = deeds[0] if len(deeds) == 1 else f"{', '.join(deeds[:-1])} and {deeds[-1]}"
    return text[0].upper() + text[1:]


def _gains(plan: Plan, look: Look) -> str:
    before, after = plan.before, plan.after
    gains = [text for text in (_holes(before.holes, after.holes),) if text]
    what = "the bottleneck of the covered blocks" if before.holes or after.holes else "the bottleneck"
    low, high = words.rps(before.min_throughput), words.rps(after.min_throughput)
    if low == high:
        gains.append(f"{what} stays at {high} RPS")
    else:
        verb = "rises" if after.min_throughput > before.min_throughput else "falls"
        without = words.rps(plan.staying.min_throughput)
        # What newcomers, joining and drained servers change by themselves is no merit of the moves.
        apart = staying_differs(plan) and without != high
        by = f" ({without} without moves)" if apart else words.change(before.min_throughput, after.min_throughput, look)
        gains.append(f"{what} {verb} from {low} to {high} RPS{by}")
    if plan.search.policy.max_hops is not None and after.hops and after.hops != before.hops:
        gains.append(f"a request needs {words.count(after.hops, 'server')}, {before.hops or 'none'} before")
    return ", and ".join(gains)


def _holes(before: int, after: int) -> str:
    if after > before:
        return f"{words.count(after - before, 'block')} more without a server, {after} in all"
    if before and not after:
        return "the hole is closed" if before == 1 else f"all {before} holes are closed"
    if before > after:
        return f"{before - after} of {before} holes closed"
    return f"{words.count(after, 'hole')} left open" if after else ""
