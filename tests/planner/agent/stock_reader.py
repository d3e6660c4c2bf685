"""A process that reads the swarm by Petals' own functions: ``python stock_reader.py MODEL PEER PREFIX``.

For each line on standard input it reads anew, and prints a line of JSON with what the DHT holds ("dump", raw, and
"models"), what a stock server or client makes of it ("stock"), and what a health monitor answers at /api/v1/state
("monitor"). To be started as the leader of a process group, which goes with its parent and may be killed at any time.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import hivemind  # noqa: E402  # after prepare, as petals is
import numpy as np  # noqa: E402
from petals.data_structures import ServerState  # noqa: E402
from petals.server.block_selection import choose_best_blocks, should_choose_other_blocks  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402
from petals.utils.dht import compute_spans, get_remote_module_infos  # noqa: E402

from tests.planner.agent.left_behind import go_with_parent  # noqa: E402

MODELS = "_petals.models"
VOLATILE = ("cache_tokens_left", "next_pings")
"""What a server announces anew each time."""


def main(folder: str, peer: str, prefix: str) -> None:
    num_blocks = json.loads((Path(folder) / "config.json").read_text())["num_hidden_layers"]
    uids = [f"{prefix}.{block}" for block in range(num_blocks)]
    dht = hivemind.DHT(initial_peers=[peer], client_mode=True, use_relay=False, nat_port_map=False, start=True)
    while sys.stdin.readline():
        seen = {
            **raw(dht, prefix, uids),
            "stock": stock(get_remote_module_infos(dht, uids, latest=True)),
            "monitor": monitor(dht, prefix, uids),
        }
        print(json.dumps(plain(seen)), flush=True)


def raw(dht, prefix, uids):
    found = dht.run_coroutine(partial(get_many, [*uids, MODELS]))
    records = [
        {"uid": uid, "peer_id": peer_id, "expiration": entry.expiration_time, "value": entry.value}
        for uid in uids
        for peer_id, entry in (found[uid].value if found[uid] else {}).items()
    ]
    dump = {"format": "plan-swarm.dht-dump", "version": 1, "prefix": prefix, "num_blocks": len(uids)}
    models = {name: entry.value for name, entry in (found[MODELS].value if found[MODELS] else {}).items()}
    return {"dump": {**dump, "read_at": time.time(), "records": records, "agents": []}, "models": models}


async def get_many(keys, dht, node):
    return await node.get_many(keys, math.inf)


def stock(infos):
    """What stock servers and clients see, and what servers would do about it, but for what is new each time."""
    spans = compute_spans(infos, min_state=ServerState.OFFLINE)
    would_move = {}
    for peer_id, span in spans.items():
        if span.state is not ServerState.OFFLINE:
            np.random.seed(0)  # noqa: NPY002  # what Petals draws from
            would_move[peer_id] = bool(should_choose_other_blocks(peer_id, infos, balance_quality=0.75))
    return {
        "infos": [{peer_id: _lasting(info) for peer_id, info in module.servers.items()} for module in infos],
        "spans": {
            peer_id: [span.start, span.end, span.state, _lasting(span.server_info)] for peer_id, span in spans.items()
        },
        "would_move": would_move,
        "best_blocks": [choose_best_blocks(length, infos) for length in range(1, len(infos) + 1)],
    }


def _lasting(info):
    return {name: value for name, value in asdict(info).items() if name not in VOLATILE}


def monitor(dht, prefix, uids):
    """The document of github.com/petals-infra/health.petals.dev, for a swarm whose one model it was told of."""
    read_at = time.time()
    spans = compute_spans(get_remote_module_infos(dht, uids, latest=True), min_state=ServerState.OFFLINE)
    online = [peer_id for peer_id, span in spans.items() if span.state is ServerState.ONLINE]
    reachable = dht.run_coroutine(partial(ask_all, online))
    rows, covered = [], set()
    for peer_id, span in sorted(spans.items()):
        state = span.state.name.lower() if reachable.get(peer_id, True) else "unreachable"
        if state == "online":
            covered |= set(range(span.start, span.end))
        pings = {other: seen.server_info.next_pings or {} for other, seen in spans.items()}
        row = {
            "short_peer_id": f"...{str(peer_id)[-6:]}",
            "peer_id": peer_id,
            "peer_ip_info": "unknown",
            "show_public_name": state == "online" and span.length >= 10,
            "state": state,
            "span": span,
            "adapters": [{"name": name, "short_name": name.split("/")[-1]} for name in span.server_info.adapters],
            "pings_to_me": {other: seen[str(peer_id)] for other, seen in pings.items() if str(peer_id) in seen},
        }
        if span.server_info.cache_tokens_left is not None:
            row["cache_tokens_left_per_block"] = span.server_info.cache_tokens_left // (span.length * 2)
        rows.append(row)
    report = {
        "name": f"owner/{prefix}",
        "short_name": prefix,
        "state": "healthy" if len(covered) == len(uids) else "broken",
        "server_rows": rows,
        "num_blocks": len(uids),
        "repository": f"https://huggingface.co/owner/{prefix}",
        "dht_prefix": prefix,
        "official": True,
        "limited": False,
    }
    return {
        "bootstrap_states": ["online"],
        "top_contributors": {},
        "model_reports": [report],
        "reachability_issues": [{"peer_id": peer_id, "err": ""} for peer_id, ok in reachable.items() if not ok],
        "last_updated": read_at,
        "update_period": 60,
        "update_duration": time.time() - read_at,
    }


async def ask_all(peer_ids, dht, node):
    return dict(zip(peer_ids, await asyncio.gather(*(answers(node.p2p, peer_id) for peer_id in peer_ids)), strict=True))


async def answers(p2p, peer_id):
    """Whether a server can be called; one that is about to join says that it does not know the call."""
    stub = TransformerConnectionHandler.get_stub(p2p, peer_id)
    try:
        await asyncio.wait_for(stub.rpc_info(hivemind.proto.runtime_pb2.ExpertUID()), 5)
    except Exception as error:
        return "protocol not supported" in str(error)
    return True


def plain(value):
    """What JSON can hold, written as the monitor does: no infinity, and states as words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return plain(asdict(value))
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, hivemind.PeerID):
        return value.to_base58()
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    go_with_parent()
    main(*sys.argv[1:])
