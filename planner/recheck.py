"""A plan's figures, worked out once more from its own servers: nobody signs a figure that was edited.

`plan_id` covers what a plan asks for, so that nobody can change that; here is the rest of what follows from it.
What rests on the state alone (how Petals' own rule ends, the bound, the seconds that a block takes) is left as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from planner.coverage import Coverage, count_hops, coverage_of, runs_of
from planner.fields import Malformed, mapping, number
from planner.plan import DEFAULT_VALIDITY, Objective, PlannedServer
from planner.published import MAX_DURATION, PublishedPlan
from planner.records import MAX_RPS
from planner.state import ServerState
from planner.text import show
from solver.problem import Span

CLOSE = 1e-9
"""Share by which sums of the same figures may differ, where they are rounded in another order."""


def recheck(plan: PublishedPlan, document: Mapping[str, Any]) -> None:
    """See whether a plan is exactly as the planner writes one.

    Parameters
    ----------
    plan
        As `planner.published.read_plan` read it.
    document
        What it was read from.

    Raises
    ------
    Malformed
        If it has a field that no plan has, lacks one, or has a figure that does not follow from the others.
    """
    schema = json.loads(files("planner").joinpath("schema/plan.schema.json").read_text("utf-8"))
    _check_fields(document, schema, schema["$defs"], "")
    _check_prover(mapping(document["objective"], "objective")["bound_by"], schema)
    _equal("epoch", plan.epoch, 0)
    _equal("valid_until", plan.valid_until, plan.created_at + DEFAULT_VALIDITY)
    for server in plan.servers:
        if not server.loaded:
            _equal(f"reload_seconds of {server.peer_id}", server.reload_seconds, 0.0)
    _check_coverage("after", plan.after, coverage_of(plan.num_blocks, map(_after, plan.servers)))
    _check_before(plan)
    _check_waves(plan)
    _check_objective(plan, document)
    asks_nothing = plan.status in ("nothing_to_do", "infeasible")
    if (plan.moves and asks_nothing) or (plan.status == "optimal" and not plan.moves):
        raise Malformed(f"status is {plan.status!r}, and {len(plan.moves)} servers move")


def _check_fields(value: object, rule: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> None:
    """See whether every object has the fields that the schema knows, and no others."""
    rule = shared[rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    if isinstance(value, dict) and "properties" in rule:
        known, of = rule["properties"], f" of {where}" if where else ""
        for name in value:
            if name not in known:
                raise Malformed(f"{show(name)}{of} is a field that no plan has")
        for name in rule["required"]:
            if name not in value:
                raise Malformed(f"{show(name)}{of} is missing")
        for name, inner in value.items():
            _check_fields(inner, known[name], shared, f"{where}.{name}" if where else name)
    elif isinstance(value, list) and isinstance(rule.get("items"), dict):
        for inner in value:
            _check_fields(inner, rule["items"], shared, where)


def _check_prover(name: object, schema: Mapping[str, Any]) -> None:
    known = schema["properties"]["objective"]["properties"]["bound_by"]["enum"]
    if name not in known:
        raise Malformed(f"objective.bound_by {show(name)} is none of {', '.join(known)}")


def _equal(name: str, stands: float | Sequence[float] | None, should: float | Sequence[float] | None) -> None:
    if stands != should:
        raise _edited(name, stands, should)


def _close(name: str, stands: float, should: float) -> None:
    if not math.isclose(stands, should, rel_tol=CLOSE, abs_tol=CLOSE):
        raise _edited(name, stands, should)


def _edited(name: str, stands: object, should: object) -> Malformed:
    return Malformed(f"{name} is {_figure(stands)}, and should be {_figure(should)}: it was changed; plan again")


def _figure(value: object) -> str:
    if value is None:
        return "null"
    return f"[{', '.join(map(str, value))}]"[:60] if isinstance(value, tuple) else str(value)


def _check_coverage(name: str, stands: Coverage, should: Coverage) -> None:
    for block, (one, other) in enumerate(zip(stands.throughput, should.throughput, strict=True)):
        _equal(f"{name}.throughput of block {block}", one, other)
    _check_sums(name, stands, should)
    _equal(f"{name}.hops", stands.hops, should.hops)


def _check_sums(name: str, stands: Coverage, should: Coverage) -> None:
    _equal(f"{name}.min_throughput", stands.min_throughput, should.min_throughput)
    _equal(f"{name}.holes", stands.holes, should.holes)
    _equal(f"{name}.bottleneck_blocks", stands.bottleneck_blocks, should.bottleneck_blocks)


def _after(server: PlannedServer) -> tuple[Iterable[int], float]:
    """The blocks that a server holds once the plan is carried out, and its RPS."""
    blocks = range(*server.target) if server.target is not None else ()
    return (blocks if server.moves else set(blocks).difference(server.offline)), server.throughput


class _Now:
    """What the servers serve now, as far as the plan tells: a joining one may serve any part of its span.

    The RPS of a server that moves to a span of another length is that of the new length, so the present one is unknown.

    Parameters
    ----------
    servers
        All of the plan's.
    without
        Whether the blocks that are dropped are left out, as while all moves run.
    """

    def __init__(self, plan: PublishedPlan, *, without_dropped: bool) -> None:
        sure: list[list[float]] = [[] for _ in range(plan.num_blocks)]
        perhaps: list[list[float]] = [[] for _ in range(plan.num_blocks)]
        online: list[Span] = []
        joining: list[Span] = []
        for server in plan.servers:
            if server.current is None:
                continue
            known = server.target is None or server.target.length == server.current.length
            dropped = server.dropped if without_dropped else ()
            blocks = set(range(*server.current)).difference(server.offline, dropped)
            (online if server.state == ServerState.ONLINE.value else joining).extend(runs_of(blocks))
            for block in blocks:
                if server.state == ServerState.ONLINE.value:
                    sure[block].append(server.throughput if known else 0.0)
                if server.state != ServerState.ONLINE.value or not known:
                    perhaps[block].append(server.throughput if known else math.inf)
        self.held = [bool(block) for block in sure]
        self.least = [math.fsum(block) for block in sure]
        self.most = [math.fsum([*one, *other]) for one, other in zip(sure, perhaps, strict=True)]
        self.doubtful = [
            not held and bool(block) and not 0 < min(block) < math.inf
            for held, block in zip(self.held, perhaps, strict=True)
        ]
        """Blocks of which nobody can tell whether they are held, where they have no throughput."""
        self.fewest_hops = count_hops(plan.num_blocks, [*online, *joining])
        self.most_hops = count_hops(plan.num_blocks, online)


def _within(name: str, stands: float, least: float, most: float) -> None:
    if least == most:
        _equal(name, stands, least)
    elif not least * (1 - CLOSE) <= stands <= most * (1 + CLOSE):
        raise _edited(name, stands, f"from {least} to {most}")


def _check_before(plan: PublishedPlan) -> None:
    now, stands = _Now(plan, without_dropped=False), plan.before
    _check_hops_before(stands.hops, now)
    covered = []
    for block, rps in enumerate(stands.throughput):
        _within(f"before.throughput of block {block}", rps, now.least[block], now.most[block])
        if now.held[block] or rps > 0:
            covered.append(block)
        elif now.doubtful[block]:
            return
    bottleneck = min((stands.throughput[block] for block in covered), default=0.0)
    weakest = tuple(b for b in covered if math.isclose(stands.throughput[b], bottleneck, rel_tol=CLOSE))
    holes = plan.num_blocks - len(covered)
    _check_sums("before", stands, Coverage(bottleneck, holes, weakest, stands.throughput, stands.hops))
    if (stands.hops is None) != (holes > 0):
        raise Malformed(
            f"before.hops is {_figure(stands.hops)}, and before.holes is {holes}: they contradict each other"
        )


def _check_hops_before(stands: int | None, now: _Now) -> None:
    if now.fewest_hops == now.most_hops:
        _equal("before.hops", stands, now.fewest_hops)
    elif stands is None:
        if now.most_hops is not None:
            raise _edited("before.hops", stands, f"at most {now.most_hops}")
    elif stands < (now.fewest_hops or 0) or (now.most_hops is not None and stands > now.most_hops):
        raise _edited("before.hops", stands, f"from {now.fewest_hops} to {now.most_hops}")


def _check_waves(plan: PublishedPlan) -> None:
    seconds = {server.peer_id: server.reload_seconds for server in plan.servers}
    for index, wave in enumerate(plan.waves):
        _equal(f"waves[{index}].seconds", wave.seconds, max(seconds[peer_id] for peer_id in wave.moves))
    if len(plan.waves) == 1:
        now, (wave,) = _Now(plan, without_dropped=True), plan.waves
        _within("waves[0].min_throughput_during", wave.min_throughput_during, min(now.least), min(now.most))


def _check_objective(plan: PublishedPlan, document: Mapping[str, Any]) -> None:
    fields, solve = document["objective"], document["solve"]
    value = number(fields["value"], "objective.value", math.inf, -math.inf)
    bound = number(fields["bound"], "objective.bound", math.inf, -math.inf)
    bottleneck = number(fields["min_throughput"], "objective.min_throughput", MAX_RPS)
    penalty = number(fields["reload_penalty"], "objective.reload_penalty", math.inf)
    horizon = number(mapping(solve["settings"], "solve.settings")["horizon"], "horizon", MAX_DURATION, 1e-9)
    _close("objective.min_throughput", bottleneck, plan.after.min_throughput)
    _close(
        "objective.reload_penalty",
        penalty,
        math.fsum(server.throughput * server.reload_seconds / horizon for server in plan.moves),
    )
    _equal("objective.value", value, bottleneck - penalty)
    if bound < value:
        raise Malformed(f"objective.bound is {bound}, below the value {value} that is reached: plan again")
    gap = number(fields["gap"], "objective.gap", math.inf)
    _equal("objective.gap", gap, Objective(value, bottleneck, penalty, bound, fields["bound_by"]).gap)
    slack = number(solve["rounding_slack"], "solve.rounding_slack", math.inf)
    if plan.status == "optimal" and bound - value > 2 * slack:
        raise Malformed(f"status is 'optimal', and objective.bound is {bound - value} RPS above objective.value")
