"""What a person reads: the right words first, and never a line too wide."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cli import words
from cli.look import Look, look_of
from cli.sentence import TIE_BREAKS
from cli.view import to_text, view
from planner.plan import Baseline, Explanation, Plan, Staying
from planner.policy import Policy
from solver import stages
from solver.problem import Span, Stage
from tests.cli.build import SCHEMA, Row, plan_of, real_dump, with_waves


def shown(plan: Plan, width: int = 80, ascii_only: bool = False) -> str:
    return "\n".join(line.plain for line in view(plan, Look(width, ascii_only)))


def first(plan: Plan) -> str:
    """The first paragraph on one line."""
    return " ".join(shown(plan, 100).partition("\n\n")[0].split())


# The sentence -------------------------------------------------------------------------------------------


def test_a_move_that_gains() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 100.0), Row("b", (4, 6), (4, 6), 50.0), Row("c", (0, 2), (4, 6), 25.0)], 6)
    assert first(plan) == (
        "Move 1 server: the bottleneck rises from 50.00 to 75.00 RPS (+50 %). "
        "Proven: no placement has a better objective."
    )


def test_nothing_to_do() -> None:
    assert first(plan_of([Row("a", (0, 4), (0, 4))], 4)) == (
        "Nothing to do: the placement is the best one for this objective; proven."
    )


def test_nothing_better_found() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 977.0)], 4, status="feasible", proven=False, slack=23.0)
    assert first(plan) == "Nothing to do: no better placement found in 0.42 s. Not proven; at most 2.3 % is left."


def test_a_gap_too_small_for_figures() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 977.0)], 4, status="feasible", proven=False, slack=0.001)
    assert first(plan).endswith("Not proven; under 0.001 % is left.")


def test_nothing_to_do_but_holes_stay() -> None:
    assert "; 2 blocks without a server; proven." in first(plan_of([Row("a", (0, 4), (0, 4))], 6))


def test_interrupted() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 2))], 4, proven=False, slack=100.0, interrupted=True)
    assert "Interrupted: the best placement found in 0.42 s; at most" in first(plan)


@pytest.mark.parametrize(
    ("rows", "blocks", "text"),
    [
        ([Row("a", (0, 2), (2, 4)), Row("b", (0, 2), (0, 2))], 4, "Move 1 server: all 2 holes are closed, and the"),
        ([Row("a", (0, 3), (1, 4)), Row("b", (0, 3), (0, 3))], 4, "Move 1 server: the hole is closed, and the"),
        ([Row("a", (0, 2), (2, 4)), Row("b", (0, 2), (0, 2))], 5, "Move 1 server: 2 of 3 holes closed, and the"),
        ([Row("a", (0, 4), (0, 4)), Row("b", None, (0, 2))], 4, "Place 1 newcomer: the bottleneck stays at 1000.00"),
        ([Row("a", (0, 4), None), Row("b", (0, 4), (0, 4))], 4, "Drain 1 server: the bottleneck falls from 2000.00 to"),
        ([Row("a", (0, 4), None), Row("b", (0, 2), (0, 2))], 4, "Drain 1 server: 2 blocks more without a server, 2 in"),
        (
            [Row("a", (0, 2), (2, 4)), Row("b", (2, 4), (0, 2)), Row("c", None, (0, 4)), Row("d", (0, 1), None)],
            4,
            "Move 2 servers, place 1 newcomer and drain 1 server: ",
        ),
    ],
)
def test_what_is_done(rows: list[Row], blocks: int, text: str) -> None:
    assert first(plan_of(rows, blocks)).startswith(text)


def test_ties_cut_short_leave_the_proof() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 2)), Row("b", (0, 4), (0, 4))], 4)
    solved = (Stage("objective", 1.0, True, 0.1), Stage("weakest", 1.0, False, 0.1), Stage("order", None, False, 0.1))
    plan = replace(plan, search=replace(plan.search, stages=solved))
    assert "Proven: no placement has a better objective." in shown(plan)


def test_the_stages_that_only_break_ties_are_those_of_the_search() -> None:
    assert TIE_BREAKS == stages.TIE_BREAKS


# The figures and the tables -----------------------------------------------------------------------------


def test_figures_stand_side_by_side() -> None:
    text = shown(real_dump())
    assert "bottleneck, RPS      762.94      762.94        762.94" in text
    assert "blocks loaded             –          10             0" in text
    assert "holes" not in text


def test_staying_has_a_column_where_it_differs_from_now() -> None:
    plan = replace(real_dump(), staying=Staying(900.0, 900.0, 0))
    assert "without moves" in shown(plan)
    assert "without moves" not in shown(real_dump())


def test_what_joining_servers_bring_is_no_merit_of_the_moves() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 100.0), Row("b", (4, 6), (4, 6), 50.0), Row("c", (0, 2), (4, 6), 25.0)], 6)
    plan = replace(plan, staying=Staying(70.0, 70.0, 0))
    assert "rises from 50.00 to 75.00 RPS (70.00 without moves)." in first(plan)


def test_servers_that_are_free_to_move_and_stay() -> None:
    assert "1 server stays, free to move." in shown(plan_of([Row("a", (0, 4), (0, 4))], 4)).splitlines()


def test_a_rule_that_does_not_settle_is_told() -> None:
    plan = replace(real_dump(), baseline=Baseline(1.0, 0, 1.0, 99, 9, 7, False))
    assert "still moves servers after 7 rounds" in shown(plan)


def test_movers_and_those_that_stay() -> None:
    lines = shown(real_dump()).splitlines()
    assert "server6  2069.19  47:57  20:30     0      10       10  4 min 40 s  host-c" in lines
    assert "6 servers stay; free to move: 5, pinned by its agent: 1 (server7)." in lines


def test_newcomers_and_drained_ones() -> None:
    lines = shown(plan_of([Row("a", None, (0, 4)), Row("b", (2, 6), None), Row("c", (0, 6), (0, 6))], 6)).splitlines()
    assert "a       1000.00   new  0:4     0       4        0  112 s" in lines
    assert "b       1000.00   2:6    –     0       0        4      –" in lines


def test_both_ends_of_a_long_peer_id_show() -> None:
    peer = "12D3KooWJGPyMJuBHgbYsVsC5nHhNBSVUMcJ1D2VKkAMFvyFHp9q"
    text = shown(plan_of([Row(peer, (0, 4), (2, 6), name="a name"), Row("b", (0, 6), (0, 6))], 6))
    row = next(line for line in text.splitlines() if line.startswith("12D3"))
    head, tail = row.split()[0].split("…")
    assert peer.startswith(head)
    assert peer.endswith(tail)
    assert min(len(head), len(tail)) >= 6


def test_waves_are_numbered_where_there_are_several() -> None:
    rows = [Row("a", (0, 4), (2, 6)), Row("b", (2, 6), (0, 4))]
    assert "wave" in shown(with_waves(plan_of(rows, 6)))
    assert "wave" not in shown(plan_of(rows, 6))


def test_explanations() -> None:
    reason = "elsewhere it would leave blocks 0:7 to server1 alone"
    plan = replace(
        real_dump(), explanations=(Explanation("server3", Span(30, 63), -12.5, -10.0, 23, True, "restart", reason),)
    )
    lines = shown(plan).splitlines()
    assert "server3  stays 7:40  30:63       −12.50      −10.00    +23  yes" in lines
    assert f"  {reason}; Petals' rule says" in lines


def path_of(rows: list[Row], blocks: int) -> str:
    return next(line for line in shown(plan_of(rows, blocks), 100).splitlines() if line.startswith("path "))[14:]


def test_how_many_servers_a_request_needs() -> None:
    a, b, c = Row("a", (0, 2), (0, 2)), Row("b", (2, 3), (2, 4)), Row("c", (3, 4), (3, 4))
    assert path_of([a, b, c], 4) == "a request needs 3 servers now, 2 in the plan"
    assert path_of([Row("a", (0, 4), (0, 4))], 4) == "a request needs 1 server"
    assert path_of([a], 4) == "no request can pass, as there are holes"
    assert path_of([a, Row("b", (0, 2), (2, 4))], 4) == "no request can pass now; in the plan it needs 2 servers"
    drained = [a, Row("b", (2, 4), None)]
    assert path_of(drained, 4) == "a request needs 2 servers now; in the plan none can pass, as there are holes"


def test_fewer_hops_are_in_the_sentence_where_they_were_asked_for() -> None:
    rows = [Row("a", (0, 2), (0, 2)), Row("b", (2, 3), (2, 4)), Row("c", (3, 4), (3, 4))]
    assert "a request needs" not in first(plan_of(rows, 4))
    text = first(plan_of(rows, 4, policy=Policy(max_hops=2)))
    assert text.startswith(
        "Move 1 server: the bottleneck stays at 1000.00 RPS, and a request needs 2 servers, 3 before."
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CP-SAT", "proven by CP-SAT"),
        ("sweep", "proven by a sweep"),
        ("prices", "proven by prices"),
        ("averaging", "proven by averaging"),
        ("only placement", "the only placement"),
    ],
)
def test_what_proved_the_bound(name: str, text: str) -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4))], 4, bound_by=name)
    assert f"bound         no objective exceeds 1000.00 RPS (gap 0 %), {text}" in shown(plan).splitlines()
    assert name in SCHEMA["properties"]["objective"]["properties"]["bound_by"]["enum"]


# What cannot be trusted ---------------------------------------------------------------------------------


def test_untrusted_text_cannot_act_on_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202ereversed\r\nnew line"
    plan = plan_of(
        [Row(f"peer{evil}", (0, 4), (2, 6), name=evil, movable=False, why_not=evil), Row("b", (0, 6), (0, 6))],
        6,
        prefix=evil,
        warnings=(evil,),
    )
    text = shown(plan, 120)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert r"\x1b[2J" in text


def test_ascii_is_ascii() -> None:
    plan = plan_of([Row("пир", (0, 4), (2, 6), name="名前"), Row("b", (0, 6), (0, 6))], 8, warnings=("größer",))
    assert shown(plan, 80, ascii_only=True).isascii()


# Width and colour ---------------------------------------------------------------------------------------


NAMES = st.text(max_size=80)
SPANS = st.tuples(st.integers(0, 199), st.integers(1, 60)).map(lambda pair: (pair[0], min(200, sum(pair))))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan: the figures need not be a good one's."""
    rows = [
        Row(
            peer_id=f"{draw(NAMES)}{index}",
            current=draw(st.none() | SPANS) if index else (0, 5),
            target=draw(st.none() | SPANS),
            throughput=draw(st.floats(0, 1e7)),
            name=draw(st.none() | NAMES),
            movable=draw(st.booleans()),
            why_not=draw(st.none() | NAMES),
        )
        for index in range(draw(st.integers(1, 5)))
    ]
    status = draw(st.sampled_from(["optimal", "feasible", "nothing_to_do", "infeasible"]))
    plan = plan_of(
        rows,
        draw(st.sampled_from([200, 1_000])),
        prefix=draw(st.text(min_size=1, max_size=300)),
        status=status,
        slack=draw(st.floats(0, 1e6)),
        proven=draw(st.booleans()),
        interrupted=draw(st.booleans()),
        warnings=tuple(draw(st.lists(st.text(max_size=300), max_size=3))),
    )
    explained = tuple(
        Explanation(
            row.peer_id, Span(3, 100_000), draw(st.none() | st.floats(-1e9, 1e9)), 0.0, -7, True, None, row.peer_id
        )
        for row in rows[:2]
    )
    return replace(plan, explanations=explained if draw(st.booleans()) else ())


@given(plans(), st.integers(40, 200), st.booleans())
def test_no_line_is_too_wide(plan: Plan, width: int, ascii_only: bool) -> None:
    lines = view(plan, Look(width, ascii_only))
    assert max(cell_len(line.plain) for line in lines) <= width
    assert all("\n" not in line.plain for line in lines)
    if ascii_only:
        assert all(line.plain.isascii() for line in lines)


@given(plans(), st.integers(40, 200))
def test_colour_changes_nothing_but_colour(plan: Plan, width: int) -> None:
    lines = view(plan, Look(width))
    coloured = to_text(lines, Console(file=io.StringIO(), force_terminal=True, width=width), colour=True)
    uncoloured = "\n".join(line.plain for line in lines)
    assert Text.from_ansi(coloured).plain.rstrip("\n") == uncoloured
    assert "\x1b" not in to_text(lines, Console(file=io.StringIO()), colour=False)


def test_a_stream_that_knows_no_more_gets_ascii() -> None:
    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="ascii"), 80, False).ascii
    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="latin-1"), 80, False).ascii
    assert not look_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), 80, False).ascii
    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), 80, True).ascii
    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), 3, False).width == 40


# Words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.987, "99 %"), (0.0234, "2.3 %"), (0.00044, "0.04 %"), (1e-9, "under 0.001 %"), (12.0, "1200 %")],
)
def test_percentages(share: float, text: str) -> None:
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.42, "0.42 s"), (56, "56 s"), (280, "4 min 40 s"), (7500, "2 h 05 min"), (119.7, "2 min 00 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_blocks_are_written_as_spans_are() -> None:
    assert words.blocks([3, 4, 5, 9], Look()) == "3:6, 9:10"
    assert words.blocks(range(0, 20, 2), Look()) == "0:1, 2:3, 4:5, 6:7 and 6 more"
    assert words.blocks([], Look()) == "–"
