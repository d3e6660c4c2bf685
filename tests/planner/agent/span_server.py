"""The server of `benchmarks.span_server`, whose loads may fail and whose parts may die, and which may remember."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch

from benchmarks.span_server import Subject, main
from planner.agent.following import Following
from planner.agent.loader import Loaded
from planner.keys import PublicKey


class Victim(Subject):
    def __init__(self, options: dict[str, Any]) -> None:
        self.failures = dict[int, int]()
        self.spoiled: int | None = None
        super().__init__(options)

    def told(self, options: dict[str, Any]) -> Following | None:
        """It trusts nobody, unless it is told whom; where it is it knows after its end."""
        trusted = tuple(map(PublicKey.parse, options.get("trusted", ())))
        return Following(trusted, Path(options["state"])) if "state" in options else None

    def load(self, block: int) -> Loaded:
        if self.failures.get(block, 0) > 0:
            self.failures[block] -= 1
            raise OSError(28, "No space left on device")
        loaded = super().load(block)
        if block == self.spoiled:
            weight = next(loaded.module.parameters())
            weight.data = torch.zeros(1, 1)
        return loaded

    def do(self, do: str, **more: Any) -> Any:
        match do:
            case "begin":
                threading.Thread(target=self.change, kwargs=more, daemon=True).start()
            case "fail":
                self.failures[more["block"]] = more["times"]
            case "spoil":
                self.spoiled = more["block"]
            case "measured":
                self.server.server_info.forward_rps = more["forward_rps"]
                self.server.server_info.network_rps = more["network_rps"]
            case "turn":
                return self.server.agent.turn()
            case "kill runtime":
                self.server.parts.runtime.shutdown()
            case _:
                return super().do(do, **more)
        return None


if __name__ == "__main__":
    main(Victim)
