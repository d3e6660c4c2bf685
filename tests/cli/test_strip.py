"""The strip of throughput: one glyph a block, or a group of blocks, under its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cli.look import Look
from cli.strip import GLYPHS, Scale, group_size, row_length, strips
from tests.cli.build import Row, plan_of


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_one_glyph_a_block_and_the_bottleneck_marked() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 100.0), Row("b", (2, 4), (4, 6), 100.0)], 8)
    assert plain(strips(plan, Look(80)))[:-1] == [
        "0 now",
        "▄▄██××××",
        "^^",
        "0 plan",
        "▄▄▄▄▄▄××",
        "^^^^^^",
    ]


def test_ascii_says_the_same() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4), 100.0), Row("b", (2, 4), (4, 6), 100.0)], 8)
    lines = plain(strips(plan, Look(80, ascii=True)))
    assert lines[1] == "5599!!!!"
    assert lines[4] == "555555!!"
    assert all(line.isascii() for line in lines)
    assert lines[-1] == "9 180.00 RPS or more, in steps of 20.00; ^ bottleneck; ! hole."


def test_no_second_strip_where_nothing_changes() -> None:
    plan = plan_of([Row("a", (0, 4), (0, 4))], 4)
    assert plain(strips(plan, Look(80)))[:3] == ["0 now", "████", "^^^^"]
    assert len(strips(plan, Look(80))) == 4


def test_covered_without_throughput_is_not_a_hole() -> None:
    plan = plan_of([Row("a", (0, 2), (0, 2), 0.0), Row("b", (2, 3), (2, 3), 10.0)], 4)
    assert plain(strips(plan, Look(80)))[1:3] == ["▁▁█×", "^^"]


def test_eighty_blocks_fill_eighty_columns() -> None:
    plan = plan_of([Row("a", (0, 80), (0, 80))], 80)
    ruler, glyphs, marks, _ = plain(strips(plan, Look(80)))
    assert len(glyphs) == len(marks) == 80
    for block in range(10, 80, 10):
        assert ruler[block : block + 2] == str(block)


def test_folds_into_rows_of_about_equal_length() -> None:
    plan = plan_of([Row("a", (0, 126), (0, 126))], 126)
    lines = plain(strips(plan, Look(80)))
    assert [len(line) for line in lines[:-1] if line and line[0] in GLYPHS] == [70, 56]
    assert [line.split()[:2] for line in lines if "now" in line] == [["0", "now"], ["70", "now"]]


def test_groups_show_their_least_block_and_say_so() -> None:
    plan = plan_of([Row("a", (0, 1000), (0, 1000), 10.0), Row("b", (0, 999), (0, 999), 90.0)], 1000)
    lines = plain(strips(plan, Look(80)))
    glyphs = "".join(line for line in lines if line and line[0] in GLYPHS and "RPS" not in line)
    assert glyphs == "█" * 199 + GLYPHS[2]
    assert "each glyph is the least of 5 blocks" in " ".join(lines)


@pytest.mark.parametrize(("blocks", "width", "size"), [(80, 80, 1), (320, 80, 1), (321, 80, 2), (100_000, 80, 500)])
def test_group_sizes_are_round(blocks: int, width: int, size: int) -> None:
    assert group_size(blocks, width) == size


@given(st.integers(1, 100_000), st.integers(40, 200))
def test_rows_fit(blocks: int, width: int) -> None:
    length = -(-blocks // group_size(blocks, width))
    row = row_length(length, width)
    assert row <= width
    assert -(-length // row) <= 4


@given(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(1e-3, 1e8), st.booleans())
def test_more_throughput_never_looks_less(one: float, other: float, top: float, ascii_only: bool) -> None:
    scale = Scale(top, Look(80, ascii_only))
    low, high = sorted((one, other))
    assert scale.glyph(low) <= scale.glyph(high)
