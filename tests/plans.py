"""Plans for the tests of what is published: small ones made by hand, and their documents to spoil."""

from __future__ import annotations

import copy
import functools
import json

from planner import Policy, load_state, make_plan
from planner.plan import identify
from planner.published import PublishedPlan, read_plan
from solver.problem import Span

NOW = 1_700_000_000.0
PREFIX = "m"


def dump(*servers, num_blocks=4, agents=(), read_at=NOW, info=None):
    """A dump of servers (peer id, start, end, throughput), each stating its span."""
    return {
        "format": "plan-swarm.dht-dump",
        "version": 1,
        "prefix": PREFIX,
        "num_blocks": num_blocks,
        "read_at": read_at,
        "records": [
            {
                "uid": f"{PREFIX}.{block}",
                "peer_id": peer_id,
                "expiration": read_at + 100,
                "value": [2, rps, {"start_block": start, "end_block": end, **(info or {})}],
            }
            for peer_id, start, end, rps in servers
            for block in range(start, end)
        ],
        "agents": [{"peer_id": peer_id, "expiration": read_at + 100, "value": value} for peer_id, value in agents],
    }


SERVERS = (("a", 0, 2, 10.0), ("b", 0, 2, 10.0), ("c", 0, 2, 10.0), ("d", 2, 4, 5.0))
"""Two of a, b, c are too many on blocks 0 and 1: one of them moves to 2:4."""


def swarm(*servers, **changes):
    return load_state(dump(*(servers or SERVERS), **changes))


@functools.cache
def _document() -> str:
    return json.dumps(make_plan(swarm(), Policy(time_limit=5.0, workers=1), now=NOW).to_json())


def document(**changes):
    """A plan's document in which one server moves, with `changes` at its top; its id is left as it was."""
    fields = json.loads(_document())
    fields.update(copy.deepcopy(changes))
    return fields


def identified(fields):
    """The same document with the id of what it now asks for."""
    span = lambda value: None if value is None else Span(*value)  # noqa: E731
    fields["plan_id"] = identify(
        fields["prefix"],
        fields["state_fingerprint"],
        fields["solve"]["settings"],
        [(server["peer_id"], span(server["target"])) for server in fields["servers"]],
        [wave["moves"] for wave in fields["waves"]],
        fields["floor"],
    )
    return fields


def plan(**changes) -> PublishedPlan:
    return read_plan(identified(document(**changes)))
