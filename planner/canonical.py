"""One form for equal JSON values, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.errors import OutputUnwritable
from planner.text import escape, reason_of


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` (text as UTF-8) to `path` so that a reader sees the old file or the new one, never a part.

    Where `path` is a symbolic link, what it points to is written, and the link stays.

    Raises
    ------
    OutputUnwritable
        As of `file_behind`, or if there is no room.
    """
    temporary: str | None = None
    target = file_behind(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise OutputUnwritable(f"cannot write {escape(str(path))}: {reason_of(error)}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def file_behind(path: Path, otherwise: str = "name another file") -> Path:
    """The plain file, there already or not, that writing to `path` means: links are followed.

    Only such a file is ever replaced: put in the place of a device, a file would cut off all who use the device.

    Parameters
    ----------
    otherwise
        What errors say is to be done instead.

    Raises
    ------
    OutputUnwritable
        If `path` leads to anything else, such as a directory, a pipe or a device, to a folder that is missing or not
        writable, or to where this process's own standard output goes.
    """
    shown = escape(str(path))
    try:
        target = Path(os.path.realpath(path))
        status = _status(target)
        if status is None:
            # What /dev/stdout leads to has a name only where it is a file.
            status = _status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise OutputUnwritable(f"cannot write {shown}: it is a directory; {otherwise}")
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise OutputUnwritable(f"cannot write {shown}: it is not a plain file; {otherwise}")
        if status is not None and _is_stream(status):
            # Replaced, it would lose what was and what will be printed into it.
            raise OutputUnwritable(f"cannot write {shown}: this command's own input or output goes there; {otherwise}")
        if not target.parent.is_dir():
            folder = escape(str(target.parent if path.is_symlink() else path.parent))
            raise OutputUnwritable(f"cannot write {shown}: there is no folder {folder}; make it first")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OutputUnwritable(f"cannot write {shown}: its folder is not writable; {otherwise}")
    except (OSError, ValueError) as error:  # a name too long, links in a circle; a NUL in the path is a ValueError
        raise OutputUnwritable(f"cannot write {shown}: {reason_of(error)}; {otherwise}") from error
    return target


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_stream(status: os.stat_result) -> bool:
    for descriptor in (0, 1, 2):
        with suppress(OSError):  # it is closed
            if os.path.samestat(status, os.fstat(descriptor)):
                return True
    return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
