"""Tables and plots of figures that a reader can see through, and what a run leaves of earlier ones."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarks.__main__ as command
from benchmarks import growth, quality, quality_tables
from benchmarks.competitors import COMPETITORS, OURS
from benchmarks.instances import INSTANCES

COMMON = {"instance": "small", "seconds": 0.5, "memory_mib": 100.0, "memory_before_mib": 90.0}
FOUND = {"holes": 0, "loads": 3, "stock_loads": 8, "moves": 1, "note": "", "moments": []}
ROWS = [
    {**COMMON, **FOUND, "competitor": "Petals rule", "of": "best", "limit": None, "bottleneck": 95.0, "objective": 90.0,
     "bound": None, "ends": [{"bottleneck": 95.0, "holes": 0, "loads": 8},
                             {"bottleneck": 80.0, "holes": 0, "loads": 4}]},
    {**COMMON, **FOUND, "competitor": "Petals rule", "of": "imagined best", "limit": None, "bottleneck": 96.0,
     "objective": 92.0, "bound": None, "holes": 1, "stock_loads": 12},
    {**COMMON, "competitor": "exo", "of": "", "limit": None, "why_not": "lengths are fixed"},
    {**COMMON, **FOUND, "competitor": "equal stages", "of": "", "limit": None, "bottleneck": 99.5, "objective": 99.5,
     "bound": None, "holes": 2},
    {**COMMON, "competitor": "HiGHS", "of": "", "limit": 60.0, "bound": 120.0, "note": "", "why_not": "no placement",
     "moments": []},
    {**COMMON, **FOUND, "competitor": "ours", "of": "", "limit": 60.0, "bottleneck": 100.0, "objective": 99.0,
     "bound": 100.0, "moments": [[0.1, 80.0, None], [0.3, 99.0, 110.0], [0.4, None, 100.0]]},
]  # fmt: skip
QUALITY = {
    "seconds": 60.0,
    "workers": 2,
    "seed": 0,
    "shuffles": [0, 1],
    "sources": {"exo": "its code"},
    "instances": [
        {
            "instance": "small",
            "servers": 3,
            "blocks": 8,
            "columns": 12,
            "staying": {"bottleneck": 80.0, "holes": 0, "loads": 0},
        }
    ],
    "rows": ROWS,
}
SIZED = {"columns": 10, "objective": 98.0, "bound": 100.0, "memory_before_mib": 50.0}
GROWTH = {
    "seconds": 60.0,
    "seed": 11,
    "workers": 2,
    "rows": [
        {**SIZED, "grows": grows, "servers": 80, "blocks": 80, grows: size, "first_seconds": size / 10,
         "close_seconds": size**2 / 100, "seconds": 60.0, "memory_mib": 50.0 + size}
        for grows in ("servers", "blocks")
        for size in (10, 100, 1000)
    ],
}  # fmt: skip
STARTUP = [{"call": "true", "best_seconds": 0.01, "median_seconds": 0.02}]


def test_gaps_are_to_the_lowest_bound_that_anybody_proved():
    assert quality.proven(ROWS) == 100.0
    assert quality.proven(ROWS[:3]) is None
    assert quality.below(ROWS[0], 100.0) == pytest.approx(0.1)
    assert quality.below(ROWS[2], 100.0) is None
    assert quality.below(ROWS[-1], 98.9) == 0.0


def test_ours_is_run_at_1_10_and_60_seconds_and_a_rule_once():
    assert quality.limits(OURS, 60.0) == [1.0, 10.0, 60.0]
    assert quality.limits(OURS, 5.0) == [1.0, 5.0]
    assert all(quality.limits(one, 60.0) == [60.0] for one in COMPETITORS if one is not OURS)
    alone = [instance for instance in INSTANCES if instance.ours_alone]
    assert quality.expected_seconds(alone, 60.0) == 81.0


def test_the_tables_say_who_reached_what_and_who_is_missing_and_why():
    text = quality_tables.table(QUALITY)
    overview = "| small | – | 90.00 | 92.00 (1 holes) | 99.50 (2 holes) | – | **99.00** | 100.00 |"
    heads = "| instance | best known | Petals rule, best | Petals rule, imagined best | equal stages |"
    assert heads in text
    assert overview.replace(" – | **", " **") in text
    assert "| small | 80.00 to 95.00 | 12 | 3 | 0.25 | 100.00 | 3 | 96.00 (1 holes) | 12 |" in text
    assert "| ours, 60 s | 100.00 | 99.00 | 100.00 | 1.00 | 3 | 0.50 | 100 |  |" in text
    assert "| HiGHS, 60 s | – | – | 120.00 | – | – | 0.50 | 100 | no placement |" in text
    assert "- exo: lengths are fixed: small" in text
    assert "- exo: its code" in text


def test_a_plan_is_no_worse_if_it_has_no_more_holes_and_the_bottleneck_at_least():
    few, many = ({"bottleneck": 5.0, "holes": 1, "loads": 0}, {"bottleneck": 4.0, "holes": 0, "loads": 9})
    for bottleneck, holes, loads in ((4.0, 0, 9), (4.1, 0, None), (5.0, 1, 0), (6.0, 2, 0), (9.0, 1, 9)):
        end = {"bottleneck": bottleneck, "holes": holes, "loads": 1}
        assert quality_tables.no_worse(end, (few, many)) == loads


def test_slopes_are_powers():
    assert growth.slope(GROWTH["rows"], "servers", "first_seconds") == pytest.approx(1.0)
    assert growth.slope(GROWTH["rows"], "blocks", "close_seconds") == pytest.approx(2.0)
    assert growth.slope(GROWTH["rows"][:2], "servers", "seconds") is None
    early = [{**row, "first_seconds": 0.1} for row in GROWTH["rows"]]
    assert growth.slope(early, "servers", "first_seconds") is None
    text = growth.table(GROWTH)
    assert "| *slope in servers* | | | 1.00 | 2.00 | 0.00 | | 1.00 |" in text
    assert "| 1,000 | 80 | 10 | 100.00 | 10000.00 | 60.00 | 2.00 | 1000 |" in text


def test_the_sizes_go_from_10_to_10000_servers_and_from_24_to_1000_blocks():
    sizes = growth.sizes(quick=False)
    servers = [count for grows, count, _ in sizes if grows == "servers"]
    blocks = [count for grows, _, count in sizes if grows == "blocks"]
    assert (servers[0], servers[-1], blocks[0], blocks[-1]) == (10, 10_000, 24, 1_000)


def test_plots_are_the_same_for_the_same_figures_and_tell_no_date(tmp_path):
    from benchmarks import plots

    for name in ("one", "other"):
        plots.quality_over_time(deepcopy(QUALITY), tmp_path / f"{name}-quality.svg")
        plots.cost_over_size(deepcopy(GROWTH), tmp_path / f"{name}-cost.svg")
    for kind, words in (("quality", "Petals rule"), ("cost", "first plan, slope 1.00")):
        text = (tmp_path / f"one-{kind}.svg").read_text()
        assert text == (tmp_path / f"other-{kind}.svg").read_text()
        assert words in text
        assert "dc:date" not in text
        ElementTree.fromstring(text)  # noqa: S314 - it is our own


def test_a_part_that_is_not_run_keeps_what_the_file_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command.startup, "measure", lambda: STARTUP)
    monkeypatch.setattr(command.machine, "describe", lambda: {"processor": "new"})
    old = {"machine": {"processor": "old"}, "startup": [], "growth": GROWTH, "quality": [{"of an older form": 1}]}
    (tmp_path / "results.json").write_text(json.dumps(old))
    run(monkeypatch, "--only", "startup", "--out", str(tmp_path))
    assert "startup: up to 0 minutes" in capsys.readouterr().err.replace("up to 1", "up to 0")
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == {
        "machine": {"startup": {"processor": "new"}, "growth": {"processor": "old"}},
        "startup": STARTUP,
        "growth": GROWTH,
    }
    text = (tmp_path / "results.md").read_text()
    assert text.index("processor: new") < text.index("| `true` |") < text.index("processor: old")
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.md", "cost.svg"}


def test_a_trial_writes_nothing_unless_it_is_told_where(monkeypatch, capsys):
    monkeypatch.setattr(command.quality, "measure", lambda instances, seconds, say: {**QUALITY, "seconds": seconds})
    monkeypatch.setattr(command.machine, "describe", lambda: {"processor": "new"})
    monkeypatch.setattr(command, "write", lambda *_: pytest.fail("it writes"))
    run(monkeypatch, "--only", "quality", "--instances", "churn-80x10-1")
    assert "## Quality" in capsys.readouterr().out


def test_a_run_that_is_broken_off_leaves_the_files_as_they_were(tmp_path, monkeypatch):
    def broken() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.startup, "measure", broken)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, "--only", "startup", "--out", str(tmp_path))
    assert (tmp_path / "results.json").read_text() == "{}"
    assert not (tmp_path / "results.md").exists()


def test_a_name_that_no_instance_has_is_said(monkeypatch):
    with pytest.raises(SystemExit, match="no instance is called nobody"):
        run(monkeypatch, "--instances", "nobody")


def test_the_files_beside_the_code_are_where_a_whole_run_writes():
    assert Path(command.__file__).parent == command.HERE


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
    command.main()
