"""What is made of the figures of a GPU, which the tests have none of: by hand, blocks of 1 GiB each."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import gpu_report
from benchmarks.gpu_report import GIB, figures_of

BACK = "device memory of dropped blocks is back before the first load"
AS_BEFORE = "device memory is that of before in the end"
GRAPHS = "CUDA graphs are those of before, and replay right"
LATE = "no token is late"
NEW = "new blocks answer right"


def memory(allocated: float, peak: float = 0.0) -> dict[str, int]:
    gib = {"allocated": allocated, "reserved": allocated + 1, "peak": peak, "free": 80 - allocated, "total": 80}
    return {name: int(value * GIB) for name, value in gib.items()}


def seen(span: list[int], loads: list[int], allocated: float) -> dict[str, Any]:
    return {
        "span": span,
        "loads": loads,
        "events": [[0.0, f"load {block}, alive [2, 3]"] for block in loads],
        "addresses": {str(block): [block] for block in range(*span)},
        "bytes": {str(block): GIB for block in range(*span)},
        "memory": memory(allocated),
        "device": "one",
    }


def replay(**more: Any) -> dict[str, Any]:
    return {"captured": 3, "of": 3, "same": True, "moved": 0.0, "wrong": 0.001, **more}


def session(**more: Any) -> dict[str, Any]:
    return {"ended": "whole", "steps": 3, "wrong": 0.001, **more}


def told(dropped: float = 2.0, after: float = 4.0, graph: Any = None, new: Any = None, slow: float = 0.2) -> Any:
    moments = [
        {"what": "drain", "at": 10.0, "memory": memory(4.0)},
        {"what": "free", "at": 12.5, "memory": memory(4.0)},
        {"what": "load", "at": 12.75, "memory": memory(dropped), "block": 4},
        {"what": "loaded", "at": 14.0, "memory": memory(3.0, 3.5), "block": 4, "read": 1.0, "convert": 0.25},
        {"what": "load", "at": 14.0, "memory": memory(3.0), "block": 5},
        {"what": "loaded", "at": 15.5, "memory": memory(4.0, 4.5), "block": 5, "read": 1.25, "convert": 0.25},
        {"what": "done", "at": 16.0, "memory": memory(after)},
    ]
    return {
        "before": seen([0, 4], [0, 1, 2, 3], 4.0),
        "after": seen([2, 6], [0, 1, 2, 3, 4, 5], after),
        "changed": {"dropped": [0, 1], "leaked": [], "failure": None, "moments": moments},
        "replayed": [{"2": replay(), "3": replay()}, {"2": replay(), "3": graph or replay()}],
        "begun": 10.0,
        "ended": 16.0,
        "tokens": [{"at": at, "seconds": slow if at > 10 else 0.1} for at in (8.0, 9.0, 11.0, 15.0, 17.0)],
        "sessions": {
            "0:4 before": session(),
            "2:4 throughout": session(),
            "4:6 after": new or session(),
            "2:6 after": session(),
        },
    }


def test_what_went_well_is_told_in_its_figures():
    found = figures_of(told(), "nf4")
    assert set(found["checks"].values()) == {True}
    assert found["dropped_bytes"] == 2 * GIB
    assert found["memory"]["peak_while_loading"] == 4.5 * GIB
    assert [found["seconds"][step] for step in ("drain", "free", "whole")] == [2.5, 0.25, 6.0]
    assert [found["tokens"][when] for when in ("before", "during", "after")] == [2, 2, 1]
    figures = {"model": {"blocks": 6, "hidden": 8, "intermediate": 16}, "seconds": 60.0, "machine": {}}
    assert gpu_report.is_well({**figures, "formats": {"nf4": found}})
    failed = {**figures, "formats": {"nf4": found, "float16": {"failed": "OSError: no room"}}}
    assert not gpu_report.is_well(failed)
    table = gpu_report.table(failed)
    assert "| nf4 on one |" in table
    assert "| the same, blocks dropped and nothing loaded yet | 2.00 / 3.00 / 78.00 |" in table
    assert "float16 failed: OSError: no room" in table


@pytest.mark.parametrize(
    ("amiss", "what"),
    [
        ({"dropped": 3.0}, BACK),
        ({"after": 5.0}, AS_BEFORE),
        ({"graph": replay(same=False)}, GRAPHS),
        ({"graph": replay(captured=2)}, GRAPHS),
        ({"graph": replay(wrong=0.5)}, GRAPHS),
        ({"slow": 1.2}, LATE),
        ({"new": session(wrong=0.5)}, NEW),
        ({"new": {"ended": "P2PHandlerError", "said": "refused"}}, NEW),
    ],
)
def test_what_is_amiss_is_named_and_makes_it_fail(amiss, what):
    found = figures_of(told(**amiss), "float16")
    assert [name for name, answer in found["checks"].items() if answer is not True] == [what]
    figures = {"model": {"blocks": 6, "hidden": 8, "intermediate": 16}, "seconds": 60.0, "machine": {}}
    figures["formats"] = {"float16": found}
    assert not gpu_report.is_well(figures)
    assert f"| **{what}** | NO |" in gpu_report.table(figures)


def test_a_petals_without_graphs_is_not_blamed():
    none = {**told(), "replayed": [{"2": replay(captured=0, of=0)}] * 2}
    assert figures_of(none, "nf4")["checks"][GRAPHS] == gpu_report.NO_GRAPHS
