"""Problems in which servers of few kinds may choose how many blocks they hold."""

from __future__ import annotations

import math
import random

from solver import Problem, Server, Span

MAX_PLACEMENTS = 30_000
"""So many are tried at most when all are."""


def random_lengths(rng: random.Random) -> Problem:
    """A problem so small that all its placements can be tried: constants, pins, newcomers, penalties."""
    while True:
        blocks = rng.randint(1, 9)
        tiny = rng.choice([1.0, 1.0, 1e-12, 1e5])
        speed = rng.choice(
            [lambda: float(rng.choice([1, 2, 3])), lambda: rng.uniform(0, 100), lambda: rng.choice([0, 7.3])]
        )
        tables = [_table(rng, blocks, lambda speed=speed, tiny=tiny: tiny * speed()) for _ in range(rng.randint(1, 3))]
        servers = []
        for _ in range(rng.randint(1, 5)):
            table = rng.choice(tables)
            current = _span(rng, blocks, table) if rng.random() < 0.5 else None
            only = _span(rng, blocks, table) if rng.random() < 0.15 else None
            may_stay = current is None or only is not None or blocks == 1 or rng.random() < 0.9
            servers.append(Server(current, table, tuple(rng.uniform(0, 1000) for _ in range(blocks)), only, may_stay))
        base = tuple(tiny * rng.choice([0.0, speed(), speed()]) for _ in range(blocks))
        if rng.random() < 0.4:
            base = (base[0],) * blocks
        try:
            case = Problem(blocks, tuple(servers), base, tuple(int(rps > 0) for rps in base), 14_400.0)
        except ValueError:
            continue  # the only span of a server was forbidden to it
        if math.prod(case.candidates(server)[0].size for server in servers) <= MAX_PLACEMENTS:
            return case


def _table(rng, blocks, speed):
    lengths = sorted(rng.sample(range(1, blocks + 1), rng.randint(1, min(blocks, 4))))
    values = [speed() for _ in lengths]
    if rng.random() < 0.5:
        values.sort(reverse=True)
    return dict(zip(lengths, values, strict=True))


def _span(rng, blocks, table):
    length = rng.choice(list(table))
    start = rng.randint(0, blocks - length)
    return Span(start, start + length)


def kinds_case(blocks: int, *kinds: tuple[int, dict[int, float]]) -> Problem:
    """Newcomers of some kinds, as pairs of a count and RPS by length, to whom loading costs nothing."""
    nothing = (0.0,) * blocks
    servers = [Server(None, table, nothing) for count, table in kinds for _ in range(count)]
    return Problem(blocks, tuple(servers), nothing, (0,) * blocks, 14_400.0)


def by_length(*rps: float) -> dict[int, float]:
    """RPS of 1, 2, ... blocks."""
    return dict(enumerate(rps, start=1))


# After the clusters of Helix (Mei et al., ASPLOS 2025): LLaMA 30B on 4 L4 and 6 T4, LLaMA 70B on 4 A100, 8 L4 and
# 12 T4, in tokens/s as its simulator has them, rounded.
HELIX_30B = kinds_case(
    60,
    (4, by_length(2485.5, 1145.0, 763.5, 481.0, 384.9, 286.6, 245.7, 189.1, 168.2, 212.6, 193.5)),
    (6, by_length(1988.0, 901.9, 539.0, 404.3, 285.3, 331.3, 231.1)),
)
HELIX_70B = kinds_case(
    80,
    (
        4,
        by_length(23833.9, 11384.3, 7201.4, 5264.6, 4096.7, 3124.1, 2595.7, 2045.6, 1754.4, 1392.6, 1212.2, 952.1),
    ),
    (8, by_length(7557.9, 3625.7, 2171.9, 1476.1, 1017.6, 747.8, 531.7)),
    (12, by_length(5709.2, 2434.4, 1347.9, 757.9)),
)
