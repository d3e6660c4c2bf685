from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.text import escape, is_plain, show, some

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, with spaces", "plain text, with spaces"),
        ("Zürich 東京", "Zürich 東京"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\nb\r\tc\x00", r"a\x0ab\x0d\x09c\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("a\u200bb\u2066c\ufeff", r"a\u200bb\u2066c\ufeff"),
        ("line\u2028para\u2029nbsp\xa0", r"line\u2028para\u2029nbsp\xa0"),
        ("filler\u3164\ufe0f", r"filler\u3164\ufe0f"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("lone \ud800", r"lone \ud800"),
        ("", ""),
    ],
)
def test_what_a_terminal_acts_on_or_hides_is_shown_as_code(text, shown):
    assert escape(text) == shown


def test_long_text_is_cut_with_an_ellipsis():
    assert escape("abcde", 5) == "abcde"
    assert escape("abcdef", 5) == "abcd…"
    assert escape("x" * 10**6, 40) == "x" * 39 + "…"


def test_a_cut_never_splits_an_escape():
    assert escape("abc\x1bdef", 7) == "abc…"
    assert escape("abc\x1b", 7) == r"abc\x1b"
    assert escape("\x1b", 3) == "…"


@given(ANY_TEXT, st.integers(1, 30))
def test_escaped_text_is_one_visible_line_within_its_limit(text, limit):
    shown = escape(text, limit)
    assert len(shown) <= limit
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for c in shown)
    shown.encode("utf-8")


def test_is_plain():
    assert is_plain("12D3KooWabc")
    assert not any(is_plain(text) for text in ("a b", "a\tb", "a\u200b", "\u3164", "a\x1b"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (2.5, "2.5"),
        (float("nan"), "nan"),
        (7, "7"),
        (10**400, "a huge integer"),
        ("a\x1b", r"'a\x1b'"),
        ([[[1]]], "a value of type list"),
        ({}, "a value of type dict"),
    ],
)
def test_show(value, shown):
    assert show(value) == shown


def test_some():
    assert some([1, 2]) == "1, 2"
    assert some(range(1007), most=3) == "0, 1, 2 and 1,004 more"
    assert some(["a\x1b"]) == r"a\x1b"


def test_a_huge_integer_is_not_written_out():
    assert show(1 << 100_000) == "a huge integer"
