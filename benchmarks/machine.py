"""What the figures were measured on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from planner.planning import available_cores

PACKAGES = ("plan-swarm", "ortools", "highspy", "numpy", "matplotlib", "hivemind", "torch")


def describe() -> dict[str, str]:
    """Processor, cores and versions."""
    return {
        "processor": _processor(),
        "cores": str(available_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def table(facts: dict[str, str]) -> str:
    """One line of Markdown."""
    return ", ".join(f"{name}: {value}" for name, value in facts.items())
