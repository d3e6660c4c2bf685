"""A real server that changes its span, told what to do by lines of JSON: ``python -m benchmarks.span_server OPTIONS``.

OPTIONS is JSON: the model's folder, the first span, what it runs on. Every line in is a command, and every line out an
answer; to be started as the leader of a process group, which is to be killed afterwards.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import tempfile
import threading
import time
from typing import Any

import psutil

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

from petals.utils.convert_block import QuantType  # noqa: E402  # after prepare

from benchmarks.talking import PREFIX  # noqa: E402
from planner.agent import span_change  # noqa: E402
from planner.agent.following import Following  # noqa: E402
from planner.agent.loader import Loaded  # noqa: E402
from planner.agent.server import Manner, SpanServer  # noqa: E402
from solver.problem import Span  # noqa: E402


class Subject:
    """The server, what it holds, and what its loader is asked for."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.server = SpanServer(
            told=self.told(options),
            identity_path=options.get("identity"),
            converted_model_name_or_path=options["model"],
            dht_prefix=PREFIX,
            block_indices=options.get("blocks"),
            num_blocks=options.get("num_blocks"),
            throughput=100.0,
            balance_quality=0.0,
            initial_peers=options.get("initial_peers", []),
            update_period=options.get("update_period", 5),
            cache_dir=os.path.join(tempfile.gettempdir(), "cache"),
            device=options.get("device", "cpu"),
            torch_dtype=options.get("torch_dtype", "float32"),
            quant_type=QuantType[options.get("quant_type", "none").upper()],
            num_handlers=options.get("num_handlers", 2),
            skip_reachability_check=True,
            reachable_via_relay=options.get("relayed", False),
            use_relay=False,
            use_auto_relay=False,
            nat_port_map=False,
            auto_nat=False,
            host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        )
        self.loads: list[int] = []
        self.events: list[tuple[float, str]] = []
        self.pause = 0.0
        self._load, self.server.loader.load = self.server.loader.load, self.load  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()

    def told(self, options: dict[str, Any]) -> Following | None:
        """What the server follows."""
        return None

    def load(self, block: int) -> Loaded:
        self.loads.append(block)
        self.events.append((time.time(), f"load {block}, alive {self.alive()}"))
        time.sleep(self.pause)
        return self._load(block)

    def alive(self) -> list[int]:
        """The blocks of the model whose parameters are in memory, wherever."""
        blocks = {id(module): block for block, module in self.server.parts.held().items()}
        kind = type(next(iter(self.server.parts.slots)).shell)
        found = [one for one in gc.get_objects() if type(one) is kind and one is not self.server.parts.slots[0].shell]
        return sorted(blocks.get(id(one), -1) for one in found)

    @staticmethod
    def descriptors(process: psutil.Process) -> int:
        """Some are of requests that are just being answered: the least of several counts is what stays."""
        time.sleep(0.01)
        return process.num_fds()

    def look(self) -> dict[str, Any]:
        process, server = psutil.Process(), self.server
        span = server.span
        return {
            "span": None if span is None else list(span),
            "loads": self.loads,
            "events": self.events,
            "alive": self.alive(),
            "addresses": {
                block: [parameter.data_ptr() for parameter in module.parameters()]
                for block, module in server.parts.held().items()
            },
            "fds": min(self.descriptors(process) for _ in range(8)),
            "threads": process.num_threads(),
            "rss": process.memory_info().rss,
            "children": sorted(child.name() for child in process.children(recursive=True)),
            "handlers": [handler.pid for handler in server.parts.handlers],
            "said": server.record(),
            "cache_left": server.parts.cache.bytes_left,
            "cache_tensors": len(server.parts.cache._allocated_tensors),
            "dht": server.dht.pid,
            "peer_id": server.dht.peer_id.to_base58(),
            "maddrs": [str(maddr) for maddr in server.dht.get_visible_maddrs()],
        }

    def change(self, target: list[int] | None, drain_timeout: float = 5.0) -> dict[str, Any]:
        self.server.manner = Manner(drain_timeout=drain_timeout)
        changed = self.server.change_to(None if target is None else Span(*target))
        return dataclasses.asdict(changed)

    def do(self, do: str, **more: Any) -> Any:
        match do:
            case "look":
                return self.look()
            case "change":
                return self.change(**more)
            case "set":
                self.pause, span_change.GRACE, span_change.OFFLINE_SECONDS = (
                    more["pause"],
                    more["grace"],
                    more["offline"],
                )
            case "stop":
                self.server.shutdown()
            case _:
                raise ValueError(do)
        return None


def main(kind: type[Subject] = Subject) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Petals prints is no answer
    subject = kind(json.loads(sys.argv[1]))
    for line in os.fdopen(os.dup(0)):  # as a fork would wait for sys.stdin, which is being read
        command = json.loads(line)
        try:
            answer = {"answer": subject.do(**command)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
        if command["do"] == "stop":
            break
    os._exit(0)


if __name__ == "__main__":
    main()
