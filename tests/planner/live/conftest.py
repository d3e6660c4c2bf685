"""Real DHT nodes for the tests of the live swarm, and the assertion that nothing of them stays behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.planner.live.swarm import Swarm, daemons


@contextmanager
def four_nodes() -> Iterator[Swarm]:
    before = daemons()
    swarm = Swarm(4)
    try:
        yield swarm
    finally:
        swarm.close()
    assert_gone(before)


@pytest.fixture(scope="module")
def swarm() -> Iterator[Swarm]:
    """Four nodes that the tests of a module share; each test takes a prefix of its own."""
    with four_nodes() as swarm:
        yield swarm


@pytest.fixture
def small_swarm() -> Iterator[Swarm]:
    """Four nodes for one test, which may spoil them."""
    with four_nodes() as swarm:
        yield swarm


@pytest.fixture(autouse=True)
def _no_daemon_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    for name in ("swarm", "small_swarm"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    before = daemons()
    yield
    assert_gone(before)


def assert_gone(before: set[int]) -> None:
    """No p2pd runs that did not run before; one that was just told to end has a second for it."""
    deadline = time.monotonic() + 1.0
    while daemons() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert daemons() - before == set()


HIVEMINDS_OWN = ("ignore:path is deprecated:DeprecationWarning",)
"""Warnings that hivemind 1.1.12 gives rise to."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for warning in HIVEMINDS_OWN:
                item.add_marker(pytest.mark.filterwarnings(warning))
