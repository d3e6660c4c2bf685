"""The server of `benchmarks.span_server`, whose loads may fail and whose parts may die."""

from __future__ import annotations

import threading
from typing import Any

from benchmarks.span_server import Subject, main
from planner.agent.loader import Loaded


class Victim(Subject):
    def __init__(self, options: dict[str, Any]) -> None:
        self.failures = dict[int, int]()
        super().__init__(options)

    def load(self, block: int) -> Loaded:
        if self.failures.get(block, 0) > 0:
            self.failures[block] -= 1
            raise OSError(28, "No space left on device")
        return super().load(block)

    def do(self, do: str, **more: Any) -> Any:
        match do:
            case "begin":
                threading.Thread(target=self.change, kwargs=more, daemon=True).start()
            case "fail":
                self.failures[more["block"]] = more["times"]
            case "measured":
                self.server.server_info.forward_rps = more["forward_rps"]
                self.server.server_info.network_rps = more["network_rps"]
            case "kill runtime":
                self.server.parts.runtime.shutdown()
            case _:
                return super().do(do, **more)
        return None


if __name__ == "__main__":
    main(Victim)
