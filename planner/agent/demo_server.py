"""What the demo swarm's children do that are part of a swarm: hold its DHT, make its model, and serve its blocks.

A server is stock Petals as it is, or follows plans; both are watched alike. What they announce and which blocks they
load is told, and the loading may be slowed down.
"""

from __future__ import annotations

import os
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.agent.nursling import GO, Heard, Tell
from planner.agent.tiny_model import make_tiny_model

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
REFRESH = 2.0
"""Seconds between two looks of an agent of the demo."""
CHECK_PERIOD = 1.0
"""Mean seconds between two looks of a stock server whether it should hold other blocks."""


def make_model(tell: Tell, heard: Heard, folder: str, num_blocks: int) -> None:
    """Write the tiny model."""
    make_tiny_model(folder, num_blocks=num_blocks)
    tell("made")


def hold_the_dht(tell: Tell, heard: Heard) -> None:
    """Be the node by which all others join."""
    hivemind: Any = import_module("hivemind")
    dht = hivemind.DHT(start=True, **_network())
    tell("joined", peer_id=dht.peer_id.to_base58(), maddrs=[str(maddr) for maddr in dht.get_visible_maddrs()])
    while heard() != GO:
        pass
    dht.shutdown()


def serve(tell: Tell, heard: Heard, order: dict[str, Any]) -> None:
    """Run a server until it is to go."""
    announced = _note_announcements(order)
    _note_loads(tell, order)
    server = _following(order) if order["trust"] else _stock(order)
    maddrs = [str(maddr) for maddr in server.dht.get_visible_maddrs()]
    tell("joined", peer_id=server.dht.peer_id.to_base58(), maddrs=maddrs)

    broken = threading.Event()

    def run() -> None:
        try:
            server.run()
        except BaseException:
            broken.set()
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    told = None
    while thread.is_alive() and (said := heard()) != GO:
        if said is not None:
            server.move_to(said["start"], said["end"])
        # Petals announces ONLINE just before it can answer; `module_container` is set when it can.
        state = announced[0] if announced else None
        if state != told and (state != "online" or order["trust"] or server.module_container is not None):
            told = state
            tell(told)
    server.stop.set()
    thread.join()
    if broken.is_set():
        os._exit(1)  # its traceback is the last thing in the log
    server.shutdown()
    if announced and announced[0] != told:
        tell(announced[0])


def _note_announcements(order: dict[str, Any]) -> list[str]:
    """The state that the server announced last and the DHT took; empty before the first."""
    module: Any = import_module("planner.agent.announcer" if order["trust"] else "petals.server.server")
    declare = module.declare_active_modules
    announced: list[str] = []

    def declare_and_note(dht: Any, uids: Any, server_info: Any, *args: Any, **options: Any) -> Any:
        state = server_info.state
        stored = declare(dht, uids, server_info, *args, **options)
        if all(stored.values()):
            announced[:] = [state.name.lower()]
        return stored

    module.declare_active_modules = declare_and_note
    return announced


def _note_loads(tell: Tell, order: dict[str, Any]) -> None:
    """Tell of each block that is loaded, at the one function by which either server loads, and slow it down."""
    module: Any = import_module("planner.agent.loader" if order["trust"] else "petals.server.server")
    load = module.load_pretrained_block

    def load_slowly(model: Any, block: int, *args: Any, **options: Any) -> Any:
        time.sleep(order["seconds_per_block"])
        loaded = load(model, block, *args, **options)
        tell("loaded", block=block, at=time.monotonic())
        return loaded

    module.load_pretrained_block = load_slowly


def _following(order: dict[str, Any]) -> Any:
    """A server as ``plan-swarm serve`` has it, with what follows plans of a key."""
    from planner.agent.following import Following
    from planner.agent.server import SpanServer
    from planner.keys import PublicKey

    folder = Path(order["state"])
    folder.mkdir(parents=True)
    return SpanServer(told=Following((PublicKey.parse(order["trust"]),), folder, refresh=REFRESH), **_options(order))


def _stock(order: dict[str, Any]) -> Any:
    """A server of Petals; only that it is time for other blocks, and for which, it can be told."""
    petals: Any = import_module("petals.server.server")

    class Server(petals.Server):  # what that is, is known when it is imported
        told = False

        def move_to(self, start: int, end: int) -> None:
            self.strict_block_indices, self.told = range(start, end), True

        def _should_choose_other_blocks(self) -> bool:
            told, self.told = self.told, False
            return told

    return Server(mean_balance_check_period=CHECK_PERIOD, **_options(order))


def _options(order: dict[str, Any]) -> dict[str, Any]:
    return {
        "converted_model_name_or_path": order["model"],
        "dht_prefix": order["prefix"],
        "public_name": order["name"],
        "block_indices": f"{order['start']}:{order['end']}",
        "throughput": float(order["throughput"]),
        "balance_quality": 0.0,  # with the blocks given, twice said: a stock server never moves by itself
        "initial_peers": order["initial_peers"],
        "update_period": order["update_period"],
        "cache_dir": order["cache"],
        "device": "cpu",
        "torch_dtype": "float32",
        "num_handlers": 1,
        "skip_reachability_check": True,
        "reachable_via_relay": False,
        "use_auto_relay": False,
        **_network(),
    }


def _network() -> dict[str, Any]:
    """Nothing outside this machine is reached or reachable."""
    return {"host_maddrs": [LOOPBACK], "use_relay": False, "nat_port_map": False, "auto_nat": False}
