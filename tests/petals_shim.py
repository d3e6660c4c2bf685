"""Make the installed petals importable for tests: `install` before the first import from it."""

from __future__ import annotations

from planner.agent.compat import prepare as install

__all__ = ["install"]
