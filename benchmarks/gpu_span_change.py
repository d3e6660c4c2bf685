"""A whole change of span on a CUDA device, with blocks as large as those of Llama 65B.

Usage: python -m benchmarks.gpu_span_change [--device cpu] [--json FILE]

A real server holds 0:4 of a model with random weights, made here, and changes to 2:6 while a stock client generates
through 2:4; once with ``nf4`` and once with ``float16``. Each thing that must be so is checked by name, and what was
measured is printed; exit code 1 if anything isn't so. With ``--device cpu`` a tiny model in ``float32`` does the same;
what only a GPU has is then listed as "not on a CPU". Takes 10 GB of disk, 10 GB of a GPU, and some minutes.

The table of a GPU is still to be measured: so far this has run on CPUs only. Graphs are captured before the change and
after it; what it does not try is a kept block whose very first token comes while another block is being loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: what Python would look through first is then not the folder of the packages
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import gpu_report, machine
from benchmarks.private_swarm import ROOT
from benchmarks.talking import Client, Server, process
from planner.agent.nursery import remove

SIZES = {"cuda": {"hidden": 8192, "intermediate": 22016}, "cpu": {"hidden": 64, "intermediate": 128}}
FORMATS: dict[str, dict[str, dict[str, str]]] = {
    "cuda": {
        "nf4": {"torch_dtype": "float16", "quant_type": "nf4"},
        "float16": {"torch_dtype": "float16", "quant_type": "none"},
    },
    "cpu": {"float32": {"torch_dtype": "float32", "quant_type": "none"}},
}
BLOCKS = 6
LENGTH = 600
"""Tokens of the longest session, which is ended once the change has been seen."""
PAUSE = 0.1
"""Seconds between two tokens of it: so it outlasts a change of a minute."""
SOME = 10
"""Tokens before the change, and of each session after it."""


def measure(device: str, folder: Path) -> dict[str, Any]:
    """All figures; `folder` takes the model, and what processes leave behind."""
    begun, model = time.monotonic(), folder / "model"
    sizes = {**SIZES[device], "blocks": BLOCKS}
    written_as = "float16" if device == "cuda" else "float32"
    _say(f"writing {BLOCKS} blocks with random weights")
    options = json.dumps({**sizes, "dtype": written_as, "device": device})
    subprocess.run(
        [sys.executable, "-m", "benchmarks.random_llama", str(model), options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},  # torch leaves a folder behind
        check=True,
    )
    formats: dict[str, Any] = {}
    for name, form in FORMATS[device].items():
        _say(f"{name}: a server of 0:4 changes to 2:6")
        try:
            formats[name] = gpu_report.figures_of(_change(device, form, model, folder), name)
        except Exception as error:  # what one format cannot do says nothing of the other
            traceback.print_exc()
            formats[name] = {"failed": f"{type(error).__name__}: {error}"}
            for log in sorted(folder.glob("*.log")):
                _say(f"{log.name} ends with:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
    if device == "cpu":
        formats |= dict.fromkeys(FORMATS["cuda"], gpu_report.NOT_ON_A_CPU)
    return {
        "machine": {**machine.describe(), **{name: version(name) for name in ("petals", "bitsandbytes")}},
        "model": sizes,
        "formats": formats,
        "seconds": time.monotonic() - begun,
    }


def _change(device: str, form: dict[str, str], model: Path, folder: Path) -> dict[str, Any]:
    """Change the span under a client; what server and client tell of it."""
    serving = {"model": str(model), "blocks": "0:4", "device": device, **form}
    asking = {"model": str(model), "reference": {"length": LENGTH, "device": device, **form}}
    with (
        process("benchmarks.device_server", serving, folder) as one,
        process("benchmarks.span_client", asking, folder) as other,
    ):
        server, client = Server(one), Client(other)
        seen = server.until(lambda seen: seen["span"] == [0, 4] or seen["said"]["state"] == "failed")
        if seen["span"] != [0, 4]:
            raise RuntimeError(seen["said"]["why"])
        client.join(seen["maddrs"][0])
        # Every block has then seen a single token, by which its graphs are captured.
        _, old = client("steps", start=0, end=4, length=3).end()
        replayed_before = server("replay", blocks=[2, 3])
        generating = client("steps", start=2, end=4, length=LENGTH, pause=PAUSE)
        first = generating.some(SOME)
        before, begun = server("look"), time.time()
        changed = server("change", target=[2, 6])
        ended, after = time.time(), server("look")
        replayed_after = server("replay", blocks=[2, 3])
        _, new = client("steps", start=4, end=6, length=SOME).end()
        _, whole = client("steps", start=2, end=6, length=SOME).end()
        rest, last = generating.enough()
        return {
            "before": before,
            "after": after,
            "changed": changed,
            "replayed": [replayed_before, replayed_after],
            "begun": begun,
            "ended": ended,
            "tokens": [*first, *rest],
            "sessions": {"0:4 before": old, "2:4 throughout": last, "4:6 after": new, "2:6 after": whole},
        }


@contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="span-"))
    try:
        yield made
    finally:
        remove(made)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Change the span of a server on a GPU, and see what comes of it.")
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda", help="cpu: small, for the tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    asked = parser.parse_args()
    if asked.device == "cuda" and not import_module("torch").cuda.is_available():
        sys.exit("no CUDA device here; --device cpu runs it small")
    with _folder() as folder:
        figures = measure(asked.device, folder)
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(gpu_report.table(figures))
    sys.exit(0 if gpu_report.is_well(figures) else 1)


if __name__ == "__main__":
    main()
