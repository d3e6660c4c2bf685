from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.agent import memory as module
from planner.agent.memory import Memory, MemoryUnusable, Remembered, load_memory, memory_path, save_memory
from planner.envelope import Verified, check_plan, seal_plan, seal_revoke
from planner.errors import OutputUnwritable
from planner.keys import generate
from planner.sealing import Reason, Refusal
from solver.problem import Span
from tests.plans import NOW, PREFIX, plan

ROOT = Path(__file__).parents[3]
KEY, OTHER = generate(), generate()


def checked(envelope, key=KEY, known=None):
    last = {} if known is None else {"last_epoch": known.epoch, "last_payload_hash": known.payload_hash}
    return check_plan(envelope, trusted=[key.public], prefix=PREFIX, now=NOW, **last)


def sealed(epoch=5, key=KEY):
    envelope = seal_plan(plan(), key, epoch)
    return checked(envelope, key), envelope


def load(folder, peer="me", prefix=PREFIX, num_blocks=4):
    return load_memory(folder, prefix, peer, num_blocks)


def saved(folder):
    memory = Memory(PREFIX, "me").with_plan(*sealed()).with_span(Span(0, 2))
    save_memory(folder, memory)
    return memory


def test_a_first_start_knows_nothing(tmp_path):
    assert load(tmp_path) == load(tmp_path / "not there") == Memory(PREFIX, "me")
    assert list(tmp_path.iterdir()) == []


def test_what_was_saved_comes_back_and_still_verifies(tmp_path):
    memory = saved(tmp_path / "made" / "on the way")
    again = load(tmp_path / "made" / "on the way")
    assert again == memory
    known = again.keys[KEY.public.key_id]
    assert (known.epoch, again.span) == (5, Span(0, 2))
    found = checked(known.envelope, known=known)
    assert isinstance(found, Verified)
    assert found.plan is not None
    # What is older is refused by what is known here.
    refused = checked(sealed(4)[1], known=known)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.STALE_EPOCH


def test_a_revoke_is_remembered_in_the_place_of_the_plan(tmp_path):
    revoke = seal_revoke(PREFIX, None, KEY, 6, created_at=NOW, valid_until=NOW + 60)
    memory = saved(tmp_path).with_plan(checked(revoke), revoke)
    save_memory(tmp_path, memory)
    known = load(tmp_path).keys[KEY.public.key_id]
    assert checked(known.envelope, known=known).plan is None


def test_each_key_has_its_own_epoch_and_envelope(tmp_path):
    memory = saved(tmp_path).with_plan(*sealed(3, OTHER))
    save_memory(tmp_path, memory)
    assert {key: known.epoch for key, known in load(tmp_path).keys.items()} == {
        KEY.public.key_id: 5,
        OTHER.public.key_id: 3,
    }


def test_an_epoch_never_falls_and_never_changes_its_payload():
    memory = Memory(PREFIX, "me").with_plan(*sealed(5))
    assert memory.with_plan(*sealed(4)) is memory
    assert memory.with_plan(*sealed(5)) is memory
    found, envelope = sealed(5)
    other = Verified(**{**vars(found), "payload_hash": "0" * 64})
    with pytest.raises(ValueError, match="another payload"):
        memory.with_plan(other, envelope)
    with pytest.raises(ValueError, match="a plan for 'm' in the memory for 'n'"):
        Memory("n", "me").with_plan(found, envelope)


@given(st.permutations(range(1, 7)))
def test_in_any_order_the_highest_epoch_stays(epochs):
    memory = Memory(PREFIX, "me")
    for epoch in epochs:
        memory = memory.with_plan(*sealed(epoch))
    assert memory.keys[KEY.public.key_id] == Remembered(6, sealed(6)[0].payload_hash, sealed(6)[1])


def test_a_memory_is_frozen():
    memory = Memory(PREFIX, "me")
    with pytest.raises(TypeError):
        memory.keys["x"] = None


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "b"), ("a", "c")), (("a", "b"), ("c", "b")), (("a/", "b"), ("a", "b"))]
)
def test_every_prefix_and_peer_has_a_file_of_its_own(tmp_path, one, other):
    assert memory_path(tmp_path, *one) != memory_path(tmp_path, *other)


def test_the_name_of_a_file_is_plain_whatever_the_prefix(tmp_path):
    for prefix in ("mistralai/Mixtral-8x22B", "../../etc", "x" * 1000, "é\n\0", "-", "."):
        path = memory_path(tmp_path, prefix, "12D3KooWabcdefgh")
        assert path.parent == tmp_path
        assert len(path.name) < 100
        assert path.name.isascii()
        assert path.name.isprintable()
        save_memory(tmp_path, Memory(prefix, "12D3KooWabcdefgh"))
        assert load(tmp_path, "12D3KooWabcdefgh", prefix).prefix == prefix


# --- files that cannot be relied on


def unusable(folder, said, **where):
    with pytest.raises(MemoryUnusable) as caught:
        load(folder, **where)
    line = str(caught.value)
    assert said in line
    assert str(folder) in line
    assert "\n" not in line
    assert "none is followed until you remove it" in line


def spoil(folder, change):
    path = memory_path(folder, PREFIX, "me")
    document = json.loads(path.read_text())
    change(document)
    document.pop("checksum", None)
    path.write_text(json.dumps({**document, "checksum": module._checksum(document)}))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"\0" * 4096, "is not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "not a map"),
        (b"{}", "it is not plan-swarm.agent-memory of version 1"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * (16 * 2**20 + 1), "over 16 MiB"),
    ],
)
def test_a_file_of_something_else(tmp_path, content, said):
    memory_path(tmp_path, PREFIX, "me").write_bytes(content)
    unusable(tmp_path, said)
    assert memory_path(tmp_path, PREFIX, "me").read_bytes() == content


def test_any_flipped_or_missing_byte_is_noticed(tmp_path):
    saved(tmp_path)
    path = memory_path(tmp_path, PREFIX, "me")
    good = path.read_bytes()
    document = json.loads(good)
    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))
        try:
            again = load(tmp_path)
        except MemoryUnusable:
            continue
        # A byte between values may mean nothing.
        assert json.loads(bad) == document
        assert again.keys[KEY.public.key_id].epoch == 5
    path.write_bytes(good[: len(good) // 2])
    unusable(tmp_path, "damaged")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(version=2), "of version 1"),
        (lambda document: document.update(version=True), "of version 1"),
        (lambda document: document.update(prefix="other"), "it is that of 'me' for 'other'"),
        (lambda document: document.update(peer_id="you"), "it is that of 'you' for 'm'"),
        (lambda document: document.update(span=[0, 5]), "not a span inside the model's 0:4"),
        (lambda document: document.update(span=[2, 2]), "span"),
        (lambda document: document.update(keys=None), "keys is null"),
        (lambda document: document["keys"].update(x={}), "a key id"),
        (lambda document: next(iter(document["keys"].values())).update(epoch=0), "epoch 0"),
        (lambda document: next(iter(document["keys"].values())).update(payload_hash=""), "payload_hash"),
        (lambda document: next(iter(document["keys"].values())).update(envelope="!"), "not base64"),
        (lambda document: next(iter(document["keys"].values())).update(envelope="A" * 100_000), "longer than"),
    ],
)
def test_a_file_that_says_what_it_may_not(tmp_path, change, said):
    saved(tmp_path)
    spoil(tmp_path, change)
    unusable(tmp_path, said)


def test_what_is_there_and_cannot_be_read_is_no_first_start(tmp_path):
    path = memory_path(tmp_path, PREFIX, "me")
    path.mkdir()
    unusable(tmp_path, "is a directory")
    path.rmdir()
    path.symlink_to(tmp_path / "nowhere")
    unusable(tmp_path, "does not exist")
    path.unlink()
    blocked = tmp_path / "file"
    blocked.write_text("")
    unusable(blocked, "Not a directory")


def test_a_denied_look_is_no_first_start(tmp_path, monkeypatch):
    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "lstat", denied)
    unusable(tmp_path, "Permission denied")


def test_what_cannot_be_written_is_said_and_leaves_the_old_file(tmp_path, monkeypatch):
    memory = saved(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputUnwritable, match="No space left on device"):
        save_memory(tmp_path, memory.with_plan(*sealed(6)))
    monkeypatch.undo()
    assert load(tmp_path) == memory
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OutputUnwritable):
        save_memory(blocked, memory)


def test_more_than_is_read_back_is_not_written(tmp_path, monkeypatch):
    memory = saved(tmp_path)
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    with pytest.raises(OutputUnwritable, match="trust fewer keys"):
        save_memory(tmp_path, memory.with_span(None))
    monkeypatch.undo()
    assert load(tmp_path) == memory


WRITER = """
import itertools, sys
from pathlib import Path
from planner.agent.memory import Memory, Remembered, save_memory
print("writing", flush=True)
for epoch in itertools.count(1):
    known = Remembered(epoch, f"{epoch:064x}", bytes(50_000))
    save_memory(Path(sys.argv[1]), Memory("m", "me", {"0" * 32: known}))
"""


def test_kill_9_in_the_middle_of_writing_leaves_a_whole_file_and_epochs_rise(tmp_path):
    last = 0
    for after in (0.0, 0.01, 0.02, 0.03, 0.05):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout.readline() == "writing\n"
            deadline = time.monotonic() + 20
            while not memory_path(tmp_path, PREFIX, "me").exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(after)
            writer.kill()
        known = load(tmp_path).keys["0" * 32]
        assert known.payload_hash == f"{known.epoch:064x}"
        last = max(last, known.epoch)
    assert last > 0
    # The next write removes what a killed one left half-written.
    save_memory(tmp_path, Memory(PREFIX, "me"))
    assert [path.name for path in tmp_path.iterdir()] == [memory_path(tmp_path, PREFIX, "me").name]
