"""What an agent still knows after kill -9: the epochs that it has seen, its last span, its keys' last valid plans.

One JSON file for each prefix and peer, replaced whole. The highest epoch of a key is what keeps an old plan from being
played again, so it only ever rises, and it is to be saved *before* the plan that carries it is followed: an agent that
cannot save follows nothing new.

A file that is missing is a first start. One that is there and cannot be read, or is not what was written, raises
`MemoryUnusable` and is left as it is: to take it for "no epoch seen" would let anybody replay yesterday's plan to
whoever has a bad sector. The agent then goes on serving, follows no plan, and says so, until its operator has looked:
by removing the file they say that they accept any epoch again. To follow nothing is the state that harms nobody.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.canonical import canonical_json, write_whole
from planner.envelope import MAX_ENVELOPE, Verified
from planner.errors import InputUnreadable, OutputUnwritable, PlanSwarmError
from planner.fields import Malformed, hexadecimal, integer, mapping, optional_span, text
from planner.files import read_bounded
from planner.published import MAX_EPOCH
from planner.strict_json import NotStrictJson, parse_strict
from planner.text import escape, show
from solver.problem import Span

FORMAT, VERSION = "plan-swarm.agent-memory", 1
MAX_BYTES = 16 * 2**20
"""Bytes of a file: some 180 keys with the largest envelopes."""
MAX_ENVELOPE_TEXT = (MAX_ENVELOPE + 2) // 3 * 4


class MemoryUnusable(PlanSwarmError):
    """The file of an agent's memory is there and cannot be relied on; until it is gone, no plan may be followed."""


@dataclass(frozen=True)
class Remembered:
    """The highest epoch that one key has signed, the hash of its payload, and the envelope itself (plan or revoke)."""

    epoch: int
    payload_hash: str
    envelope: bytes


@dataclass(frozen=True)
class Memory:
    """What one agent knows.

    Parameters
    ----------
    prefix, peer_id
        Whose it is.
    keys
        By key id. The envelope is kept for each key, as the first named key with a valid plan wins, and which
        one that is may change while the DHT is silent. It has been verified when it was saved; times pass, so it is
        to be checked again by `planner.envelope.check_plan`, which takes an equal epoch with the same payload.
    span
        What it served last; None where it served nothing.
    """

    prefix: str
    peer_id: str
    keys: Mapping[str, Remembered] = field(default_factory=dict)
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", MappingProxyType(dict(self.keys)))

    def with_plan(self, plan: Verified, envelope: bytes) -> Memory:
        """With a plan or a revoke that `check_plan` has let pass, given what is known here; else the same.

        Raises
        ------
        ValueError
            If it is for another prefix, or its epoch is known with another payload: it has not been checked.
        """
        known = self.keys.get(plan.key.key_id)
        if plan.prefix != self.prefix:
            raise ValueError(f"a plan for {show(plan.prefix)} in the memory for {show(self.prefix)}")
        if known is not None and plan.epoch <= known.epoch:
            if plan.epoch == known.epoch and plan.payload_hash != known.payload_hash:
                raise ValueError(f"epoch {plan.epoch} was seen with another payload")
            return self
        new = Remembered(plan.epoch, plan.payload_hash, envelope)
        return replace(self, keys={**self.keys, plan.key.key_id: new})

    def with_span(self, span: Span | None) -> Memory:
        """With the span that it serves now."""
        return replace(self, span=span)


def memory_path(folder: Path, prefix: str, peer_id: str) -> Path:
    """The file of one prefix and peer: both are in its name, as far as a name can hold them, and a hash of both."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{prefix[:40]}-{peer_id[-12:]}")
    digest = hashlib.sha256(canonical_json([prefix, peer_id]).encode()).hexdigest()[:16]
    return folder / f"{name}-{digest}.json"


def load_memory(folder: Path, prefix: str, peer_id: str, num_blocks: int) -> Memory:
    """Read what was saved; an empty memory where there is no file yet.

    Parameters
    ----------
    folder
        ``--state-dir``.
    num_blocks
        Number of blocks of the model, in which the span must lie.

    Raises
    ------
    MemoryUnusable
        If the file is there and not readable, damaged, another agent's, or of an unknown version.
    """
    path = memory_path(folder, prefix, peer_id)
    name = escape(str(path))
    try:
        if not _is_there(path):
            return Memory(prefix, peer_id)
        data = read_bounded(path, name, MAX_BYTES, "the agent's memory", "more than an agent writes")
        return _read(parse_strict(data), prefix, peer_id, num_blocks)
    except InputUnreadable as error:
        problem = str(error)
    except OSError as error:
        problem = f"{name} cannot be read: {error.strerror or error}"
    except (NotStrictJson, Malformed) as error:
        problem = f"{name} is damaged, or not this agent's: {error}"
    raise MemoryUnusable(
        f"{problem}; which plans were seen is not known, so none is followed until you remove it (then any epoch is"
        " taken again)"
    )


def save_memory(folder: Path, memory: Memory) -> None:
    """Write it so that kill -9, or the machine going down, leaves the old file or the new one.

    Raises
    ------
    OutputUnwritable
        If it cannot be written; what stood there before is untouched.
    """
    path = memory_path(folder, memory.prefix, memory.peer_id)
    document = _document(memory)
    content = json.dumps({**document, "checksum": _checksum(document)}, indent=1, allow_nan=False) + "\n"
    if len(content) > MAX_BYTES:
        raise OutputUnwritable(f"cannot write {path}: it would be larger than what is read back; trust fewer keys")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f".{path.name}.*.tmp"):  # of a write that kill -9 cut short
            left.unlink(missing_ok=True)
        write_whole(path, content)
        _settle(folder)
    except OSError as error:
        raise OutputUnwritable(f"cannot write {path}: {error.strerror or error}") from error


def _is_there(path: Path) -> bool:
    # Not os.path.lexists(): it takes a folder that may not be searched for one that is empty.
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _settle(folder: Path) -> None:
    """Have the folder's entries on the disk: without it, a power failure may bring the old file back."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _document(memory: Memory) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "prefix": memory.prefix,
        "peer_id": memory.peer_id,
        "span": None if memory.span is None else list(memory.span),
        "keys": {
            key_id: {
                "epoch": known.epoch,
                "payload_hash": known.payload_hash,
                "envelope": base64.b64encode(known.envelope).decode(),
            }
            for key_id, known in sorted(memory.keys.items())
        },
    }


def _checksum(document: dict[str, Any]) -> str:
    # Against damage, not against whoever may write here: a flipped digit of an epoch is valid JSON, too.
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


def _read(document: object, prefix: str, peer_id: str, num_blocks: int) -> Memory:
    fields = dict(mapping(document, "the memory"))
    if fields.get("format") != FORMAT or type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise Malformed(f"it is not {FORMAT} of version {VERSION}")
    checksum = hexadecimal(fields.pop("checksum", None), "checksum", 64)
    if checksum != _checksum(fields):
        raise Malformed("its checksum is not that of what it holds")
    if (fields.get("prefix"), fields.get("peer_id")) != (prefix, peer_id):
        raise Malformed(f"it is that of {show(fields.get('peer_id'))} for {show(fields.get('prefix'))}")
    keys = mapping(fields.get("keys"), "keys")
    span = optional_span(fields.get("span"), "span", num_blocks)
    known = {hexadecimal(key_id, "a key id", 32): _remembered(row) for key_id, row in keys.items()}
    return Memory(prefix, peer_id, known, span)


def _remembered(row: object) -> Remembered:
    fields = mapping(row, "a key's row")
    encoded = text(fields.get("envelope"), "envelope", MAX_ENVELOPE_TEXT)
    try:
        envelope = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("envelope is not base64") from None
    epoch = integer(fields.get("epoch"), "epoch", MAX_EPOCH, 1)
    return Remembered(epoch, hexadecimal(fields.get("payload_hash"), "payload_hash", 64), envelope)
