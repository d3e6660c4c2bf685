"""Settings of the tests: the same in every run, however slow the machine and whoever's it is."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("plan-swarm", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("plan-swarm")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script, from where it would be inherited by every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the person who runs the tests has set for plan-swarm is none of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PLAN_SWARM_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        yield


def pytest_sessionfinish() -> None:
    """End what live commands are forked from."""
    if (warm := sys.modules.get("tests.cli.warm")) is not None:
        warm.end()


LONGEST = ("test_trouble.py", "test_live_commands.py", "test_serve.py", "test_demo_agents.py", "test_demo_swarm.py")
"""Files that take minutes: they begin first, so that none of them is left alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; within a file the order stays."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
