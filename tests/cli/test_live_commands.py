"""The commands of the living swarm, each as a process of its own, on real nodes."""

from __future__ import annotations

import json
import os
import re
import resource
import secrets
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgpack
import psutil
import pytest

from cli.interrupt import Ending
from cli.live import Way
from planner.envelope import HEARTBEAT_SECONDS, check_plan, seal_heartbeat, seal_plan, seal_revoke
from planner.keys import SigningKey, generate, save_key
from planner.plan_records import plans_key
from planner.publishing import publish
from planner.reading import load_state
from planner.sealing import Kind, _pack, _signed
from tests.cli.process import LAUNCH, ROOT, closed_pipe, run
from tests.cli.warm import run_warm
from tests.planner.live.publish import fill, fresh_prefix, overwrite, planned, standing
from tests.planner.live.swarm import FakeServer, Raw, Swarm, daemons, model, peer_id

pytestmark = pytest.mark.filterwarnings("ignore:path is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def swarm() -> Iterator[Swarm]:
    swarm = Swarm(4)
    try:
        yield swarm
    finally:
        swarm.close()


MARK = "PLAN_SWARM_TEST_MARK"


@pytest.fixture(autouse=True)
def _no_daemon_stays(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No p2pd of any command stays, not even one whose parent has gone; the swarm's own do."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    yield
    deadline = time.monotonic() + 2
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == []


def marked(mark: str) -> list[int]:
    """Every p2pd that was started, at whatever remove, by this test."""
    found = []
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] == "p2pd" and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


@dataclass(frozen=True)
class Case:
    """A prefix with four servers, an operator's key, and a plan for them in a file."""

    swarm: Swarm
    folder: Path
    prefix: str
    key: SigningKey

    def __call__(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        env = {"PLAN_SWARM_INITIAL_PEERS": ",".join(self.swarm.peers)}
        return run(*arguments, env=env, **options) if options else run_warm(*arguments, env=env)

    def plan(self) -> str:
        path = self.folder / "plan.json"
        done = self("--prefix", self.prefix, "--out", str(path), "--time-limit", "5", "--workers", "1")
        assert done.returncode == 0, done.stderr
        return str(path)

    def publish(self, plan: str, *more: str, **options: object) -> subprocess.CompletedProcess[str]:
        return self("publish", plan, "--key", self.key_file, "--yes", *more, **options)

    def status(self, *more: str) -> dict:
        done = self("status", "--prefix", self.prefix, "--trust", self.trust, "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def key_file(self) -> str:
        return str(self.folder / "operator.pem")

    @property
    def trust(self) -> str:
        return self.key.public.text()

    @property
    def key_id(self) -> str:
        return self.key.public.key_id


@pytest.fixture
def case(swarm: Swarm, tmp_path: Path) -> Case:
    case = Case(swarm, tmp_path, f"cli-{fresh_prefix()}", generate())
    save_key(case.key_file, case.key)
    fill(swarm, case.prefix)
    return case


# Reading ------------------------------------------------------------------------------------------------


def test_the_default_command_reads_the_living_swarm(case: Case) -> None:
    done = case("--prefix", case.prefix, "--time-limit", "5")
    assert done.returncode == 0
    assert done.stdout.startswith("Move 1 server: ")
    assert re.fullmatch(r"\d of 5 keys answered in \d+ tries .*; read from /ip4/127.*\n", done.stderr)


def test_json_stays_one_document_and_quiet_is_quiet(case: Case) -> None:
    done = case("--prefix", case.prefix, "--time-limit", "5", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["prefix"] == case.prefix


@pytest.mark.parametrize("name", ["swarm.json", "swarm.json.gz"])
def test_dump_and_plan_from_it(case: Case, name: str) -> None:
    path = case.folder / name
    done = case("dump", str(path), "--prefix", case.prefix)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"wrote {path}: 8 records" in done.stderr
    assert len(load_state(path).servers) == 4
    assert case("--dump", str(path), "--time-limit", "5").stdout.startswith("Move 1 server: ")


def test_models(case: Case) -> None:
    done = case("models")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^{case.prefix} +4 +4 +5.00 +0 +owner/name$", done.stdout, re.MULTILINE)
    rows = json.loads(case("models", "--json").stdout)
    assert next(row for row in rows if row["prefix"] == case.prefix)["servers"] == 4


def test_a_wrong_prefix_suggests_the_near_one(case: Case) -> None:
    done = case("--prefix", case.prefix.removesuffix("-hf"))
    assert (done.returncode, done.stdout) == (6, "")
    assert f"did you mean '{case.prefix}" in done.stderr.replace("…", "") or "did you mean" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["--prefix", "m"], ["models"], ["status", "--prefix", "m"]])
def test_an_unreachable_swarm_is_one_line(command: list[str]) -> None:
    nowhere = f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}"
    done = run(*command, "--initial-peers", nowhere, "--timeout", "4")
    assert (done.returncode, done.stdout) == (8, "")
    assert re.fullmatch(r"plan-swarm: .*tcp/1/.*\n", done.stderr)


def test_the_default_peers_are_named_as_what_they_are() -> None:
    code = f"import planner.node\nplanner.node.PETALS_INITIAL_PEERS = ('/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}',)\n"
    done = run("--prefix", "m", "--timeout", "4", code=code + LAUNCH)
    assert done.returncode == 8
    assert "Petals' public bootstrap peers" in done.stderr


PARTIAL = """
import planner.live
from dataclasses import replace
read_from = planner.live.read_from
async def partial(*arguments):
    return replace(await read_from(*arguments), partial=True, expected_missed=1.0)
planner.live.read_from = partial
"""


def test_a_partial_reading_moves_nobody_and_ends_with_9(case: Case) -> None:
    partial = case.folder / "partial.json"
    done = case("--prefix", case.prefix, "--time-limit", "5", "--out", str(partial), code=PARTIAL + LAUNCH)
    assert done.returncode == 9
    assert done.stdout.startswith("Nobody is moved: the swarm was read in part only.\n\n")
    assert "4 servers stay; partial reading: 4." in done.stdout
    assert "no plan may be published from it" in " ".join(done.stdout.split())
    assert "is partial: " in done.stderr
    done = case("publish", str(partial), "--key", case.key_file, "--yes")
    assert done.returncode == 12
    assert "the plan was made from a partial reading (--force partial)" in done.stderr
    done = case("dump", str(case.folder / "swarm.json"), "--prefix", case.prefix, code=PARTIAL + LAUNCH)
    assert done.returncode == 9
    done = run("--dump", str(case.folder / "swarm.json"))
    assert (done.returncode, done.stdout.partition(":")[0]) == (9, "Nobody is moved")
    assert "read in part only" in done.stderr
    plan = case.plan()
    done = case("publish", plan, "--key", case.key_file, "--yes", code=PARTIAL + LAUNCH)
    assert done.returncode == 9
    assert standing(case.swarm, case.prefix, case.key_id) == {}


@pytest.mark.parametrize("name", ["hivemind", "cryptography", "msgpack"])
def test_what_is_not_installed_is_named(name: str) -> None:
    for command in (["--prefix", "m"], ["status", "--prefix", "m"]):
        done = run(*command, code=f"import sys; sys.modules[{name!r}] = None\n{LAUNCH}")
        assert (done.returncode, done.stdout) == (14, "")
        assert done.stderr == f"plan-swarm: this needs {name}; run: pip install {name}\n"


# Keys ---------------------------------------------------------------------------------------------------


def test_keygen(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    done = run("keygen", str(path), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"ed25519:[A-Za-z0-9_-]{43}\n", done.stdout)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    again = run("keygen", str(path), stdin=subprocess.DEVNULL)
    assert (again.returncode, again.stdout) == (11, "")
    assert "never overwritten" in again.stderr
    assert path.read_bytes() == before


def test_a_key_with_a_passphrase(case: Case) -> None:
    path, secret = case.folder / "locked.pem", case.folder / "secret"
    secret.write_text("open sesame\nand more")
    public = run("keygen", str(path), "--passphrase-file", str(secret)).stdout.strip()
    done = case("revoke", "--prefix", case.prefix, "--key", str(path), stdin=subprocess.DEVNULL)
    assert done.returncode == 11
    assert "passphrase" in done.stderr
    done = case("revoke", "--prefix", case.prefix, "--key", str(path), "--passphrase-file", str(secret))
    assert done.returncode == 0
    done = case("verify", "--prefix", case.prefix, "--trust", public)
    assert done.returncode == 0
    assert "revoke of any plan" in done.stdout


def test_a_key_that_others_may_read_is_refused(case: Case) -> None:
    os.chmod(case.key_file, 0o644)
    done = case("revoke", "--prefix", case.prefix, "--key", case.key_file)
    assert done.returncode == 11
    assert "chmod 600" in done.stderr


# Publishing ---------------------------------------------------------------------------------------------


def test_publish_status_verify_revoke_status(case: Case) -> None:
    done = case.publish(case.plan())
    assert done.returncode == 0, done.stderr
    assert f"for {case.prefix} moves 1 server" in done.stdout
    assert "under 5 of 5 subkeys" in done.stdout
    assert "Another node sees it under 5, " in " ".join(done.stdout.split())

    status = case.status()
    (plan,) = status["plans"]
    assert (plan["verdict"], plan["fresh"], plan["trusted"], plan["moves"]) == ("valid", True, True, 1)
    shown = case("status", "--prefix", case.prefix, "--key", case.key_file, "--ascii")
    assert shown.returncode == 0
    assert shown.stdout.isascii()
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    for text in (f"{case.trust} (trusted)", "valid: epoch ", "fresh: moves may begin until", "2:4"):
        assert text in shown.stdout

    verified = case("verify", "--prefix", case.prefix, "--trust", case.trust)
    assert verified.returncode == 0
    assert f"epoch {plan['epoch']}" in " ".join(verified.stdout.split())

    back = case("revoke", "--prefix", case.prefix, "--key", case.key_file)
    assert back.returncode == 0
    assert "Published the revoke" in back.stdout
    assert f"Takes back plan {plan['plan_id']}, epoch {plan['epoch']}." in " ".join(back.stdout.split())
    (plan,) = case.status()["plans"]
    assert (plan["verdict"], plan["fresh"]) == ("revoked", False)


def test_an_envelope_in_a_file(case: Case) -> None:
    path = case.folder / "plan.signed"
    assert case.publish(case.plan(), "--envelope", str(path)).returncode == 0
    done = run("verify", str(path), "--trust", case.trust, "--prefix", case.prefix)
    assert done.returncode == 0
    assert done.stdout.startswith("valid: plan ")
    assert "whether to trust its key is yours to say" in run("verify", str(path)).stdout


def test_a_revoke_that_takes_nothing_back_says_so(case: Case) -> None:
    for stands in ("no plan of this key was to be seen there", "a revoke stands there already"):
        done = case("revoke", "--prefix", case.prefix, "--key", case.key_file)
        assert done.returncode == 0
        assert f"warning: {stands}, for {case.prefix};" in " ".join(done.stdout.split())
    done = case("revoke", "--prefix", "", "--key", case.key_file)
    assert (done.returncode, "--prefix" in done.stderr) == (2, True)


def test_what_was_stored_is_said_where_nobody_reads_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_SWARM_INITIAL_PEERS", ",".join(case.swarm.peers))
    code, said = closed_pipe("revoke", "--prefix", case.prefix, "--key", case.key_file, code=LAUNCH)
    assert code == 141
    (epoch,) = re.findall(r"^published as epoch (\d+) all the same; see plan-swarm status$", said, re.MULTILINE)
    assert f"epoch-{epoch}" in standing(case.swarm, case.prefix, case.key_id)


def test_a_key_that_nobody_was_told_of_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    assert closed_pipe("keygen", str(path), code=LAUNCH)[0] == 141
    assert not path.exists()


def limited(size: int) -> Callable[[], None]:
    """Let files grow to so many bytes, which is as good as a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_where_the_envelope_cannot_be_written_nothing_is_published(case: Case) -> None:
    plan, path = case.plan(), case.folder / "plan.signed"
    done = case.publish(plan, "--envelope", str(path), preexec_fn=limited(100))
    assert done.returncode == 7
    assert re.fullmatch(r"plan-swarm: cannot write .*plan\.signed: File too large\n", done.stderr)
    assert standing(case.swarm, case.prefix, case.key_id) == {}
    assert not path.exists()


def test_the_envelope_overwrites_nothing_that_is_read(case: Case) -> None:
    plan, secret = Path(case.plan()), case.folder / "secret"
    secret.write_text("open sesame")
    os.chmod(secret, 0o600)
    for file in (plan, Path(case.key_file), secret):
        before = file.read_bytes()
        done = case.publish(str(plan), "--passphrase-file", str(secret), "--envelope", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        assert "would overwrite a file that is read" in done.stderr
        assert file.read_bytes() == before


def test_a_plain_value_that_blocks_a_key_is_named_by_every_command(case: Case) -> None:
    plan = case.plan()
    case.swarm.fill([Raw(plans_key(case.prefix, case.key_id), None, "mine", 100_000.0)])
    for done in (case.publish(plan), case("revoke", "--prefix", case.prefix, "--key", case.key_file)):
        assert done.returncode == 8
        assert "somebody has put a plain value in the place of all plans of this key, until 20" in done.stderr
    done = case("verify", "--prefix", case.prefix, "--trust", case.trust)
    assert done.returncode == 13
    assert "warning: a plain value stands where a dictionary belongs, until 20" in " ".join(done.stdout.split())
    (row,) = case.status()["plans"]
    assert row["verdict"] == "overwritten"


def test_verify_looks_at_all_keys_at_once_and_tells_refused_from_outdated(case: Case) -> None:
    plan, key = planned(case.swarm, case.prefix), generate()
    for _ in range(3):
        publish(plan, case.key, case.swarm.peers)
    overwrite(case.swarm, case.prefix, case.key_id, [f"epoch-{number}" for number in range(1, 8)])
    done = case("verify", "--prefix", case.prefix, "--trust", case.trust, "--trust", key.public.text())
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    text = " ".join(done.stdout.split())
    assert "epoch-7 is refused: foreign_key" in text
    assert "stale_epoch" not in text
    assert re.search(r" 1\d of its records are outdated by later ones", text)
    assert "warning: somebody overwrites its records (epoch-7, epoch-6, epoch-5, epoch-4, epoch-3 and 2 more)" in text
    assert text.endswith(f"{key.public.text()}: nothing is published under it")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--last-payload", "0" * 64], "--last-payload goes with --last-epoch"),
        (["--last-epoch", "0"], "--last-epoch must be at least 1, not 0"),
        (["--last-epoch", "5", "--last-payload", "x"], "64 hexadecimal digits"),
    ],
)
def test_verify_takes_no_half_of_what_was_seen_last(arguments: list[str], named: str) -> None:
    done = run("verify", "plan.signed", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr


def test_nobody_to_ask_is_a_usage_error_and_a_no_publishes_nothing(case: Case) -> None:
    plan = case.plan()
    done = case("publish", plan, "--key", case.key_file, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    code = f"import sys\nsys.stdin.isatty = lambda: True\n{LAUNCH}"
    done = case("publish", plan, "--key", case.key_file, code=code, input="n\n")
    assert done.returncode == 130
    assert "Publish it" in done.stderr
    assert standing(case.swarm, case.prefix, case.key_id) == {}


def test_drift_is_refused_by_name_and_forced_by_name(case: Case) -> None:
    plan = case.plan()
    fill(case.swarm, case.prefix, throughput=20.0)
    done = case.publish(plan)
    assert done.returncode == 12
    assert "--force throughput" in done.stderr
    assert case.publish(plan, "--force", "span").returncode == 12
    done = case.publish(plan, "--force", "throughput")
    assert done.returncode == 0
    assert "overridden: " in done.stdout


def test_a_stranger_overwrites_one_subkey_and_then_all(case: Case) -> None:
    assert case.publish(case.plan()).returncode == 0
    overwrite(case.swarm, case.prefix, case.key_id, ["heartbeat"])
    (plan,) = case.status()["plans"]
    assert (plan["verdict"], plan["fresh"], plan["somebody_overwrites"]) == ("valid", True, True)
    overwrite(case.swarm, case.prefix, case.key_id, standing(case.swarm, case.prefix, case.key_id), 200_000.0)
    shown = case("status", "--prefix", case.prefix, "--trust", case.trust)
    words = " ".join(shown.stdout.split())
    assert "agents keep the last valid plan they had" in words
    assert "somebody overwrites" in words
    done = case("verify", "--prefix", case.prefix, "--trust", case.trust)
    assert done.returncode == 13
    assert "foreign_key" in done.stdout


# Hostile envelopes --------------------------------------------------------------------------------------


def test_every_hostile_envelope_is_refused_by_name(case: Case) -> None:
    plan, key, now = planned(case.swarm, case.prefix), case.key, time.time()
    good = seal_plan(plan, key, 10)
    verified = check_plan(good, trusted=None, prefix=None, now=now)
    other = seal_revoke(plan.prefix, None, key, 10, created_at=now, valid_until=now + 100)

    def signed(packed: bytes, kind: Kind = Kind.PLAN) -> bytes:
        return _pack(packed, key.public.raw, key.sign(_signed(kind, packed)))

    def with_times(created_at: float, valid_until: float) -> bytes:
        fields = json.loads(zlib.decompress(msgpack.unpackb(good)["payload"]))
        for part in (fields, fields["plan"]):
            part.update(created_at=created_at, valid_until=valid_until)
        return signed(zlib.compress(json.dumps(fields).encode()))

    flipped = bytearray(good)
    flipped[-1] ^= 1
    edited = json.loads(zlib.decompress(msgpack.unpackb(good)["payload"]))
    edited["plan"]["floor"] += 1.0
    seen = ("--last-epoch", "10", "--last-payload", verified.payload_hash)
    cases = {
        "bad_signature": (bytes(flipped), ()),
        "foreign_key": (seal_plan(plan, generate(), 10), ()),
        "foreign_prefix": (good, ("--prefix", "another-hf")),
        "stale_epoch": (good, ("--last-epoch", "11")),
        "equal_epoch_other_payload": (other, seen),
        "expired": (with_times(now - 7200, now - 3600), ()),
        "not_yet_valid": (with_times(now + 3600, now + 7200), ()),
        "valid_too_long": (with_times(now, now + 365 * 86400), ()),
        "bomb": (signed(zlib.compress(bytes(50 * 2**20), 9)), ()),
        "malformed": (good[:-10], ()),
        "too_large": (good + bytes(70_000), ()),
        "payload_malformed": (signed(zlib.compress(b"[]")), ()),
        "plan_malformed": (signed(zlib.compress(json.dumps(edited).encode())), ()),
        "wrong_kind": (
            seal_heartbeat(verified, key, issued_at=now, seconds=HEARTBEAT_SECONDS),
            (),
        ),
    }
    path = case.folder / "envelope"
    for reason, (envelope, more) in cases.items():
        path.write_bytes(envelope)
        done = run("verify", str(path), "--trust", case.trust, *more)
        assert (done.returncode, done.stdout) == (13, ""), reason
        assert f"is refused: {reason}: " in done.stderr
        assert done.stderr.count("\n") == 1
    path.write_bytes(good)
    assert run("verify", str(path), "--trust", case.trust, *seen).returncode == 0


# Ending -------------------------------------------------------------------------------------------------


@contextmanager
def begun(
    case: Case, *arguments: str, until: str, stream: str, launch: str = LAUNCH
) -> Iterator[subprocess.Popen[str]]:
    """A group of the command's processes that has written `until`; it is killed where it does not end by itself."""
    with subprocess.Popen(
        [sys.executable, "-c", launch, *arguments],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PLAN_SWARM_INITIAL_PEERS": ",".join(case.swarm.peers)},
    ) as process:
        try:
            assert any(until in line for line in getattr(process, stream)), f"it never wrote {until!r}"
            yield process
        finally:
            process.kill()


def test_a_signal_that_comes_just_before_a_long_sleep_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cli.live.time.sleep", slept.append)

    class Told(Ending):
        def leave_if_told(self) -> None:
            if len(slept) == 3:  # the signal came while it went to sleep for the third time
                raise SystemExit(143)

    with pytest.raises(SystemExit):
        Way((), Told()).pause(60.0)
    assert slept == [0.5] * 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_stays_after_a_signal_in_the_pause_or_the_reading_of_watch(case: Case, number: int, code: int) -> None:
    for interval, pause in (("60", 0.0), ("0.01", 0.6)):
        arguments = ("status", "--prefix", case.prefix, "--watch", "--interval", interval, "--quiet")
        with begun(case, *arguments, until=case.prefix, stream="stdout") as process:
            time.sleep(pause)
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (code, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_stays_after_a_signal_while_keeping(case: Case, number: int, code: int) -> None:
    arguments = ("publish", case.plan(), "--key", case.key_file, "--yes", "--keep")
    with begun(case, *arguments, until="keeping it fresh", stream="stderr") as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert re.fullmatch(r"no more heartbeats: moves may begin until 20.* UTC, or until plan-swarm revoke .*\n", err)


SLOW_STORE = """
import asyncio, sys
import planner.publishing
store_all = planner.publishing.store_all
async def slow(*arguments):
    print("storing", file=sys.stderr, flush=True)
    await asyncio.sleep(1.0)
    return await store_all(*arguments)
planner.publishing.store_all = slow
"""


@pytest.mark.parametrize(
    ("command", "number", "code"), [("publish", signal.SIGINT, 130), ("revoke", signal.SIGTERM, 143)]
)
def test_a_signal_to_all_while_storing_waits_until_it_is_said_what_stands(
    case: Case, command: str, number: int, code: int
) -> None:
    how = [case.plan(), "--yes"] if command == "publish" else ["--prefix", case.prefix]
    with begun(
        case, command, *how, "--key", case.key_file, until="storing", stream="stderr", launch=SLOW_STORE + LAUNCH
    ) as process:
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code
    text = " ".join(out.split())
    (epoch,) = re.findall(r"Published the \w+ as epoch (\d+), ", text)
    assert "Another node sees it under 5, " in text
    assert f"epoch {epoch} is being stored, and this ends when it is known what came of it" in err
    assert f"epoch-{epoch}" in standing(case.swarm, case.prefix, case.key_id)


def test_a_second_signal_while_storing_leaves_at_once(case: Case) -> None:
    arguments = ("publish", case.plan(), "--key", case.key_file, "--yes")
    with begun(case, *arguments, until="storing", stream="stderr", launch=SLOW_STORE + LAUNCH) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("plan-swarm revoke takes it back" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Published" not in out


BEATING = "import planner.publishing\nplanner.publishing.KEEP_INTERVAL = 0.2\n"


def test_keep_sends_heartbeats_and_stops_when_the_plan_is_revoked(case: Case) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BEATING + LAUNCH, "publish", case.plan(), "--key", case.key_file, "--yes", "--keep"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PLAN_SWARM_INITIAL_PEERS": ",".join(case.swarm.peers)},
    )
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(3)]
    assert lines[1].startswith("heartbeat sent")
    assert case("revoke", "--prefix", case.prefix, "--key", case.key_file).returncode == 0
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "has taken the plan's place" in err.splitlines()[-1]


def test_a_signal_while_joining_leaves_nothing(case: Case) -> None:
    nowhere = f"/ip4/127.0.0.1/tcp/1/p2p/Qm{'a' * 44}"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "models", "--initial-peers", nowhere, "--timeout", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 30
    while process.poll() is None and not daemons(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) in ((143, ""), (8, ""))
    assert "Traceback" not in err


def test_a_closed_pipe(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_SWARM_INITIAL_PEERS", ",".join(case.swarm.peers))
    assert closed_pipe("status", "--prefix", case.prefix, "--quiet", code=LAUNCH) == (141, "")


def test_a_hostile_name_does_not_reach_the_terminal(case: Case) -> None:
    evil = FakeServer(peer_id(9), 0, 4, extra={"public_name": "\x1b[2J\u202eevil"})
    prefix = f"evil-{case.prefix}"
    case.swarm.fill([model(prefix, 4), *evil.records(prefix)])
    done = case("status", "--prefix", prefix)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
