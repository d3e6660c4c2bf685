"""The server of `benchmarks.span_server`, looked into on its device: memory, CUDA graphs, and seconds of each step."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from benchmarks.span_reference import distance
from benchmarks.span_server import Subject, main
from planner.agent.loader import Loaded


class DeviceSubject(Subject):
    """A server that notes what its device holds at each step of a change."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.moments: list[dict[str, Any]] = []
        self.graphs: dict[int, list[Any]] = {}
        self.replayed: dict[int, torch.Tensor] = {}
        super().__init__(options)

    def load(self, block: int) -> Loaded:
        self.note("load", block=block)
        if self.server.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.server.device)  # so that the next peak is that of this load
        loaded = super().load(block)
        self.note("loaded", block=block, read=loaded.read_seconds, convert=loaded.convert_seconds)
        return loaded

    def look(self) -> dict[str, Any]:
        sizes = {
            block: sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
            for block, module in self.server.parts.held().items()
        }
        device = self.server.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
        return {**super().look(), "device": name, "bytes": sizes, "memory": self.memory()}

    def change(self, target: list[int] | None, drain_timeout: float = 5.0) -> dict[str, Any]:
        """Change the span, with what is noted at each moment; each is the beginning of a step or the end of all."""
        parts = self.server.parts

        def take(blocks: Iterable[int]) -> Any:
            self.note("free")
            return type(parts).take(parts, blocks)

        parts.take = take
        self.moments.clear()
        self.note("drain")
        try:
            changed = super().change(target, drain_timeout)
        finally:
            del parts.take
        self.note("done")
        return {**changed, "moments": self.moments}

    def note(self, what: str, **more: Any) -> None:
        self.moments.append({"what": what, "at": time.time(), "memory": self.memory(), **more})

    def memory(self) -> dict[str, int] | None:
        """Bytes, by torch's allocator and by the driver; None on a CPU. Nothing waits here for the device."""
        device = self.server.device
        if device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(device)  # the first of all, as only this initializes CUDA where it is not
        return {
            "allocated": torch.cuda.memory_allocated(device),
            "reserved": torch.cuda.memory_reserved(device),
            "peak": torch.cuda.max_memory_allocated(device),
            "free": free,
            "total": total,
        }

    def replay(self, blocks: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Of blocks that have answered a token: their CUDA graphs, and what these make of a token.

        ``same``: whether the graphs are those of the first call. ``moved``: how far the answer is from that of the
        first call. ``wrong``: how far it is from what the block answers without graphs.
        """
        server = self.server
        random = torch.randn(1, 1, server.block_config.hidden_size, generator=torch.Generator().manual_seed(1))
        token = random.to(server.device, server.torch_dtype)
        # As the runtime does: one batch at a time, as a graph has one input and one output.
        with server.parts.runtime.between_batches:
            return {block: self._replay(block, token) for block in blocks}

    def _replay(self, block: int, token: torch.Tensor) -> dict[str, Any]:
        module = self.server.parts.slots[block].module
        graphs = [value for part in module.modules() for name, value in vars(part).items() if name.endswith("_graph")]
        with torch.inference_mode():  # where Petals takes its graphs
            replayed = module(token)[0].float().cpu()
        with torch.no_grad():  # where it doesn't
            direct = module(token)[0].float().cpu()
        # They are kept, so that no other graph can get the same identity.
        first = self.graphs.setdefault(block, graphs)
        return {
            "captured": sum(graph is not None for graph in graphs),
            "of": len(graphs),
            "same": all(one is other for one, other in zip(first, graphs, strict=True)),
            "moved": distance(replayed, self.replayed.setdefault(block, replayed)),
            "wrong": distance(replayed, direct),
        }

    def do(self, do: str, **more: Any) -> Any:
        return self.replay(**more) if do == "replay" else super().do(do, **more)


if __name__ == "__main__":
    main(DeviceSubject)
