"""Loading one block: from Petals' disk cache or the hub, converted as the server's options say, and timed.

Where a file can be had neither way, Petals itself tries again for ever, and its server holds what it has loaded without
serving it. Here that is a load that has failed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

from planner.agent.compat import prepare

prepare()

from petals.server import from_pretrained  # noqa: E402
from petals.server.from_pretrained import load_pretrained_block  # noqa: E402
from petals.utils.convert_block import convert_block  # noqa: E402

MEASURED = 20
"""Loads that a mean is taken of: the last ones."""


class _GivenUp(Exception):
    """Raised in the place of Petals' wait for the next try, while it handles what has failed."""


def _give_up(_seconds: float) -> NoReturn:
    raise _GivenUp


from_pretrained.time = SimpleNamespace(sleep=_give_up)


@dataclass(frozen=True)
class Loaded:
    """A block that was loaded, and the seconds that reading it (from the hub or the disk) and converting it took."""

    module: Any
    read_seconds: float
    convert_seconds: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.read_seconds + self.convert_seconds


class Loader:
    """Loads blocks as a Petals server would.

    Parameters
    ----------
    server
        The Petals server, which has read its options.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self._read: set[int] = set()

    @property
    def seconds_per_block(self) -> float | None:
        """Mean seconds for a block that had to be downloaded; None before the first."""
        return self._mean(False)

    @property
    def seconds_per_cached_block(self) -> float | None:
        """Mean seconds for a block that was on the disk; None before the first."""
        return self._mean(True)

    def cached_blocks(self) -> frozenset[int]:
        """The blocks whose weights are on this machine's disk: all of a model in a local folder."""
        if os.path.isdir(self._server.converted_model_name_or_path):
            return frozenset(range(len(self._server.module_uids)))
        return frozenset(self._read)

    def _mean(self, cached: bool) -> float | None:
        seconds = self._seconds[cached][-MEASURED:]
        return sum(seconds) / len(seconds) if seconds else None

    def load(self, block: int) -> Loaded:
        """Load a block onto the server's device; whatever Petals raises is raised."""
        try:
            return self._load(block)
        except _GivenUp as given_up:
            if os.path.isdir(self._server.converted_model_name_or_path):
                # What was wrong with the file is in the log: Petals then takes the folder for a repository's name.
                raise OSError("the file with its weights in the model's folder cannot be read") from None
            raise (given_up.__context__ or given_up) from None

    def _load(self, block: int) -> Loaded:
        server, begun, cached = self._server, time.monotonic(), block in self.cached_blocks()
        options = {"token": server.token, "cache_dir": server.cache_dir, "max_disk_space": server.max_disk_space}
        read = load_pretrained_block(
            server.converted_model_name_or_path,
            block,
            config=server.block_config,
            torch_dtype=server.torch_dtype,
            revision=server.revision,
            **options,
        )
        reading = time.monotonic() - begun
        module = convert_block(
            read,
            block,
            server.block_config,
            server.tensor_parallel_devices,
            server.device,
            server.quant_type,
            adapters=server.server_info.adapters,
            freeze=True,
            **options,
        )
        loaded = Loaded(module, reading, time.monotonic() - begun - reading)
        self._seconds[cached].append(loaded.seconds)
        self._read.add(block)
        return loaded
