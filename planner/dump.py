"""A dump of a swarm's raw records, written so that it can be read again wherever it ends up."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.canonical import write_whole
from planner.errors import OutputUnwritable
from planner.reading import MAX_BYTES
from planner.text import escape


def write_dump(path: Path, document: Mapping[str, Any]) -> None:
    """Write a dump to `path`, whole or not at all; what stood there before is replaced.

    Parameters
    ----------
    path
        Where to. If its name ends in ``.gz``, the dump is compressed; equal documents give equal files.
    document
        The dump, as `planner.live.Reading.dump` returns it.

    Raises
    ------
    OutputUnwritable
        If the file cannot be written, or the dump is larger than what is read back.
    """
    content = f"{json.dumps(document, ensure_ascii=True, allow_nan=False)}\n".encode()
    if len(content) > MAX_BYTES:
        raise OutputUnwritable(
            f"cannot write {escape(str(path))}: the dump has over {MAX_BYTES >> 20} MiB, more than is read back"
        )
    write_whole(path, _zip(content) if path.name.endswith(".gz") else content)


def _zip(content: bytes) -> bytes:
    # Neither name nor time in the header: they would make equal dumps differ.
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()
