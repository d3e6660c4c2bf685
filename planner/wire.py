"""What strangers put into the DHT, unpacked within bounds: msgpack as hivemind writes it, and as nobody should.

hivemind unpacks records where it receives them, and one that cannot be unpacked leaves its reader waiting for ever.
So it is given `Wire` for a serializer, which unpacks only the frame of a dictionary and never raises there; values stay
bytes until `unpack` has a look at them, one by one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

MAX_SUBKEYS = 10_000
"""Subkeys of a key that are looked at."""
MAX_SUBKEY = 256
"""Characters of a subkey: a peer id has about 50."""
MAX_VALUE_BYTES = 2**17
"""Bytes of a value; a Petals server's has about 1 KiB, a signed plan under 64 KiB."""
MAX_KEY_BYTES = 4 * 2**20
"""Bytes of all values of a key: what one answer of a node may hold."""
MAX_ITEMS = 4096
"""Entries of a list or map."""
MAX_PARTS = 20_000
"""Values of any kind inside one value: small ones take a hundred times their packed size in memory."""
MAX_DEPTH = 16
MAX_REMEMBERED = 2**21
"""Bytes of values that a `Memory` remembers: those of 2,000 Petals servers."""

_TUPLE, _DICTIONARY = 0x40, 0x50
"""hivemind's extension types."""
_FIXED, _SIZED = (0xD4, 0xD8), {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""First bytes of msgpack's extension types, and for those that state a size the bytes it takes."""

_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException)


@dataclass(frozen=True)
class Unreadable:
    """Stands where a value cannot be read; `reason` says why."""

    reason: str


class Stamped(NamedTuple):
    """A value and when it expires (Unix time), under the names that hivemind uses."""

    value: Any
    expiration_time: float


class Entries:
    """The records under one key as nodes report them: the newest of each subkey, within bounds.

    `store`, `items` and `maxsize` are what hivemind calls to merge the answers of several nodes. Beside the records,
    `items` yields `DROPPED` with what was left out, by reason.
    """

    maxsize = math.inf

    def __init__(self, most_bytes: int = MAX_KEY_BYTES) -> None:
        self._found: dict[str, Stamped] = {}
        self._left = most_bytes
        self._dropped: dict[str, int] = {}

    def store(self, subkey: object, value: object, expiration_time: object) -> bool:
        """Keep a record if it is in order and newer than the one there is."""
        if subkey is DROPPED and isinstance(value, Mapping):
            # Several nodes report the same: the most of one is nearer the truth than their sum.
            self._dropped |= {reason: max(count, self._dropped.get(reason, 0)) for reason, count in value.items()}
            return False
        problem = _problem(subkey, expiration_time)
        if problem is not None or not isinstance(subkey, str) or not isinstance(expiration_time, (int, float)):
            return self.drop(problem or "")
        if isinstance(value, bytes) and len(value) > MAX_VALUE_BYTES:
            value = Unreadable(f"a value of {len(value):,} bytes, over {MAX_VALUE_BYTES:,}")
        present = self._found.get(subkey)
        if present is not None and present.expiration_time >= expiration_time:
            return False
        if present is None and len(self._found) >= MAX_SUBKEYS:
            return self.drop(f"over {MAX_SUBKEYS:,} subkeys")
        left = self._left + _size(present.value if present is not None else b"") - _size(value)
        if left < 0:
            return self.drop("too many bytes under one key")
        self._left = left
        self._found[subkey] = Stamped(value, float(expiration_time))
        return True

    def drop(self, reason: str, count: int = 1) -> bool:
        """Note that records were left out; always False."""
        self._dropped[reason] = self._dropped.get(reason, 0) + count
        return False

    def items(self) -> Iterator[tuple[object, Stamped]]:
        """Yield every subkey with its record, and what was left out under `DROPPED`."""
        yield from self._found.items()
        if self._dropped:
            yield DROPPED, Stamped(dict(self._dropped), math.inf)


DROPPED = object()
"""The subkey under which `Entries` hands on how many records it left out, by reason."""


class Wire:
    """A serializer for hivemind that bounds what it unpacks, and leaves values packed.

    Parameters
    ----------
    dumps
        hivemind's own way to pack a value.
    as_dictionary
        Wraps `Entries` in what hivemind takes for its dictionary.
    """

    def __init__(self, dumps: Callable[[object], bytes], as_dictionary: Callable[[Entries], object]) -> None:
        self.dumps = dumps
        self.most_bytes = MAX_KEY_BYTES
        self._as_dictionary = as_dictionary

    def loads(self, packed: object) -> object:
        """Unpack the frame of a dictionary; hand on anything else as it is."""
        content = _dictionary_in(packed) if isinstance(packed, bytes) else None
        return packed if content is None else self._as_dictionary(read_entries(content, self.most_bytes))


def read_entries(content: bytes, most_bytes: int = MAX_KEY_BYTES) -> Entries:
    """Read the records of a dictionary as hivemind packs it: ``[maxsize, latest, [[subkey, value, expiration]]]``."""
    entries = Entries(most_bytes)
    try:
        unpacker = msgpack.Unpacker(
            ext_hook=_extension, raw=False, max_array_len=MAX_DEPTH, max_map_len=MAX_DEPTH, max_buffer_size=2**30
        )
        unpacker.feed(content)
        if unpacker.read_array_header() != 3:
            raise ValueError("not three parts")
        unpacker.skip()
        unpacker.skip()
        count = unpacker.read_array_header()
        for _ in range(min(count, MAX_SUBKEYS)):
            entry = unpacker.unpack()
            if isinstance(entry, list) and len(entry) == 3 and isinstance(entry[1], bytes):
                entries.store(*entry)
            else:
                entries.drop("malformed records")
        if count > MAX_SUBKEYS:
            entries.drop(f"over {MAX_SUBKEYS:,} subkeys", count - MAX_SUBKEYS)
    except _ERRORS:
        entries.drop("a dictionary that is cut short or malformed")
    return entries


def unpack(packed: object) -> Any:
    """Unpack one value: None, bool, int, float, str, bytes, or list, tuple and dict of such.

    What cannot be read is an `Unreadable`; nothing is raised.
    """
    if not isinstance(packed, bytes):
        return packed if isinstance(packed, Unreadable) else Unreadable("a dictionary inside a dictionary")
    if len(packed) > MAX_VALUE_BYTES:
        return Unreadable(f"a value of {len(packed):,} bytes, over {MAX_VALUE_BYTES:,}")
    try:
        value = _load(packed, 0)
    except _ERRORS as error:
        return Unreadable(str(error) if isinstance(error, _BoundError) else "not msgpack")
    return value if count_parts(value) <= MAX_PARTS else Unreadable(f"over {MAX_PARTS:,} values or {MAX_DEPTH} deep")


class Memory:
    """Unpacks each value once: a server announces the same under all its blocks, and again in every try.

    Equal bytes give the same object, which therefore nobody may change.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Any, int]] = {}
        self._left = MAX_REMEMBERED

    def unpack(self, packed: object) -> tuple[Any, int]:
        """Return what `unpack` and `count_parts` make of a value."""
        known = self._known.get(packed) if isinstance(packed, bytes) else None
        if known is None:
            value = unpack(packed)
            known = value, count_parts(value)
            if isinstance(packed, bytes):
                if len(packed) > self._left:
                    self._known.clear()
                    self._left = MAX_REMEMBERED
                self._left -= len(packed)
                self._known[packed] = known
        return known


def count_parts(value: object) -> int:
    """Count the values inside `value`, itself included; over `MAX_PARTS` where it has too many or is too deep."""
    parts, level = 0, [value]
    for _ in range(MAX_DEPTH):
        if not level or parts > MAX_PARTS:
            return parts
        parts += len(level)
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item)
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(item)
        level = inner
    return parts if not level else MAX_PARTS + 1


class _BoundError(ValueError):
    """A value goes beyond a bound; never leaves this module."""


def _load(packed: bytes, depth: int) -> Any:
    def extension(code: int, data: bytes) -> object:
        if code != _TUPLE:
            return _extension(code, data)
        if depth >= MAX_DEPTH:
            raise _BoundError(f"over {MAX_DEPTH} deep")
        items = _load(data, depth + 1)
        if not isinstance(items, list):
            raise TypeError("a tuple is packed as a list")
        return tuple(items)

    # The limits also keep it from reserving room for lists that are announced and never come.
    return msgpack.unpackb(packed, ext_hook=extension, raw=False, max_array_len=MAX_ITEMS, max_map_len=MAX_ITEMS)


def _extension(code: int, data: bytes) -> object:
    return Unreadable(f"a value of extension type {code}")


def _dictionary_in(packed: bytes) -> bytes | None:
    """Return what is inside the extension type of a dictionary; None if `packed` is something else."""
    if not packed:
        return None
    if _FIXED[0] <= packed[0] <= _FIXED[1]:
        start = 1
    elif packed[0] in _SIZED:
        start = 1 + _SIZED[packed[0]]
    else:
        return None
    return packed[start + 1 :] if packed[start : start + 1] == struct.pack("b", _DICTIONARY) else None


def _problem(subkey: object, expiration: object) -> str | None:
    if not isinstance(subkey, str):
        return "subkeys that are not text"
    if len(subkey) > MAX_SUBKEY:
        return f"subkeys of over {MAX_SUBKEY} characters"
    if isinstance(expiration, bool) or not isinstance(expiration, (int, float)) or not abs(expiration) < 1e15:
        return "expirations that are no time"
    return None


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0
