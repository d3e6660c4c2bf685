"""One process of a live benchmark, measured from inside: `read PREFIX PEER` or `publish PLAN PEER`.

Prints a line of JSON. A process a reading: its memory and the import of hivemind are those of this reading alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from planner.keys import generate
from planner.live import read_live
from planner.node import ClientNode
from planner.plan_file import load_plan
from planner.publishing import publish

TIMEOUT = 60.0

Result = TypeVar("Result")


def read(prefix: str, peer: str) -> dict[str, Any]:
    """Read a swarm."""
    import_seconds, _ = timed(lambda: import_module("hivemind"))
    imported = peak_mib()
    gets: list[int] = []
    get = ClientNode.get

    async def counted(node: ClientNode, keys: Sequence[str], timeout: float | None = None) -> Any:
        gets.append(len(keys))
        return await get(node, keys, timeout)

    ClientNode.get = counted  # type: ignore[method-assign]
    read_seconds, reading = timed(lambda: read_live(prefix, [peer], timeout=TIMEOUT))
    reading.check_whole()
    decode_seconds, state = timed(reading.state)
    return {
        "import_seconds": import_seconds,
        "read_seconds": read_seconds,
        "decode_seconds": decode_seconds,
        "tries": len(reading.tries),
        "gets": len(gets),
        "calls": reading.calls,
        "responses": reading.responses,
        "servers": len(state.servers),
        "records": len(reading.records),
        "imported_mib": imported,
        "peak_mib": peak_mib(),
    }


def put(plan: str, peer: str) -> dict[str, Any]:
    """Publish a plan, signed with a new key."""
    import_module("hivemind")
    loaded, key = load_plan(Path(plan)), generate()
    seconds, published = timed(lambda: publish(loaded, key, [peer], timeout=TIMEOUT))
    return {"publish_seconds": seconds, "envelope_bytes": len(published.envelope)}


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds that something takes, and what comes of it."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def peak_mib() -> float | None:
    """The most memory that this process has had so far, MiB; None where there is no /proc.

    Not getrusage's figure: that begins with the peak of the process which started this one.
    """
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


if __name__ == "__main__":
    print(json.dumps({"read": read, "publish": put}[sys.argv[1]](*sys.argv[2:])))
