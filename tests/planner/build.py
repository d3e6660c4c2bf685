"""Small swarms built by hand, and a second opinion on plans.

`recount` works out everything that a plan's JSON says from the state and the policy alone, in its own words:
it uses nothing of `planner` but the frozen types that it is given, and shows that `planner.recheck` agrees.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from planner.canonical import canonical_json
from planner.plan import Plan
from planner.planning import make_plan
from planner.policy import Policy
from planner.published import read_plan
from planner.recheck import recheck
from planner.state import Agent, Server, ServerState, SwarmState
from solver.problem import Span

ROOT = Path(__file__).parents[2]
REAL = ROOT / "examples" / "llama-65b-hf.json"
SCHEMA = Draft202012Validator(json.loads(files("planner").joinpath("schema/plan.schema.json").read_text("utf-8")))
NOW = 1_700_000_000.0


def online(peer_id, start, end, throughput=10.0, **fields):
    span = Span(start, end)
    offline = frozenset(fields.get("offline", ()))
    fields = {"seen": span, "serving": frozenset(range(*span)) - offline, **fields, "offline": offline}
    return Server(peer_id, ServerState.ONLINE, span, float(throughput), **fields)


def joining(peer_id, start, end, throughput=10.0, **fields):
    return replace(online(peer_id, start, end, throughput), state=ServerState.JOINING, serving=frozenset(), **fields)


def waiting(peer_id, capacity, throughput=10.0, **fields):
    agent = Agent("waiting", capacity=capacity, **fields)
    return Server(peer_id, ServerState.WAITING, None, float(throughput), agent=agent)


def serving(**fields):
    """The record of an agent on a server that holds blocks."""
    return Agent("serving", **fields)


def swarm(*servers, num_blocks=4, warnings=()):
    return SwarmState("model", num_blocks, NOW, tuple(sorted(servers, key=lambda s: s.peer_id)), tuple(warnings))


def planned(state, now=NOW, explain=False, stop=None, **wishes):
    """The plan for a small swarm, recounted."""
    policy = Policy(**{"time_limit": 20.0, "workers": 1, **wishes})
    plan = make_plan(state, policy, now=now, explain=explain, stop=stop)
    recount(plan, state)
    return plan


def targets(plan: Plan) -> dict[str, tuple[int, int] | None]:
    return {server.peer_id: None if server.target is None else tuple(server.target) for server in plan.servers}


def moves(plan: Plan) -> dict[str, tuple[int, int] | None]:
    return {server.peer_id: None if server.target is None else tuple(server.target) for server in plan.moves}


def timeless(plan: Plan) -> str:
    """The canonical JSON of a plan without what may differ from run to run: times."""
    document = plan.to_json()
    for name in ("created_at", "valid_until"):
        del document[name]
    del document["solve"]["seconds"]
    for stage in document["solve"]["stages"]:
        del stage["seconds"]
    return canonical_json(document)


# --- the second opinion


def recount(plan: Plan, state: SwarmState) -> dict[str, Any]:
    """Check all that the JSON of `plan` says against `state`, the swarm before any span was told; the JSON."""
    document = json.loads(canonical_json(plan.to_json()))
    errors = [f"{error.json_path}: {error.message}" for error in SCHEMA.iter_errors(document)]
    assert errors == []
    _Recount(document, state, plan.search.policy).check()
    recheck(read_plan(document), document)  # nor does whoever signs it find anything wrong with it
    return document


class _Recount:
    def __init__(self, document: dict[str, Any], state: SwarmState, policy: Policy) -> None:
        self.document, self.policy, self.blocks = document, policy, state.num_blocks
        # Where the policy contradicts itself, its spans have not been taken into the state.
        contradicts_itself = document["status"] == "infeasible" and "leave out --drain" in document["warnings"][0]
        self.told = {} if contradicts_itself else dict(policy.spans)
        self.servers = {server.peer_id: server for server in state.servers}
        self.rows = {row["peer_id"]: row for row in document["servers"]}
        assert [row["peer_id"] for row in document["servers"]] == [server.peer_id for server in state.servers]
        assert (document["prefix"], document["num_blocks"]) == (state.prefix, state.num_blocks)

    def check(self) -> None:
        for peer_id, row in self.rows.items():
            self._check_row(self.servers[peer_id], row)
        self._check_coverage("before", [self._serves_now(server) for server in self.servers.values()])
        self._check_coverage("after", [self._holds_then(row) for row in self.rows.values()])
        self._check_objective()
        self._check_waves()
        self._check_identity()
        if self.document["status"] != "infeasible":
            for peer_id in self.rows:
                self._check_role(peer_id)
            self._check_limits()
            self._check_gain()

    # What the servers hold, in the words of the design

    def current(self, server: Server) -> Span | None:
        return self.told.get(server.peer_id, server.span)

    def rate(self, server: Server, length: int) -> float:
        now = self.current(server)
        if now is not None and now[1] - now[0] == length:
            return server.throughput
        table = server.agent and server.agent.throughput_by_length
        if table and length <= len(table):
            return table[length - 1]
        if now is None or server.forward_rps is None:
            return server.throughput

        def petals(n: int) -> float:
            network = math.inf if server.network_rps is None else server.network_rps
            return min(server.forward_rps * 2 / (n + 1), network * (0.2 if server.using_relay else 1))

        if petals(now[1] - now[0]) == 0:
            return server.throughput
        return petals(length) / petals(now[1] - now[0]) * server.throughput

    def seconds(self, server: Server, block: int) -> float:
        agent = server.agent or Agent("none")
        whole = self.policy.seconds_per_block
        if whole is None:
            whole = 28.0 if agent.seconds_per_block is None else agent.seconds_per_block
        if block not in agent.cached_blocks:
            return whole
        return min(whole, 7.0 if agent.seconds_per_cached_block is None else agent.seconds_per_cached_block)

    def _serves_now(self, server: Server) -> tuple[set[int], float]:
        if server.peer_id not in self.told:
            return set(server.serving), server.throughput
        told = set(range(*self.told[server.peer_id]))
        return told if server.state is ServerState.ONLINE else told & server.serving, server.throughput

    def _holds_then(self, row: dict[str, Any]) -> tuple[set[int], float]:
        server = self.servers[row["peer_id"]]
        if row["target"] is None:
            return set(), 0.0
        held = set(range(*row["target"]))
        if row["target"] == row["current"] and server.peer_id not in self.told:
            held -= server.offline
        return held, row["throughput"]

    def _throughput(self, holders: list[tuple[set[int], float]]) -> tuple[list[float], list[int]]:
        rps, replicas = [0.0] * self.blocks, [0] * self.blocks
        for held, rate in holders:
            for block in held:
                rps[block] += rate
                replicas[block] += 1
        return rps, replicas

    # The parts of the document

    def _check_row(self, server: Server, row: dict[str, Any]) -> None:
        now = set(range(*row["current"])) if row["current"] else set()
        then = set(range(*row["target"])) if row["target"] else set()
        assert row["current"] == (None if self.current(server) is None else list(self.current(server)))
        assert (row["state"], row["public_name"]) == (server.state.value, server.public_name)
        assert (row["loaded"], row["dropped"]) == (sorted(then - now), sorted(now - then))
        assert row["kept"] + len(row["loaded"]) == len(then)
        assert row["kept"] + len(row["dropped"]) == len(now)
        assert all(0 <= block < self.blocks for block in then)
        assert row["movable"] is (row["why_not"] is None)
        assert (row["wave"] is None) is (row["current"] == row["target"])
        assert row["throughput"] == pytest.approx(self.rate(server, len(then)) if then else server.throughput)
        loading = math.fsum(self.seconds(server, block) for block in row["loaded"])
        assert row["reload_seconds"] == pytest.approx(loading)

    def _hops(self, holders: list[tuple[set[int], float]]) -> int | None:
        """Servers that a request passes through when each carries it as far as any can."""
        at, hops = 0, 0
        while at < self.blocks:
            reached = at
            for held, _ in holders:
                end = at
                while end in held:
                    end += 1
                reached = max(reached, end)
            if reached == at:
                return None
            at, hops = reached, hops + 1
        return hops

    def _check_coverage(self, name: str, holders: list[tuple[set[int], float]]) -> None:
        said = self.document[name]
        rps, replicas = self._throughput(holders)
        assert said["throughput"] == pytest.approx(rps)
        assert said["holes"] == replicas.count(0)
        lowest = min((rate for rate, count in zip(rps, replicas, strict=True) if count), default=0.0)
        assert said["min_throughput"] == pytest.approx(lowest)
        weakest = [b for b in range(self.blocks) if replicas[b] and rps[b] == pytest.approx(lowest, rel=1e-8)]
        assert said["bottleneck_blocks"] == weakest
        assert said["hops"] == self._hops(holders)

    def _check_objective(self) -> None:
        said, rows = self.document["objective"], self.rows.values()
        penalty = math.fsum(row["throughput"] * row["reload_seconds"] for row in rows) / self.policy.horizon
        assert said["reload_penalty"] == pytest.approx(penalty)
        assert said["min_throughput"] == pytest.approx(self.document["after"]["min_throughput"])
        assert said["value"] == pytest.approx(said["min_throughput"] - said["reload_penalty"])
        assert said["bound"] >= said["value"]
        if said["bound"]:
            assert said["gap"] == pytest.approx((said["bound"] - said["value"]) / abs(said["bound"]))
        else:
            assert said["gap"] == (0.0 if said["value"] == 0 else 1.0)
        status, moving = self.document["status"], any(row["wave"] is not None for row in rows)
        assert moving or status != "optimal"
        assert not moving or status in ("optimal", "feasible")
        if status == "optimal":
            assert said["bound"] - said["value"] <= 2 * self.document["solve"]["rounding_slack"]

    def _check_waves(self) -> None:
        moving = [row["peer_id"] for row in self.rows.values() if row["wave"] is not None]
        assert sorted(peer for wave in self.document["waves"] for peer in wave["moves"]) == moving
        for index, wave in enumerate(self.document["waves"]):
            assert [self.rows[peer]["wave"] for peer in wave["moves"]] == [index] * len(wave["moves"])
            assert wave["seconds"] == max(self.rows[peer]["reload_seconds"] for peer in wave["moves"])
        if self.document["waves"]:
            left = []
            for peer_id, row in self.rows.items():
                held, rate = self._serves_now(self.servers[peer_id])
                left.append((held - set(row["dropped"]), rate))
            (wave,) = self.document["waves"]
            assert wave["min_throughput_during"] == pytest.approx(min(self._throughput(left)[0]))

    def _check_identity(self) -> None:
        said = self.document
        search = ("time_limit", "workers", "seed", "deterministic")
        wishes = {k: v for k, v in said["solve"]["settings"].items() if k not in search}
        asked = [[row["peer_id"], row["target"]] for row in said["servers"]]
        waves = [sorted(wave["moves"]) for wave in said["waves"]]
        whole = [1, said["prefix"], said["state_fingerprint"], wishes, asked, waves, said["floor"]]
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        assert said["plan_id"] == hashlib.sha256(text.encode()).hexdigest()[:32]
        assert said["valid_until"] == said["created_at"] + 3600.0

    # What was asked

    def role(self, peer_id: str) -> str:
        server, wishes = self.servers[peer_id], self.policy
        pins = dict(wishes.pins)
        told = peer_id in self.told
        agents_only = wishes.movable == "agents" or (
            wishes.movable is None and any(s.agent is not None for s in self.servers.values())
        )
        if peer_id in wishes.drains:
            return "empty"
        if pins.get(peer_id) is not None:
            return "pinned"
        stuck = server.state is ServerState.JOINING or (not told and (server.uncertain or server.offline))
        homeless = self.current(server) is None and not (server.agent and server.agent.capacity)
        held = server.agent is not None and server.agent.pinned
        if peer_id in pins or peer_id in wishes.cordons or stuck or homeless or held:
            return "stays"
        return "stays" if agents_only and server.agent is None else "free"

    def choices(self, peer_id: str) -> list[tuple[int, int] | None]:
        """The spans that it may take."""
        server, role = self.servers[peer_id], self.role(peer_id)
        now = self.current(server)
        if role == "empty":
            return [None]
        if role == "pinned":
            return [tuple(dict(self.policy.pins)[peer_id])]
        if role == "stays":
            return [None if now is None else tuple(now)]
        most = min(server.agent.capacity or 0, self.blocks) if server.agent is not None else 0
        present = now[1] - now[0] if now is not None else most
        lengths = {present}
        if self.policy.resize:
            most = max(most, present)
            lengths |= {length for length in range(1, most + 1) if length >= min(self.policy.min_span, most)}
        return [(start, start + n) for n in sorted(lengths) for start in range(self.blocks - n + 1)]

    def _check_role(self, peer_id: str) -> None:
        row = self.rows[peer_id]
        assert (None if row["target"] is None else tuple(row["target"])) in self.choices(peer_id)
        if self.role(peer_id) == "stays":
            assert not row["movable"]
        elif self.role(peer_id) == "free":
            assert row["movable"]

    def _has_to_move(self, peer_id: str) -> bool:
        now = self.current(self.servers[peer_id])
        return (None if now is None else tuple(now)) not in self.choices(peer_id)

    def _check_limits(self) -> None:
        must = [self.rows[peer_id] for peer_id in self.rows if self._has_to_move(peer_id)]
        moved = [row for row in self.rows.values() if row["wave"] is not None]
        if self.policy.max_moves is not None:
            assert len(moved) <= max(self.policy.max_moves, len(must))
        if self.policy.max_loads is not None:
            # Whom the limit leaves no more takes its shortest span.
            needed = sum(len(row["loaded"]) for row in must if row["current"] or not self.policy.resize)
            needed += sum(
                min(end - start for start, end in self.choices(row["peer_id"]))
                for row in must
                if self.policy.resize and not row["current"]
            )
            assert sum(len(row["loaded"]) for row in moved) <= max(self.policy.max_loads, needed)

    def _check_gain(self) -> None:
        said, staying = self.document["objective"], self.document["solve"]["staying"]
        of_choice = [row for row in self.rows.values() if row["wave"] is not None]
        of_choice = [row for row in of_choice if not self._has_to_move(row["peer_id"])]
        if self.document["after"]["holes"] < staying["holes"] or self.policy.min_replicas or self.policy.max_hops:
            return
        assert self.document["after"]["holes"] == staying["holes"]
        gain = said["value"] - staying["value"]
        assert gain >= 0
        if of_choice:
            least = max(self.policy.min_gain.rps, self.policy.min_gain.share * abs(staying["value"]))
            assert gain >= least

    # The best there is, by trying all

    def worth(self, placement: dict[str, tuple[int, int] | None]) -> tuple[int, int, float, int, int]:
        """Holes, missing replicas, objective, loads and moves of a placement."""
        holders, penalty, loads, moved = [], 0.0, 0, 0
        for peer_id, target in placement.items():
            server = self.servers[peer_id]
            now = self.current(server)
            was = set(range(*now)) if now is not None else set()
            if target == (None if now is None else tuple(now)):
                held = was if peer_id in self.told else was - server.offline
                holders.append((held, server.throughput))
                continue
            moved += 1
            if target is None:
                continue
            rate, new = self.rate(server, target[1] - target[0]), set(range(*target)) - was
            holders.append((set(range(*target)), rate))
            penalty += rate * math.fsum(self.seconds(server, block) for block in new) / self.policy.horizon
            loads += len(new)
        rps, replicas = self._throughput(holders)
        lowest = min((rate for rate, count in zip(rps, replicas, strict=True) if count), default=0.0)
        missing = sum(max(0, self.policy.min_replicas - count) for count in replicas)
        return replicas.count(0), missing, lowest - penalty, loads, moved

    def all_placements(self, most: int) -> list[dict[str, tuple[int, int] | None]] | None:
        """Every placement within roles and limits; None where there are more than `most`."""
        choices = [self.choices(peer_id) for peer_id in self.rows]
        if math.prod(map(len, choices)) > most:
            return None
        placements = [dict(zip(self.rows, chosen, strict=True)) for chosen in product(*choices)]
        must = [peer_id for peer_id in self.rows if self._has_to_move(peer_id)]
        worths = [(self.worth(placement), placement) for placement in placements]
        least_loads = self.worth(self._only(must, placements[0]))[3]
        limits = [
            (4, self.policy.max_moves, len(must)),
            (3, self.policy.max_loads, least_loads),
        ]
        return [
            placement
            for worth, placement in worths
            if all(most is None or worth[at] <= max(most, forced) for at, most, forced in limits)
        ]

    def _only(self, must: list[str], placement: dict[str, Any]) -> dict[str, Any]:
        now = {peer_id: self.current(self.servers[peer_id]) for peer_id in placement}
        return {p: t if p in must else (None if now[p] is None else tuple(now[p])) for p, t in placement.items()}


def check_against_all(plan: Plan, state: SwarmState, most: int = 3000) -> bool:
    """Compare a plan that is proven with every placement there is; False where those are too many."""
    document = json.loads(canonical_json(plan.to_json()))
    count = _Recount(document, state, plan.search.policy)
    placements = count.all_placements(most)
    if placements is None:
        return False
    got = count.worth(targets(plan))
    slack = 2 * plan.search.rounding_slack + 1e-9 * (1 + abs(got[2]))
    best = min((worth[0], worth[1], -worth[2]) for worth in map(count.worth, placements))
    assert got[:2] == best[:2]
    assert -best[2] <= plan.objective.bound + slack
    assert got[2] >= -best[2] - slack
    return True
