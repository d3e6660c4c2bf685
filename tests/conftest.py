"""Settings of the tests: the same in every run, however slow the machine and whoever's it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("plan-swarm", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("plan-swarm")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the person who runs the tests has set for plan-swarm is none of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PLAN_SWARM_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        yield
