"""Where a swarm's state comes from: a file, standard input, or a document that was parsed already."""

from __future__ import annotations

import difflib
import json
import os
import zlib
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from planner.decode import decode
from planner.errors import InputInvalid, InputUnreadable, NothingToPlan
from planner.files import read_bounded
from planner.monitor import reports_by_prefix, view_of
from planner.state import SwarmState, check_num_blocks
from planner.text import escape, show, some

DUMP_FORMAT, DUMP_VERSION = "plan-swarm.dht-dump", 1
MAX_BYTES = 128 * 2**20
"""The most that is read of any input, and the most that comes out of a compressed one."""
GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of what gzip made; no JSON text begins so."""
MAX_VALUES = 10_000_000
"""The most JSON values that are parsed: with `MAX_BYTES` this bounds the memory."""
MAX_DIGITS = 400
"""Digits of an integer; converting takes quadratic time, and a float holds no more than 309."""


def load_state(
    source: str | os.PathLike[str] | dict[str, Any], prefix: str | None = None, num_blocks: int | None = None
) -> SwarmState:
    """Read a swarm's state from a dump of its DHT or from a health monitor's ``/api/v1/state``.

    Parameters
    ----------
    source
        The path of a JSON file, ``"-"`` for standard input, or the parsed document. What gzip compressed is read
        too, whatever its name.
    prefix
        The model's DHT prefix; None where the source holds one model only.
    num_blocks
        Number of blocks of the model, if it is known better than the source says.

    Raises
    ------
    InputUnreadable
        If the source cannot be read, is too large (compressed or not), or is not JSON.
    InputInvalid
        If it is JSON of another kind or version, or lacks what it must have.
    NothingToPlan
        If it holds no such prefix, or no live server.
    """
    if isinstance(source, dict):
        name, document = "the document given", source
    else:
        name = "standard input" if source == "-" else escape(os.fspath(source))
        document = _parse(_unzip(_read(source, name), name), name)
    try:
        return _state(document, prefix, num_blocks)
    except (InputInvalid, NothingToPlan) as error:
        raise type(error)(f"{name}: {error}") from error
    except RecursionError:
        raise InputInvalid(f"{name}: it is nested too deeply to be a swarm's state") from None


def _read(source: str | os.PathLike[str], name: str) -> bytes:
    wanted = "the path of a dump, or - for standard input"
    return read_bounded(
        source, name, MAX_BYTES, wanted, "the most that is read; dump one model only, without next_pings"
    )


def _unzip(data: bytes, name: str) -> bytes:
    """Decompress what gzip made, up to `MAX_BYTES`; return anything else as it is."""
    if not data.startswith(GZIP_MAGIC):
        return data
    # One member, by hand: GzipFile would walk through millions of empty ones.
    unzipper = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = unzipper.decompress(data, MAX_BYTES + 1)
    except zlib.error:
        raise InputUnreadable(f"{name} is not what gzip makes, though it begins so; dump it again") from None
    if len(content) > MAX_BYTES:
        raise InputUnreadable(
            f"{name} holds over {MAX_BYTES >> 20} MiB once decompressed, the most that is read; dump one model only"
        )
    if not unzipper.eof:
        raise InputUnreadable(f"{name} ends in the middle of its compressed data; was it cut short?")
    if unzipper.unused_data:
        raise InputUnreadable(f"{name} holds something after its compressed data; dump it again")
    return content


def _parse(data: bytes, name: str) -> dict[str, Any]:
    values = data.count(b"[") + data.count(b"{") + data.count(b",")
    if values > MAX_VALUES:
        raise InputUnreadable(
            f"{name} has over {MAX_VALUES:,} JSON values, the most that are parsed; dump one model only"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputUnreadable(f"{name}, line {line}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    if not text.strip():
        raise InputUnreadable(f"{name} is empty; write a dump into it first")
    try:
        document = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise InputUnreadable(
            f"{name}, line {error.lineno}, column {error.colno}: this is not JSON ({error.msg}); was it cut short?"
        ) from None
    except ValueError as error:
        raise InputUnreadable(f"{name}: {error}") from None
    except RecursionError:
        raise InputUnreadable(f"{name}: it is nested too deeply to be a swarm's state") from None
    if not isinstance(document, dict):
        raise InputInvalid(f"{name}: it holds {show(document)}; {_EXPECTED}")
    return document


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer has over {MAX_DIGITS} digits ({digits[:10]}...); shorten it")
    return int(digits)


_EXPECTED = "expected a dump of the DHT (plan-swarm dump) or a health monitor's /api/v1/state"


def _state(document: dict[str, Any], prefix: str | None, num_blocks: int | None) -> SwarmState:
    kind = document.get("format")
    if kind == DUMP_FORMAT:
        return _from_dump(document, prefix, num_blocks)
    if isinstance(kind, str):
        raise InputInvalid(f"its format is {show(kind)}; {_EXPECTED}")
    if "model_reports" in document:
        return _from_monitor(document, prefix, num_blocks)
    raise InputInvalid(f"it is JSON of another kind; {_EXPECTED}")


def _from_dump(document: dict[str, Any], prefix: str | None, num_blocks: int | None) -> SwarmState:
    version = document.get("version")
    if isinstance(version, bool) or version != DUMP_VERSION:
        raise InputInvalid(f"the dump's version is {show(version)}; this planner reads version {DUMP_VERSION}")
    own = document.get("prefix")
    if not isinstance(own, str) or not own:
        raise InputInvalid(f"the dump's prefix is {show(own)}, not the model's DHT prefix; dump it again")
    _choose(prefix, [own])
    records, agents = document.get("records"), document.get("agents")
    if not isinstance(records, list):
        raise InputInvalid(f"records is {show(records)}, not a list; dump it again")
    if agents is not None and not isinstance(agents, list):
        raise InputInvalid(f"agents is {show(agents)}, not a list; dump it again, or leave it out")
    read_at = _time(document, "read_at")
    reading = document.get("reading")
    partial = isinstance(reading, dict) and reading.get("partial") is True
    notes = (_PARTIAL,) if partial else ()
    state = decode(own, _num_blocks(document, num_blocks), read_at, records, agents or (), notes=notes)
    return replace(state, partial=partial)


_PARTIAL = (
    "the reading is partial: keys are likely to be missing, so nobody is moved but as --pin and --drain say, and "
    "no plan may be published from it"
)


def _from_monitor(document: dict[str, Any], prefix: str | None, num_blocks: int | None) -> SwarmState:
    reports = reports_by_prefix(document)
    chosen = _choose(prefix, reports)
    read_at = _time(document, "last_updated")
    view = view_of(chosen, reports[chosen], read_at)
    blocks = _num_blocks(reports[chosen], num_blocks)
    return decode(chosen, blocks, read_at, view.records, rejections=view.rejections, notes=view.notes)


def _choose(prefix: str | None, available: Collection[str]) -> str:
    """Choose the one of `available` that is asked for, or the only one."""
    if not available:
        raise NothingToPlan("it holds no models")
    if prefix is not None and prefix in available:
        return prefix
    names = some(sorted(available), most=10)
    if prefix is None:
        if len(available) > 1:
            raise InputInvalid(f"it holds several models; choose one with --prefix: {names}")
        return next(iter(available))
    # Comparing takes quadratic time in the names' lengths, and those are anyone's.
    close = difflib.get_close_matches(prefix[:200], [name for name in available if len(name) <= 200][:1000], n=1)
    hint = f"; did you mean {show(close[0])}?" if close else ""
    raise NothingToPlan(f"it holds no model of the prefix {show(prefix)}; it holds {names}{hint}")


def _num_blocks(fields: dict[str, Any], override: int | None) -> int:
    if override is not None:
        return check_num_blocks(override)
    if fields.get("num_blocks") is None:
        raise InputInvalid("num_blocks, the number of blocks of the model, is missing; add it, or give --num-blocks")
    return check_num_blocks(fields["num_blocks"])


def _time(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
        raise InputInvalid(f"{name} is {show(value)}, not the Unix time of the reading in seconds")
    return float(value)
