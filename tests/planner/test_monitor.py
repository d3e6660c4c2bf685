"""tests/data/health-state.json: the real dump, put through petals' `compute_spans` and health.py's own steps."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputInvalid, NothingToPlan, PlanSwarmError
from planner.reading import load_state
from planner.state import ServerState
from solver.problem import Span

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "health-state.json"
REAL = json.loads(FILE.read_text())


@pytest.fixture
def view():
    return copy.deepcopy(REAL)


def row(view, index=0):
    return view["model_reports"][0]["server_rows"][index]


def servers(document):
    return {server.peer_id: server for server in load_state(document).servers}


def monitor(rows, **changes):
    """A monitor's document of one model, with rows (peer id, state, start, end, server_info)."""
    report = {
        "name": "x/m",
        "dht_prefix": "m",
        "num_blocks": 10,
        "server_rows": [
            {
                "peer_id": peer_id,
                "state": state,
                "span": {"peer_id": peer_id, "start": start, "end": end, "server_info": {"throughput": 5.0, **info}},
            }
            for peer_id, state, start, end, info in rows
        ],
    }
    return {"model_reports": [report | changes], "last_updated": 1000.0}


def test_the_monitors_view_agrees_with_the_raw_records():
    raw, seen = load_state(ROOT / "examples" / "llama-65b-hf.json"), load_state(FILE)
    assert (seen.prefix, seen.num_blocks, seen.read_at) == (raw.prefix, raw.num_blocks, raw.read_at)
    certain = [server for server in raw.servers if not server.uncertain]
    assert [server for server in seen.servers if server.peer_id != "server4"] == certain
    # What is missing inside server4's span is not in the monitor's view; all else of it is.
    (real4,) = (server for server in raw.servers if server.uncertain)
    (seen4,) = (server for server in seen.servers if server.peer_id == "server4")
    blocks = frozenset(range(21, 38))
    assert seen4 == replace(real4, span=Span(21, 38), uncertain=False, serving=blocks)
    (warning,) = seen.warnings
    assert warning.startswith("servers that do not state their spans themselves: 7;")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks" / "data").glob("churn-*.json")), ids=lambda path: path.stem
)
def test_the_same_for_servers_that_state_their_spans(path):
    raw = load_state(path)
    document = monitor(
        [
            (
                server.peer_id,
                server.state.value,
                *server.span,
                {
                    "state": server.state.value,
                    "throughput": server.throughput,
                    "start_block": server.span.start,
                    "end_block": server.span.end,
                    "version": server.version,
                    "quant_type": server.quant_type,
                    "torch_dtype": server.torch_dtype,
                    "using_relay": server.using_relay,
                },
            )
            for server in raw.servers
        ],
        dht_prefix=raw.prefix,
        num_blocks=raw.num_blocks,
    )
    document["last_updated"] = raw.read_at
    assert load_state(document) == raw


def test_states():
    state = load_state(
        monitor(
            [
                ("a", "online", 0, 4, {"state": "online"}),
                ("b", "joining", 4, 8, {"state": "joining"}),
                ("c", "offline", 4, 8, {"state": "offline"}),
                ("d", "unreachable", 8, 10, {"state": "online"}),
                ("e", "unreachable", 8, 10, {"state": "offline"}),
                ("f", "asleep", 8, 10, {"state": "online"}),
            ]
        )
    )
    assert [(server.peer_id, server.state) for server in state.servers] == [
        ("a", ServerState.ONLINE),
        ("b", ServerState.JOINING),
        ("d", ServerState.ONLINE),
    ]
    assert state.warnings[:2] == (
        "d: the monitor could not reach it; it counts as 'online', as it announces",
        "f: dropped its record of block 8: unknown state 'asleep'; known are 0 (OFFLINE), 1 (JOINING) and 2 (ONLINE)",
    )


def test_null_is_infinity_there(view):
    row(view)["span"]["server_info"]["throughput"] = None
    row(view, 1)["span"]["server_info"]["next_pings"] = {"x": None}
    state = load_state(view)
    assert "server1" not in [server.peer_id for server in state.servers]
    assert "server2" in [server.peer_id for server in state.servers]
    assert state.warnings[0].startswith("server1: dropped its record of block 0: throughput null ")


def test_what_a_server_states_is_better_than_the_monitors_range():
    # A stale record of block 9 widened the range that the monitor shows.
    info = {"state": "online", "start_block": 2, "end_block": 6}
    assert servers(monitor([("a", "online", 2, 10, info)]))["a"].span == Span(2, 6)


def test_bad_rows_are_dropped_and_named(view):
    rows = view["model_reports"][0]["server_rows"]
    whole = servers(view)
    rows[0]["span"] = None
    rows[1]["span"]["server_info"] = []
    rows[2]["span"]["end"] = 81
    rows[3]["span"]["start"] = True
    rows[4]["peer_id"] = "a\x1b"
    rows.append(7)
    state = load_state(view)
    assert {server.peer_id: server for server in state.servers} == {
        peer_id: whole[peer_id] for peer_id in ("server6", "server7")
    }
    text = "\n".join(state.warnings)
    for start in ("server1: dropped its row", "server2: dropped its row", "server3: dropped", "server4: dropped"):
        assert start in text
    assert r"a\x1b" in text
    assert "dropped a row: it has no span" in text


def test_the_same_peer_in_two_rows():
    rows = [("a", "online", 0, 4, {}), ("a", "online", 6, 10, {})]
    for order in (rows, rows[::-1]):
        state = load_state(monitor(order))
        assert [server.span for server in state.servers] == [Span(0, 4)]
        assert state.warnings[0].startswith("a: its newest records differ ")


def test_several_models(view):
    view["model_reports"].append(view["model_reports"][0] | {"dht_prefix": "bloom", "server_rows": []})
    assert len(load_state(view, prefix="llama-65b-hf").servers) == 7
    with pytest.raises(InputInvalid, match="several models; choose one with --prefix: bloom, llama-65b-hf"):
        load_state(view)
    with pytest.raises(NothingToPlan, match="it holds bloom, llama-65b-hf; did you mean 'bloom'"):
        load_state(view, prefix="blom")
    with pytest.raises(NothingToPlan, match="no server of 'bloom'"):
        load_state(view, prefix="bloom")


def test_num_blocks(view):
    assert load_state(view, num_blocks=100).num_blocks == 100
    view["model_reports"][0]["num_blocks"] = 0
    with pytest.raises(InputInvalid, match="num_blocks"):
        load_state(view)
    del view["model_reports"][0]["num_blocks"]
    with pytest.raises(InputInvalid, match="num_blocks"):
        load_state(view)


@pytest.mark.parametrize(
    ("document", "kind", "message"),
    [
        ({"model_reports": None}, InputInvalid, "model_reports is not a list"),
        ({"model_reports": []}, NothingToPlan, "it holds no models"),
        ({"model_reports": [None, {"dht_prefix": 5}]}, NothingToPlan, "it holds no models"),
        ({"model_reports": [{"dht_prefix": "m"}] * 2}, InputInvalid, "two model_reports have the dht_prefix 'm'"),
        ({"model_reports": [{"dht_prefix": "m", "num_blocks": 4}]}, InputInvalid, "last_updated is null"),
        (
            {"model_reports": [{"dht_prefix": "m", "num_blocks": 4}], "last_updated": 5},
            InputInvalid,
            "server_rows of 'm' is not a list",
        ),
    ],
)
def test_documents_that_are_out_of_order(document, kind, message):
    with pytest.raises(kind, match=message):
        load_state(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["span", "server_info", "start", "end", "start_block", "peer_id", "state", "throughput"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON, st.sampled_from(["span", "state", "peer_id", "adapters", None]))
def test_an_arbitrary_row_changes_nothing_else(junk, field):
    good = ("a", "online", 0, 4, {})
    document = monitor([good, ("b", "online", 4, 8, {})])
    rows = document["model_reports"][0]["server_rows"]
    rows[1] = junk if field is None else rows[1] | {field: junk}
    if rows[1] != rows[0] and not (isinstance(rows[1], dict) and rows[1].get("peer_id") == "a"):
        assert servers(document)["a"] == servers(monitor([good]))["a"]


@given(JSON)
def test_arbitrary_reports_give_a_state_or_an_error_of_ours(junk):
    for document in ({"model_reports": junk}, {"model_reports": [junk]}, monitor([], server_rows=junk)):
        with pytest.raises(PlanSwarmError):
            load_state(document)
