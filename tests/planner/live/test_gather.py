from __future__ import annotations

import asyncio
import math
import random
import time

import pytest

from planner.gather import MAX_TRIES, PARTIAL, Gathered, gather
from planner.node import RawKey


def raw(expiration=100.0, **subkeys):
    return RawKey(expiration, None, {name: (name, expiration) for name in subkeys})


class Fake:
    """A DHT in which `existing` keys answer with the chance `share`."""

    def __init__(self, existing, share, seed=0, seconds=60.0, each=0.0):
        self.existing, self.share, self.each = set(existing), share, each
        self.random = random.Random(seed)
        self.ends = time.monotonic() + seconds
        self.asked = []

    @property
    def remaining(self):
        return max(0.0, self.ends - time.monotonic())

    async def get(self, keys, timeout=None):
        self.asked.append(tuple(keys))
        await asyncio.sleep(min(self.each, timeout))
        return {key: raw(a=1) if key in self.existing and self.random.random() < self.share else None for key in keys}


KEYS = [str(number) for number in range(80)]


def test_two_tries_are_enough_where_everything_answers():
    fake = Fake(KEYS, 1.0)
    gathered = asyncio.run(gather(fake, KEYS))
    assert [(one.asked, one.answered) for one in gathered.tries] == [(80, 80), (80, 80)]
    assert (gathered.silent, gathered.expected_missed, gathered.partial) == ((), 0.0, False)


def test_the_rule_by_hand():
    gathered = Gathered(["a", "b", "c"])
    assert gathered.expected_missed == 3.0
    gathered.add({"a": raw(), "b": None, "c": None}, 1.0)
    # Nothing is known but that one answered at once: the chance is 1/2, so that about one more is missing.
    assert gathered.expected_missed == 1 * 0.5 / 0.5
    gathered.add({"a": raw(), "b": None, "c": None}, 1.0)
    # "a" answered in the one try after its first answer: p = 3/4, and (1/4)^2 = 1/16 of those that exist are missed.
    assert gathered.expected_missed == pytest.approx((1 / 16) / (15 / 16))
    gathered.add({"a": None, "b": raw(), "c": None}, 1.0)
    # p = (1 + 1/2) / (2 + 1) = 1/2; two answered.
    assert gathered.expected_missed == pytest.approx(2 * (1 / 8) / (7 / 8))
    gathered.add({"a": raw(), "b": raw(), "c": raw()}, 1.0)
    assert (gathered.silent, gathered.expected_missed) == ((), 0.0)


def test_what_is_silent_is_asked_apart_and_everything_once_a_try():
    fake = Fake(KEYS[:70], 1.0)
    gathered = asyncio.run(gather(fake, KEYS))
    assert fake.asked[0] == tuple(KEYS)
    assert fake.asked[1:3] == [tuple(KEYS[:70]), tuple(KEYS[70:])]
    assert gathered.silent == tuple(KEYS[70:])
    assert not gathered.partial


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_the_expected_number_is_right_on_the_average(share):
    claimed = 0.0
    for seed in range(400):
        fake = Fake(KEYS[:60], share, seed)
        gathered = Gathered(KEYS)
        for _ in range(3):
            gathered.add(asyncio.run(fake.get(KEYS, 1)), 0.0)
        claimed += gathered.expected_missed / 400
    truth = 60 * (1 - share) ** 3
    assert 0.95 * truth < claimed < 1.4 * truth


def test_a_whole_reading_has_hardly_ever_missed_a_key():
    wrong = whole = 0
    for seed in range(200):
        gathered = asyncio.run(gather(Fake(KEYS[:60], 0.6, seed), KEYS))
        if not gathered.partial:
            whole += 1
            wrong += bool(set(gathered.silent) & set(KEYS[:60]))
    assert whole > 150
    assert wrong <= whole * PARTIAL


def test_a_dead_swarm_is_given_up():
    gathered = asyncio.run(gather(Fake([], 1.0), KEYS))
    assert gathered.silent == tuple(KEYS)
    assert len(gathered.tries) == math.ceil(math.log2(1 / PARTIAL + 1))


def test_a_bad_swarm_is_partial():
    gathered = asyncio.run(gather(Fake(KEYS, 0.1), KEYS))
    assert len(gathered.tries) == MAX_TRIES
    assert gathered.partial


def test_the_time_ends_it():
    begun = time.monotonic()
    gathered = asyncio.run(gather(Fake(KEYS, 0.2, seconds=1.0, each=0.3), KEYS))
    assert time.monotonic() - begun < 2
    assert gathered.partial
    assert len(gathered.tries) < MAX_TRIES
    gathered = asyncio.run(gather(Fake(KEYS, 1.0, seconds=0.0), KEYS))
    assert len(gathered.tries) == 1


def test_the_newest_record_counts_whatever_the_order():
    answers = [
        {"a": RawKey(9.0, None, {"x": ("old", 5.0), "y": (1, 9.0)}, {"odd": 2})},
        {"a": RawKey(9.0, None, {"x": ("newest", 7.0)}, {"odd": 1})},
        {"a": RawKey(9.0, "plain", is_dictionary=False)},
        {"a": None},
        {"a": RawKey(9.0, None, {"x": ("a tie", 7.0)})},
    ]
    for seed in range(10):
        gathered = Gathered(["a"])
        for answer in random.Random(seed).sample(answers, len(answers)):
            gathered.add(answer, 0.0)
        assert gathered.records("a") == {"x": ("newest", 7.0), "y": (1, 9.0)}
        assert gathered.problems("a")[0] == "dropped odd (2)"
        assert (
            "a plain value stands where a dictionary belongs, until 1970-01-01 00:00:09 UTC"
            in gathered.problems("a")[1]
        )
    assert Gathered(["a"]).records("a") == {}
