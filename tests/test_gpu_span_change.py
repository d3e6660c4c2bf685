"""That the benchmark of a GPU runs, small and on a CPU, as a process of its own; what a GPU does is for one to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = "benchmarks/gpu_span_change.py"
NOT_HERE = "not on a CPU"
ONLY_ON_A_GPU = {
    "device memory of dropped blocks is back before the first load",
    "device memory is that of before in the end",
    "CUDA graphs are those of before, and replay right",
}


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def living_in(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["name", "environ"]):
        if (process.info["environ"] or {}).get("TMPDIR", "").startswith(str(folder)):
            found.append(process.info["name"])
    return found


@pytest.mark.timeout(240)  # five processes import torch, and two of them Petals
def test_a_change_of_span_is_measured_on_a_cpu_and_what_only_a_gpu_has_is_named(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")  # a short name, as paths of sockets are short
    written = folder / "figures.json"
    done = run("--device", "cpu", "--json", str(written), folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == [written]
    assert living_in(folder) == []

    figures = json.loads(written.read_text())
    formats = figures["formats"]
    assert {name for name, one in formats.items() if one == NOT_HERE} == {"nf4", "float16"}
    one = formats["float32"]
    assert one["loaded"] == [4, 5]
    assert one["alive_at_first_load"] == "[2, 3]"
    assert one["memory"] == NOT_HERE
    assert {what for what, answer in one["checks"].items() if answer == NOT_HERE} == ONLY_ON_A_GPU
    assert {answer for what, answer in one["checks"].items() if what not in ONLY_ON_A_GPU} == {True}
    assert [load["block"] for load in one["seconds"]["load"]] == [4, 5]
    assert one["seconds"]["whole"] > one["seconds"]["drain"] > 0
    assert one["tokens"]["slowest_since"] <= 1.0 + one["tokens"]["slowest_before"]
    assert min(one["tokens"][when] for when in ("before", "during", "after")) > 0
    assert {session["ended"] for session in one["sessions"].values()} == {"whole"}
    assert max(session["wrong"] for session in one["sessions"].values()) < 1e-5
    assert one["replayed"].keys() == {"2", "3"}
    assert {block["moved"] for block in one["replayed"].values()} == {0.0}

    assert "| float32 on a CPU |" in done.stdout
    assert f"nf4: {NOT_HERE}" in done.stdout
    for what in one["checks"]:
        assert f"| **{what}** | {NOT_HERE if what in ONLY_ON_A_GPU else 'yes'} |" in done.stdout


def test_without_a_gpu_it_says_so_in_one_line(tmp_path):
    done = run(folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no CUDA device here; --device cpu runs it small\n"
    assert list(tmp_path.iterdir()) == []
