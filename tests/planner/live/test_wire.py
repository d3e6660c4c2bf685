from __future__ import annotations

import importlib
import math
import time
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.wire import (
    DROPPED,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_PARTS,
    MAX_REMEMBERED,
    MAX_SUBKEYS,
    MAX_VALUE_BYTES,
    Entries,
    Memory,
    Unreadable,
    Wire,
    count_parts,
    read_entries,
    unpack,
)
from planner.wire_json import plain

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def dumps(value):
    return importlib.import_module("hivemind.utils.serializer").MSGPackSerializer.dumps(value)


@given(VALUES)
def test_what_hivemind_packs_is_unpacked_the_same(value):
    assert repr(unpack(dumps(value))) == repr(value)


@given(st.binary(max_size=60))
def test_any_bytes(packed):
    unpack(packed)
    entries = read_entries(packed)
    assert all(isinstance(subkey, str) or subkey is DROPPED for subkey, _ in entries.items())
    Wire(dumps, lambda entries: entries).loads(packed)


@given(VALUES, st.binary(min_size=1, max_size=4), st.integers(0, 60))
def test_damaged_values(value, junk, place):
    packed = dumps(value)
    unpack(packed[:place] + junk + packed[place:])
    unpack(packed[: place % (len(packed) + 1)])


def nested(depth, kind):
    value = 1
    for _ in range(depth):
        value = kind((value,))
    return value


@pytest.mark.parametrize("kind", [list, tuple])
def test_depth(kind):
    assert unpack(dumps(nested(MAX_DEPTH - 1, kind))) == nested(MAX_DEPTH - 1, kind)
    for depth in (MAX_DEPTH + 1, 100, 400):
        assert isinstance(unpack(dumps(nested(depth, kind))), Unreadable)


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"\xc1", "not msgpack"),
        (b"\x91" * 100_000, "not msgpack"),
        (dumps([0] * (MAX_ITEMS + 1)), "not msgpack"),
        (dumps([[0] * MAX_ITEMS] * 5), f"over {MAX_PARTS:,} values or {MAX_DEPTH} deep"),
        (dumps(b"x" * MAX_VALUE_BYTES), "a value of 131,077 bytes, over 131,072"),
        (dumps({5: 5}), "not msgpack"),
        (b"\xd4\x40\x05", "not msgpack"),
        (7, "a dictionary inside a dictionary"),
    ],
)
def test_reasons(packed, reason):
    assert unpack(packed) == Unreadable(reason)


def test_a_value_that_pretends_to_be_large_takes_no_memory():
    # Lists inside lists, each of which announces more entries than the whole has bytes.
    bombs = [b"\xdd\x00\x00\x0f\xff" * 1000, b"\xdc\xff\xff" * 40_000, b"\xdf\x00\x00\x0f\xff" * 1000]
    begun = time.monotonic()
    tracemalloc.start()
    for packed in bombs:
        assert isinstance(unpack(packed), Unreadable)
        read_entries(packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20
    assert time.monotonic() - begun < 3


def frame(items, maxsize=math.inf, latest=1.0):
    return msgpack.packb([maxsize, latest, items])


def test_a_dictionary():
    entries = read_entries(frame([["a", b"\x01", 5.0], ["b", b"\x02", 6], ["a", b"\x03", 4.0], ["a", b"\x04", 7.0]]))
    assert dict(entries.items()) == {"a": (b"\x04", 7.0), "b": (b"\x02", 6.0)}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ([5, b"", 1.0], "subkeys that are not text"),
        ([b"a", b"", 1.0], "subkeys that are not text"),
        ([[], b"", 1.0], "subkeys that are not text"),
        (["x" * 257, b"", 1.0], "subkeys of over 256 characters"),
        (["x", b"", "soon"], "expirations that are no time"),
        (["x", b"", True], "expirations that are no time"),
        (["x", b"", math.nan], "expirations that are no time"),
        (["x", b"", math.inf], "expirations that are no time"),
        (["x", "text", 1.0], "malformed records"),
        (["x", b""], "malformed records"),
        (5, "malformed records"),
        (None, "malformed records"),
    ],
)
def test_bad_entries(item, reason):
    entries = dict(read_entries(frame([item, ["good", b"\x01", 5.0]])).items())
    assert entries.pop(DROPPED).value == {reason: 1}
    assert entries == {"good": (b"\x01", 5.0)}


@pytest.mark.parametrize(
    "content", [b"", b"\x93", b"\x91\x01", b"\x05", frame([["a", b"", 1.0]])[:-3], b"\xdd\xff\xff\xff\xff"]
)
def test_bad_frames(content):
    entries = dict(read_entries(content).items())
    assert entries == {DROPPED: ({"a dictionary that is cut short or malformed": 1}, math.inf)}


def test_bounds_of_a_key():
    many = read_entries(frame([[f"{index}", b"", 1.0] for index in range(MAX_SUBKEYS + 5)]))
    found = dict(many.items())
    assert found.pop(DROPPED).value == {"over 10,000 subkeys": 5}
    assert len(found) == MAX_SUBKEYS

    entries = Entries(most_bytes=10)
    assert entries.store("a", b"x" * 6, 1.0)
    assert not entries.store("b", b"x" * 6, 1.0)
    assert entries.store("a", b"x" * 10, 2.0)
    assert not entries.store("a", b"x" * 11, 3.0)
    assert dict(entries.items()) == {
        "a": (b"x" * 10, 2.0),
        DROPPED: ({"too many bytes under one key": 2}, math.inf),
    }


def test_what_several_nodes_dropped_is_not_summed():
    entries = Entries()
    entries.drop("odd", 3)
    for count in (2, 5):
        other = Entries()
        other.drop("odd", count)
        for subkey, entry in other.items():
            entries.store(subkey, entry.value, entry.expiration_time)
    assert dict(entries.items()) == {DROPPED: ({"odd": 5}, math.inf)}


def test_as_json():
    value = [
        (1, b"xx"),
        {"a": math.inf, b"k": -math.inf},
        Unreadable("why"),
        math.nan,
        None,
        True,
        msgpack.Timestamp(0),
    ]
    assert plain(value) == [
        [1, "<2 bytes>"],
        {"a": "inf", "<1 bytes>": "-inf"},
        "<why>",
        "nan",
        None,
        True,
        "<a Timestamp>",
    ]


def test_counting():
    assert count_parts(5) == 1
    assert count_parts([1, (2, {"a": [3]})]) == 8
    assert count_parts(nested(MAX_DEPTH + 1, list)) > MAX_PARTS


@given(VALUES, VALUES)
def test_what_is_remembered_is_the_same(one, other):
    memory = Memory()
    for value in (one, other, one):
        assert repr(memory.unpack(dumps(value))) == repr((value, count_parts(value)))
    assert memory.unpack(dumps(one))[0] is memory.unpack(dumps(one))[0]


def test_what_is_remembered_is_bounded():
    memory = Memory()
    tracemalloc.start()
    for number in range(200):
        value = str(number).encode() + bytes(MAX_VALUE_BYTES // 2)
        assert memory.unpack(dumps(value)) == (value, 1)
    assert tracemalloc.get_traced_memory()[0] < 3 * MAX_REMEMBERED  # packed and unpacked, and some
    tracemalloc.stop()
    assert memory.unpack(Unreadable("why")) == (Unreadable("why"), 1)
