"""What strangers write is bounded before Petals reads it, and said once and escaped."""

from __future__ import annotations

import logging
from importlib.util import find_spec

import pytest

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

from hivemind.p2p import PeerID

from planner.agent.strangers import MAX_NEWS, OnceEach, beware


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


def test_a_long_subkey_is_no_peer_id_and_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = "QmWk5UsQsviMHqgPGkTniaH6nYEa8vFoYCQmWk5UsQsviM"
    monkeypatch.setattr(PeerID, "from_base58", PeerID.from_base58)
    beware()
    assert PeerID.from_base58(real).to_base58() == real
    with pytest.raises(ValueError, match="no peer id has 10,000,000 characters"):
        PeerID.from_base58("q" * 10_000_000)  # decoded it would take days
