"""Our Petals rule against the installed petals, step by step: equal to the last bit."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from solver import petals_swarm
from solver.petals_rule import WAITING, best_start, run_to_end, verdict
from tests import petals_shim

if find_spec("petals") is None or find_spec("hivemind") is None:
    pytest.skip("petals is not installed: make test installs it", allow_module_level=True)

petals_shim.install()

from petals.data_structures import RemoteModuleInfo, ServerInfo, ServerState  # noqa: E402  # after the shim
from petals.server import block_selection  # noqa: E402

ROOT = Path(__file__).parents[2]
SPEEDS = (0.0, 0.1, 0.3, 1.0, 1.1, 3.3, 500.0, 762.9)


@pytest.fixture
def steps(monkeypatch):
    """What both rules do: every search for a start (throughputs, length, start found), and what Petals logs."""
    seen = SimpleNamespace(petals=[], ours=[], log=[])

    def recorded(search, into):
        def look(throughputs, length):
            start = search(throughputs, length)
            into.append((throughputs.tobytes(), length, start))
            return start

        return look

    choose, lowest = block_selection._choose_best_start, petals_swarm.lowest_window
    monkeypatch.setattr(block_selection, "_choose_best_start", recorded(choose, seen.petals))
    monkeypatch.setattr(petals_swarm, "lowest_window", recorded(lowest, seen.ours))
    monkeypatch.setattr(block_selection, "logger", SimpleNamespace(info=seen.log.append))
    return seen


def module_infos(records, num_blocks):
    """`records` are rows of block, peer, state, throughput and a dict of further fields."""
    infos = [RemoteModuleInfo(uid=f"model.{block}", servers={}) for block in range(num_blocks)]
    for block, peer, state, rps, fields in records:
        infos[block].servers[peer] = ServerInfo(state=state, throughput=rps, **fields)
    return infos


def records_of(starts, lengths, rps, states=None, stated=True):
    for index, (start, length, speed) in enumerate(zip(starts, lengths, rps, strict=True)):
        span = {"start_block": int(start), "end_block": int(start + length)} if stated else {}
        state = states[index] if states is not None else ServerState.ONLINE
        for block in range(start, start + length):
            yield block, f"peer{index:04d}", state, float(speed), span


def assert_same_verdict(steps, infos, peer, columns, server, seed, balance_quality=0.75):
    """Ask both, seeded alike; every search that they make must be the same, and so the answer."""
    steps.petals.clear()
    steps.ours.clear()
    steps.log.clear()
    np.random.seed(seed)  # noqa: NPY002  # the state that Petals draws from
    theirs = block_selection.should_choose_other_blocks(peer, infos, balance_quality)
    answer = verdict(*columns, server, len(infos), np.random.RandomState(seed), balance_quality)
    assert answer.restart == theirs
    # Ours searches before it looks whether the swarm would fall apart, so as to tell the start in any case.
    assert steps.ours[: len(steps.petals)] == steps.petals
    assert len(steps.ours) == max(len(steps.petals), 1)
    if steps.petals:
        assert answer.best_start == steps.petals[0][-1]
    logged = None if answer.balance_quality is None else f"Swarm balance quality: {answer.balance_quality * 100:.1f}%"
    assert steps.log == ([] if logged is None else [logged])
    return answer


def random_columns(random, num_blocks, count):
    lengths = random.randint(1, num_blocks + 1, count)
    if random.rand() < 0.7:
        lengths = np.maximum(lengths // 3, 1)
    # Sometimes all on one side, so that there is much to move.
    room = num_blocks - lengths if random.rand() < 0.5 else np.minimum(num_blocks - lengths, 2)
    starts = np.array([random.randint(0, most + 1) for most in room])
    rps = random.choice(SPEEDS, count) if random.rand() < 0.5 else np.round(random.lognormal(6.5, 0.7, count), 2)
    return starts, lengths, rps


def test_server1_of_the_real_dump_would_restart(steps):
    dump = json.loads((ROOT / "examples" / "llama-65b-hf.json").read_text())
    infos = [RemoteModuleInfo(uid=f"{dump['prefix']}.{block}", servers={}) for block in range(dump["num_blocks"])]
    for record in dump["records"]:
        block = int(record["uid"].rpartition(".")[-1])
        infos[block].servers[record["peer_id"]] = ServerInfo.from_tuple(tuple(record["value"]))
    spans = block_selection.compute_spans(infos, min_state=ServerState.JOINING)
    peers = sorted(spans)
    columns = tuple(
        [read(spans[peer]) for peer in peers]
        for read in (lambda span: span.start, lambda span: span.length, lambda span: span.throughput)
    )
    answers = {
        (peer, seed): assert_same_verdict(steps, infos, peer, columns, peers.index(peer), seed)
        for peer in peers
        for seed in range(3)
    }
    for seed in range(3):
        answer = answers["server1", seed]
        assert (answer.restart, f"{answer.balance_quality:.1%}", answer.best_start) == (True, "47.7%", 7)


@pytest.mark.parametrize("part", range(8))
def test_random_swarms(steps, part):
    random = np.random.RandomState(part)
    answers = []
    for number in range(40):
        num_blocks, count = random.randint(1, 16), random.randint(1, 9)
        columns = random_columns(random, num_blocks, count)
        states = random.choice([ServerState.JOINING, ServerState.ONLINE], count, p=[0.2, 0.8])
        infos = module_infos(records_of(*columns, states, stated=bool(number % 2)), num_blocks)
        quality = random.choice([0.3, 0.75, 0.75, 0.95, 1.5])
        for server in range(count):
            answers.append(
                assert_same_verdict(steps, infos, f"peer{server:04d}", columns, server, number, float(quality))
            )
        length = int(random.randint(1, num_blocks + 1))
        starts, lengths, rps = ([*column, new] for column, new in zip(columns, (WAITING, length, 1.0), strict=True))
        joined = run_to_end(starts, lengths, rps, num_blocks, 0, movable=[False] * (count + 1))
        assert block_selection.choose_best_blocks(length, infos)[0] == joined.starts[-1]
    assert {answer.restart for answer in answers} == {True, False}
    assert any(answer.balance_quality is not None and not answer.restart for answer in answers)


def test_larger_random_swarms(steps):
    random = np.random.RandomState(0)
    for seed in range(6):
        columns = random_columns(random, 40, 14)
        infos = module_infos(records_of(*columns), 40)
        for server in range(3):
            assert_same_verdict(steps, infos, f"peer{server:04d}", columns, server, seed)


def test_keys_that_are_missing_within_a_span(steps):
    """Without a stated span Petals takes the first to the last key that it sees, as `Server.seen` does."""
    random = np.random.RandomState(1)
    for seed in range(30):
        columns = random_columns(random, 12, 5)
        starts, lengths, _ = columns
        records = [
            record
            for record in records_of(*columns, stated=False)
            if random.rand() < 0.6 or any(record[0] in (s, s + n - 1) for s, n in zip(starts, lengths, strict=True))
        ]
        for server in range(5):
            assert_same_verdict(steps, module_infos(records, 12), f"peer{server:04d}", columns, server, seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_restarts_whom_petals_would_and_where(seed):
    """Play `run_to_end` again with Petals alone: its check, then its choice once the server's records are gone."""
    random = np.random.RandomState(seed)
    starts, lengths, rps = random_columns(random, 12, 7)
    run = run_to_end(starts, lengths, rps, 12, seed)
    places, moves, rounds = starts.copy(), [], 0
    for round_ in range(7):
        rounds, quiet, order = rounds + 1, True, list(range(7))
        np.random.RandomState([seed, round_]).shuffle(order)
        for server in order:
            np.random.seed([seed, round_, server])  # noqa: NPY002  # the state that Petals draws from
            infos = module_infos(records_of(places, lengths, rps), 12)
            peer = f"peer{server:04d}"
            if block_selection.should_choose_other_blocks(peer, infos, 0.75):
                for info in infos:
                    info.servers.pop(peer, None)
                new = block_selection.choose_best_blocks(int(lengths[server]), infos)[0]
                moves.append((server, places[server], new))
                places[server], quiet = new, False
        if quiet:
            break
    assert list(run.moves) == moves
    assert run.starts.tolist() == places.tolist()
    assert (run.rounds, run.settled) == (rounds, quiet)


def test_the_choice_of_a_start():
    random = np.random.RandomState(3)
    for _ in range(500):
        size = random.randint(1, 25)
        blocks = random.choice(SPEEDS, size) if random.rand() < 0.6 else random.normal(0, 5, size)
        length = random.randint(1, size + 1)
        assert best_start(blocks, length) == block_selection._choose_best_start(blocks, length)
