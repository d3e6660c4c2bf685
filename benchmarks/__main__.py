"""Run all benchmarks and write `benchmarks/results.md` and `benchmarks/results.json`.

Usage: python -m benchmarks [--seconds LIMIT]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import live_swarm, machine, quality, startup

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed and quality.")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of each search (default: 10)")
    seconds = parser.parse_args().seconds
    results = {
        "machine": machine.describe(),
        "startup": startup.measure(),
        "live": live_swarm.measure(seconds),
        "quality": quality.measure(seconds),
    }
    tables = [
        machine.table(results["machine"]),
        startup.table(results["startup"]),
        live_swarm.table(results["live"]),
        quality.table(results["quality"]),
    ]
    text = "# Measured\n\nWritten by `make bench`; don't edit.\n\n" + "\n\n".join(tables) + "\n"
    (HERE / "results.md").write_text(text, encoding="utf-8")
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
