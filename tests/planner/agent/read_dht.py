"""A process that prints what the DHT holds of a model, raw, as a dump of one line, again and again.

``python read_dht.py MODEL PEER PREFIX``; each dump has "models" too: what `_petals.models` holds of the prefix.
To be started as the leader of a process group, which is to be killed afterwards.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from hivemind.dht.node import DHTNode

from planner.agent.compat import keep_sockets_in

MODELS = "_petals.models"


async def main(folder: str, peer: str, prefix: str) -> None:
    num_blocks = json.loads((Path(folder) / "config.json").read_text())["num_hidden_layers"]
    keep_sockets_in(tempfile.gettempdir())
    node = await DHTNode.create(initial_peers=[peer], client_mode=True, use_relay=False, nat_port_map=False)
    uids = [f"{prefix}.{block}" for block in range(num_blocks)]
    while True:
        found = await node.get_many([*uids, MODELS], float("inf"))
        records = [
            {"uid": uid, "peer_id": peer_id, "expiration": entry.expiration_time, "value": entry.value}
            for uid in uids
            for peer_id, entry in (found[uid].value if found[uid] else {}).items()
        ]
        models = found[MODELS].value if found[MODELS] else {}
        dump = {"format": "plan-swarm.dht-dump", "version": 1, "prefix": prefix, "num_blocks": num_blocks}
        dump |= {"read_at": time.time(), "records": records, "agents": []}
        print(json.dumps(dump | {"models": models[prefix].value if prefix in models else None}), flush=True)
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
