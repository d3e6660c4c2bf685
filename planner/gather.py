"""Asking a flapping DHT for the same keys until it is unlikely that one of them was missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from planner.node import RawKey
from planner.when import at
from planner.wire import MAX_SUBKEYS

MIN_TRIES, MAX_TRIES = 2, 16
PARTIAL = 0.01
"""Expected number of keys that were missed by chance from which on a reading is partial."""


class Getter(Protocol):
    """What is asked: a `planner.node.ClientNode`."""

    @property
    def remaining(self) -> float:
        """Seconds that are left."""

    async def get(self, keys: Sequence[str], timeout: float | None = None) -> dict[str, RawKey | None]:
        """Find what is under each key, None where nothing came; leave out those for which the time was too short."""


@dataclass(frozen=True)
class Try:
    """One time of asking: how many keys, how many of them answered, and how many seconds it took."""

    asked: int
    answered: int
    seconds: float


class Gathered:
    """What several tries found under some keys: of each subkey its newest record.

    A key that nobody has written and one whose nodes do not answer look alike. So the chance to be answered is
    estimated on the keys that did answer, from the tries after each one's first answer (that one being what they were
    chosen by): p = (answers + 1/2) / (tries + 1). A key that exists is then missed in all k tries with the chance
    (1 - p)^k, and the keys that answered, A of them, are the share 1 - (1 - p)^k of those that exist. So

        expected_missed = min(silent, max(A, 1) (1 - p)^k / (1 - (1 - p)^k))

    Keys for which the time was too short in every try are counted as missed beside it, and k is that of the silent key
    with the fewest tries that came to an end. All this supposes that tries are independent; nodes that are down for
    good are not.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        self.tries: list[Try] = []
        self._records: dict[str, dict[str, tuple[Any, float]]] = {}
        self._plain: dict[str, float] = {}
        self._dropped: dict[str, dict[str, int]] = {}
        self._searched = dict.fromkeys(self.keys, 0)
        self._later_tries = self._later_answers = 0

    @property
    def answered(self) -> frozenset[str]:
        """The keys that answered at least once."""
        return frozenset(self._records)

    @property
    def silent(self) -> tuple[str, ...]:
        """The keys that never answered, in the order given."""
        return tuple(key for key in self.keys if key not in self._records)

    @property
    def unsearched(self) -> frozenset[str]:
        """The keys for which the time was too short in every try."""
        return frozenset(key for key, tries in self._searched.items() if not tries)

    @property
    def missed_by_chance(self) -> float:
        """How many of the silent keys that were searched for are expected to exist."""
        tries = [self._searched[key] for key in self.silent if self._searched[key]]
        if not tries:
            return 0.0
        chance = (self._later_answers + 0.5) / (self._later_tries + 1)
        missed: float = (1 - chance) ** min(tries)
        return min(len(tries), max(1, len(self._records)) * missed / (1 - missed))

    @property
    def expected_missed(self) -> float:
        """How many of the silent keys are expected to exist."""
        return len(self.unsearched) + self.missed_by_chance

    @property
    def partial(self) -> bool:
        """Whether keys are likely to be missing."""
        return self.expected_missed >= PARTIAL

    def records(self, key: str) -> Mapping[str, tuple[Any, float]]:
        """Return the newest value and expiration (Unix time) of each subkey of `key`."""
        return self._records.get(key, {})

    def plain_until(self, key: str) -> float | None:
        """Return until when (Unix time) a plain value stands where a dictionary belongs; None where none does."""
        return self._plain.get(key)

    def problems(self, key: str) -> list[str]:
        """Say what was left out under `key`, and what hides its records."""
        lines = [f"dropped {reason} ({count:,})" for reason, count in sorted(self._dropped.get(key, {}).items())]
        if key in self._plain:
            lines.append(
                f"a plain value stands where a dictionary belongs, until {at(self._plain[key])}: whoever wrote it hides"
                " what others have stored there"
            )
        return lines

    def add(self, answers: Mapping[str, RawKey | None], seconds: float) -> None:
        """Count one try, and merge what it found."""
        for key, raw in answers.items():
            self._searched[key] += 1
            if key in self._records:
                self._later_tries += 1
                self._later_answers += raw is not None
            if raw is not None:
                self._merge(key, raw)
        self.tries.append(Try(len(self.keys), sum(raw is not None for raw in answers.values()), seconds))

    def _merge(self, key: str, raw: RawKey) -> None:
        records = self._records.setdefault(key, {})
        if not raw.is_dictionary:
            self._plain[key] = raw.expiration
        for subkey, (value, expiration) in raw.subkeys.items():
            present = records.get(subkey)
            if present is None and len(records) >= MAX_SUBKEYS:
                continue
            if present is None or _supersedes(value, expiration, *present):
                records[subkey] = (value, expiration)
        dropped = self._dropped.setdefault(key, {})
        for reason, count in raw.dropped.items():
            dropped[reason] = max(count, dropped.get(reason, 0))


def _supersedes(value: object, expiration: float, present: object, expires: float) -> bool:
    """Whether the first is newer; of two that expire at the same moment always the same one, whichever came first."""
    if expiration != expires or value is present:  # the same object in every try: `planner.wire.Memory`
        return expiration > expires
    return repr(value) > repr(present)


async def gather(
    node: Getter,
    keys: Sequence[str],
    progress: Callable[[Gathered], None] | None = None,
    enough: float = PARTIAL,
) -> Gathered:
    """Ask for `keys` until `Gathered.expected_missed` is below `enough`, within the time that `node` has left.

    Every try asks every key once: those that answered before in one batch, the silent ones in another, which hivemind
    splits the finer the fewer they are. So a key that its nodes choke on does not go on to spoil its neighbours. There
    are `MIN_TRIES` to `MAX_TRIES` tries, of which each may take a third of the time that is left.

    Parameters
    ----------
    node
        What is asked.
    keys
        The keys, each of which should hold a dictionary.
    progress
        Called after every try with what has been gathered so far.
    enough
        Expected number of missed keys; at most `PARTIAL`, for a reading that is whole where the time suffices.
    """
    gathered = Gathered(keys)
    while len(gathered.tries) < MAX_TRIES and (not gathered.tries or node.remaining > 0.05):
        begun = time.monotonic()
        silent = gathered.silent
        loud = [key for key in gathered.keys if key in gathered.answered]
        answers: dict[str, RawKey | None] = {}
        for batch in (loud, silent):
            if batch:
                answers |= await node.get(batch, max(0.1, node.remaining / 3))
        gathered.add(answers, time.monotonic() - begun)
        if progress is not None:
            progress(gathered)
        if len(gathered.tries) >= MIN_TRIES and gathered.expected_missed < enough:
            break
    return gathered
