"""What every block has at any moment, by Petals' own functions: ``python floor_watch.py MODEL PEER PREFIX``.

Again and again it reads who announces which block ONLINE, and asks each of them for it. For each line on standard input
it prints, of all that was seen since the line before, how often it has looked, and the least RPS that each block had in
servers that answered. To be started as the leader of a process group.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import hivemind  # noqa: E402  # after prepare, as petals is
from hivemind.proto.runtime_pb2 import ExpertUID  # noqa: E402
from petals.data_structures import ServerState  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402
from petals.utils.dht import get_remote_module_infos  # noqa: E402

from tests.planner.agent.left_behind import go_with_parent  # noqa: E402


def main(folder: str, peer: str, prefix: str) -> None:
    num_blocks = json.loads((Path(folder) / "config.json").read_text())["num_hidden_layers"]
    uids = [f"{prefix}.{block}" for block in range(num_blocks)]
    dht = hivemind.DHT(initial_peers=[peer], client_mode=True, use_relay=False, nat_port_map=False, start=True)
    seen: list[list[float]] = []

    def watch() -> None:
        while True:
            seen.append(look(dht, uids))
            time.sleep(0.5)

    threading.Thread(target=watch, daemon=True).start()
    while sys.stdin.readline():
        looks, seen[:] = [*seen], []
        print(json.dumps({"looks": len(looks), "least": [*map(min, zip(*looks, strict=True))]}), flush=True)


def look(dht, uids: list[str]) -> list[float]:
    """The RPS of each block, in servers that announce it ONLINE and answer for it."""
    infos = get_remote_module_infos(dht, uids, latest=True)
    online = [
        (uid, peer_id, server.throughput)
        for uid, info in zip(uids, infos, strict=True)
        for peer_id, server in (info.servers.items() if info is not None else ())
        if server.state is ServerState.ONLINE
    ]
    answered = dht.run_coroutine(partial(ask_all, asked=[(uid, peer_id) for uid, peer_id, _ in online]))
    return [sum(rps for (one, _, rps), yes in zip(online, answered, strict=True) if yes and one == uid) for uid in uids]


async def ask_all(_dht, node, asked) -> list[bool]:
    """In the DHT's process: who answers for what it announces."""

    async def ask(uid: str, peer_id) -> bool:
        stub = TransformerConnectionHandler.get_stub(node.protocol.p2p, peer_id)
        try:
            await stub.rpc_info(ExpertUID(uid=uid), timeout=10)
        except Exception:
            return False
        return True

    return await asyncio.gather(*(ask(*one) for one in asked))


if __name__ == "__main__":
    go_with_parent()
    main(*sys.argv[1:])
