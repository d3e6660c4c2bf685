"""That each competitor runs in a process of its own, whatever it does there."""

from __future__ import annotations

from benchmarks.competitors import COMPETITORS, OURS, Moment, Task
from benchmarks.runner import changes, run
from tests.solver.cases import holds, problem, spans

CASE = problem(4, holds("0:2", 1.0), holds("2:4", 3.0))
BY_NAME = {competitor.name: competitor for competitor in COMPETITORS}


def test_an_answer_comes_with_its_worth_seconds_and_memory():
    (row,) = run(BY_NAME["equal stages"], Task(CASE))
    assert (row["competitor"], row["of"], row["limit"]) == ("equal stages", "", None)
    assert (row["bottleneck"], row["objective"], row["holes"], row["loads"]) == (1.0, 1.0, 0, 0)
    assert (row["stock_loads"], row["placement"]) == (0, spans("0:2 2:4"))
    assert row["seconds"] >= 0
    assert row["memory_mib"] >= row["memory_before_mib"] > 1


def test_who_has_no_answer_says_why():
    (row,) = run(BY_NAME["exo"], Task(CASE))
    assert "fixed" in row["why_not"]
    assert "objective" not in row


def test_who_does_not_come_to_an_end_is_ended():
    (row,) = run(OURS, Task(CASE, seconds=0.0), grace=0.0)
    assert row == {"competitor": "ours", "limit": 0.0, "of": "", "why_not": "ended after 0 s without an answer"}


def test_of_a_search_that_goes_on_telling_the_same_only_what_is_new_is_kept():
    told = [Moment(0.1, None, 9.0), Moment(0.2, 5.0, 9.0), Moment(0.3, 5.0, 9.0), Moment(0.4, 5.0, 9.0)]
    assert changes(told) == [told[0], told[1], told[3]]
    assert changes(told[:2]) == told[:2]
    assert changes([]) == []
