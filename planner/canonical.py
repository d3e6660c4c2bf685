"""One form for equal JSON values, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from planner.errors import OutputUnwritable
from planner.text import reason_of


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` (text as UTF-8) to `path` so that a reader sees the old file or the new one, never a part.

    Raises
    ------
    OutputUnwritable
        If the folder is missing or not writable, or `path` is a directory, a device or a pipe.
    """
    temporary: str | None = None
    try:
        if path.is_dir():
            raise OutputUnwritable(f"cannot write {path}: it is a directory; name a file")
        if path.exists() and not path.is_file():
            raise OutputUnwritable(f"cannot write {path}: it is not a plain file; name another")
        if not path.parent.is_dir():
            raise OutputUnwritable(f"cannot write {path}: its folder {path.parent} does not exist; make it first")
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        raise OutputUnwritable(f"cannot write {path}: {reason_of(error)}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
