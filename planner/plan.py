"""A plan: a placement with its moves, cost and proof, as a frozen value and as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.canonical import canonical_json
from planner.coverage import Coverage
from planner.policy import SEARCH_FIELDS, Policy
from solver.problem import Span, Stage

FORMAT, VERSION = "plan-swarm.plan", 1
DEFAULT_VALIDITY = 3600.0
"""Seconds for which a plan is valid."""

PARTIAL_READING = "partial reading"
"""Why a server does not move where keys are likely to be missing: what looks like a better place may be none."""

PlanStatus = Literal["optimal", "feasible", "nothing_to_do", "infeasible"]


@dataclass(frozen=True)
class Objective:
    """The objective of design, in RPS: ``value = min_throughput - reload_penalty <= bound``.

    `bound_by` names what proved the bound, as `solver.problem.Solution` does.
    """

    value: float
    min_throughput: float
    reload_penalty: float
    bound: float
    bound_by: str

    @property
    def gap(self) -> float:
        """``(bound - value) / |bound|``; 0 where both are 0."""
        return 0.0 if self.bound == self.value else (self.bound - self.value) / abs(self.bound) if self.bound else 1.0


@dataclass(frozen=True)
class PlannedServer:
    """What a plan says of one server.

    `throughput` is RPS per block at the target (at the present span where there is no target);
    `current` is None for a newcomer, `target` for a drained server or one that goes on waiting;
    `loaded` and `dropped` are the blocks' numbers, `kept` counts; `wave` is the index into `Plan.waves`;
    `offline` are the blocks of its present span that it has taken offline itself.
    """

    peer_id: str
    public_name: str | None
    movable: bool
    why_not: str | None
    state: str
    throughput: float
    current: Span | None
    target: Span | None
    loaded: tuple[int, ...]
    dropped: tuple[int, ...]
    kept: int
    reload_seconds: float
    wave: int | None = None
    after: tuple[str, ...] = ()
    offline: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether its span changes."""
        return self.current != self.target


@dataclass(frozen=True)
class Wave:
    """Moves that run at the same time.

    `min_throughput_during` is the bottleneck (RPS, 0 if a block is lost) while all of them run by servers that
    load incrementally: kept blocks count, dropped and not yet loaded ones don't. `seconds` is the longest load.
    """

    moves: tuple[str, ...]
    min_throughput_during: float
    seconds: float


@dataclass(frozen=True)
class Baseline:
    """Petals' own rule, run to its end on the same state.

    `blocks_loaded` and the penalty inside `objective` count the whole span of each server at each of its
    moves, as stock servers reload everything.
    """

    min_throughput: float
    holes: int
    objective: float
    blocks_loaded: int
    servers_moved: int
    rounds: int
    settled: bool
    rule: str = "petals"


@dataclass(frozen=True)
class Explanation:
    """Why a server stays or goes: its best alternative and what that would change.

    Parameters
    ----------
    alternative
        Its target in the best plan found in which it does the opposite; None where there is no such plan.
    objective_change, min_throughput_change
        RPS by which that plan differs from the plan explained; negative is worse.
    blocks_loaded_change
        Blocks that it loads more.
    proven
        Whether that plan is proven the best of its kind.
    petals_rule
        What Petals' own rule says to this server in this state.
    reason
        One sentence.
    """

    peer_id: str
    alternative: Span | None
    objective_change: float | None
    min_throughput_change: float | None
    blocks_loaded_change: int | None
    proven: bool
    petals_rule: str | None
    reason: str


@dataclass(frozen=True)
class Staying:
    """The best placement that moves nobody but newcomers (and whom the operator drains or pins elsewhere).

    It is what a plan's gain is measured against.
    """

    value: float
    min_throughput: float
    holes: int


@dataclass(frozen=True)
class Search:
    """How the plan was found."""

    seconds: float
    workers: int
    seed: int
    policy: Policy
    stages: tuple[Stage, ...]
    scale: float
    rounding_slack: float
    interrupted: bool = False


class MovesOf:
    """What follows from a plan's servers, whether it was just made or read back."""

    servers: tuple[PlannedServer, ...]

    @property
    def moves(self) -> tuple[PlannedServer, ...]:
        """The servers whose span changes, by peer id."""
        return tuple(server for server in self.servers if server.moves)

    @property
    def partial(self) -> bool:
        """Whether servers stay because the reading was partial."""
        return any(server.why_not == PARTIAL_READING for server in self.servers)


@dataclass(frozen=True)
class Plan(MovesOf):
    """A placement with its moves, order, cost and proof."""

    prefix: str
    num_blocks: int
    created_at: float
    status: PlanStatus
    state_fingerprint: str
    before: Coverage
    after: Coverage
    staying: Staying
    objective: Objective
    servers: tuple[PlannedServer, ...]
    waves: tuple[Wave, ...]
    baseline: Baseline
    warnings: tuple[str, ...]
    search: Search
    explanations: tuple[Explanation, ...] = ()
    epoch: int = 0
    floor: float = 0.0
    validity: float = DEFAULT_VALIDITY

    @property
    def blocks_loaded(self) -> int:
        """Blocks that all moves load together."""
        return sum(len(server.loaded) for server in self.servers)

    @property
    def gain(self) -> float:
        """RPS by which the objective exceeds that of staying."""
        return self.objective.value - self.staying.value

    @property
    def plan_id(self) -> str:
        """Hash of what the plan asks for: prefix, fingerprint, policy, targets and waves; no times or bounds."""
        targets = [(server.peer_id, server.target) for server in self.servers]
        waves = [wave.moves for wave in self.waves]
        settings = self.search.policy.to_json()
        return identify(self.prefix, self.state_fingerprint, settings, targets, waves, self.floor)

    def to_json(self) -> dict[str, Any]:
        """The plan as the JSON document of `planner/schema/plan.schema.json`."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "plan_id": self.plan_id,
            "prefix": self.prefix,
            "num_blocks": self.num_blocks,
            "created_at": self.created_at,
            "valid_until": self.created_at + self.validity,
            "epoch": self.epoch,
            "floor": self.floor,
            "status": self.status,
            "state_fingerprint": self.state_fingerprint,
            "before": _coverage(self.before),
            "after": _coverage(self.after),
            "objective": {
                "value": self.objective.value,
                "min_throughput": self.objective.min_throughput,
                "reload_penalty": self.objective.reload_penalty,
                "bound": self.objective.bound,
                "bound_by": self.objective.bound_by,
                "gap": self.objective.gap,
            },
            "servers": [_server(server) for server in self.servers],
            "waves": [
                {
                    "moves": list(wave.moves),
                    "min_throughput_during": wave.min_throughput_during,
                    "seconds": wave.seconds,
                }
                for wave in self.waves
            ],
            "baseline": vars(self.baseline).copy(),
            "warnings": list(self.warnings),
            "solve": {
                "seconds": self.search.seconds,
                "workers": self.search.workers,
                "seed": self.search.seed,
                "interrupted": self.search.interrupted,
                "staying": vars(self.staying).copy(),
                "stages": [vars(stage).copy() for stage in self.search.stages],
                "scale": self.search.scale,
                "rounding_slack": self.search.rounding_slack,
                "settings": self.search.policy.to_json(),
            },
        }
        if self.explanations:
            document["explanations"] = [
                {**vars(explanation), "alternative": _span(explanation.alternative)}
                for explanation in self.explanations
            ]
        return document


def identify(
    prefix: str,
    fingerprint: str,
    settings: Mapping[str, Any],
    targets: Iterable[tuple[str, Span | None]],
    waves: Iterable[Iterable[str]],
    floor: float,
) -> str:
    """The id of a plan, from what its JSON document holds as well.

    Parameters
    ----------
    settings
        The policy as JSON; how to search does not enter.
    targets
        Peer ids with their targets, ascending by peer id.
    waves
        The peers that move in each wave.
    floor
        RPS.
    """
    policy = {name: value for name, value in settings.items() if name not in SEARCH_FIELDS}
    spans = [[peer_id, _span(target)] for peer_id, target in targets]
    orders = [sorted(moves) for moves in waves]
    text = canonical_json([VERSION, prefix, fingerprint, policy, spans, orders, floor])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _span(span: Span | None) -> list[int] | None:
    return None if span is None else [span.start, span.end]


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "min_throughput": coverage.min_throughput,
        "holes": coverage.holes,
        "bottleneck_blocks": list(coverage.bottleneck_blocks),
        "throughput": list(coverage.throughput),
        "hops": coverage.hops,
    }


def _server(server: PlannedServer) -> dict[str, Any]:
    document = {
        "peer_id": server.peer_id,
        "public_name": server.public_name,
        "movable": server.movable,
        "why_not": server.why_not,
        "state": server.state,
        "throughput": server.throughput,
        "current": _span(server.current),
        "target": _span(server.target),
        "loaded": list(server.loaded),
        "dropped": list(server.dropped),
        "kept": server.kept,
        "reload_seconds": server.reload_seconds,
        "wave": server.wave,
        "after": list(server.after),
    }
    return {**document, "offline": list(server.offline)} if server.offline else document
