"""What a server's log says of strangers' records."""

from __future__ import annotations

import logging

import pytest

from planner.agent.serve import MAX_NEWS, OnceEach


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    logger = logging.Logger("strangers")
    logger.addHandler(caplog.handler)
    logger.addFilter(OnceEach())
    return logger


def test_it_says_each_thing_once_and_escaped(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        logger.warning("Incorrect peer entry for uid=%s", "m.0\x1b[2J")
        logger.warning("Incorrect peer entry for uid=%s", "m.1")
    assert caplog.messages == ["Incorrect peer entry for uid=m.0\\x1b[2J", "Incorrect peer entry for uid=m.1"]


def test_a_stranger_cannot_fill_it(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MAX_NEWS + 10):
        logger.warning("x" * 10_000 + "%d", number)
        logger.warning("%d %s", number, "x" * 10_000)
    assert len(caplog.messages) == MAX_NEWS
    assert max(map(len, caplog.messages)) <= 400
