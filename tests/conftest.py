"""Settings of the tests: hypothesis draws the same examples in every run, however slow the machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("plan-swarm", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("plan-swarm")
