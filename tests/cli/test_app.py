"""The command as a process: what it prints where, and with which code it ends."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.app import command
from cli.ending import ending
from cli.exitcodes import MEANINGS, ExitCode
from planner import load_state, make_plan
from planner.errors import InfeasibleDemands, PolicyInvalid
from planner.plan import Plan
from planner.policy import Policy
from tests.cli.build import VALIDATOR, Row, plan_of, real_dump
from tests.cli.process import AT_ONCE, LAUNCH, NOWHERE, REAL, ROOT, run


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan | Exception], None]:
    """Make the planner give this plan, or fail so."""

    def use(result: Plan | Exception) -> None:
        def make_plan(*_: object, **__: object) -> Plan:
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setitem(sys.modules, "planner.planning", types.SimpleNamespace(make_plan=make_plan))

    return use


def here(*arguments: str) -> ExitCode:
    """Run the command in this process."""
    return ending(lambda: command(arguments))


# Help ---------------------------------------------------------------------------------------------------


def test_help_says_what_every_code_means() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{code.value}  {re.escape(meaning)} *$", done.stdout, re.MULTILINE)
    assert set(MEANINGS) == set(ExitCode)
    for panel in ("What to read", "What is asked", "The search", "Output"):
        assert panel in done.stdout


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    before = time.process_time(), os.times().children_user
    code = f"import sys, atexit; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr)); {LAUNCH}"
    done = run("--help", code=code)
    imported = set(done.stderr.split())
    assert not {"ortools", "numpy", "planner", "solver", "torch", "petals"} & imported
    # Time on the processor, so that a busy machine does not fail the test.
    assert os.times().children_user - before[1] < 0.5


def test_help_tells_the_defaults_there_are() -> None:
    text = " ".join(run("--help", env={"COLUMNS": "200"}).stdout.split())
    policy = Policy()
    for option, default in (("time-limit", policy.time_limit), ("horizon", policy.horizon), ("seed", policy.seed)):
        assert re.search(rf"--{option} [^│]*Default: {default:g}[.,]", text)


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("plan-swarm ")


# Errors: one line, one code -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "name a model with --prefix, or a dump with --dump FILE"),
        (["--prefix", "m", "--timeout", "0"], 2, "--timeout must be above 0"),
        (["--prefix", "m", "--timeout", "soon"], 2, "--timeout: 'soon' is not a number"),
        (["--prefix", "m", "--initial-peers", "nowhere"], 2, "--initial-peers: 'nowhere': it is not a multiaddress"),
        (["--prefix", "m", "--initial-peers", " ,"], 2, "--initial-peers names no peer; write one like /ip4/"),
        (["models", "--initial-peers", NOWHERE.replace("127.0.0.1", "999.1.1.1")], 2, "'999.1.1.1' is no IPv4 address"),
        (["models", "--initial-peers", f"{NOWHERE},{NOWHERE[:-1]}"], 2, "is no peer id; write it like /ip4/"),
        (["--dump", REAL, "--timeout", "5"], 2, "--timeout is for reading the living swarm"),
        (["--dump", REAL, "--initial-peers", "x"], 2, "--initial-peers is for reading the living swarm"),
        (["--prefix", "m", "models"], 2, "--prefix is an option of planning and means nothing to models"),
        (["--dump", REAL, "status", "--prefix", "m"], 2, "--dump is an option of planning"),
        (["modles"], 2, "modles"),
        (["dump"], 2, "OUT"),
        (["dump"], 2, "see plan-swarm dump --help"),
        (["dump", "x.json", "--prefx", "m"], 2, "did you mean --prefix?"),
        (["status", "--zzz"], 2, "there is no option --zzz; plan-swarm status --help lists them"),
        (["demo", "swam"], 2, "see plan-swarm demo --help"),
        (["dump", "-", "--prefix", "m"], 2, "OUT needs the name of a file"),
        (["dump", str(ROOT), "--prefix", "m"], 7, "it is a directory; name a file with OUT"),
        (["dump", "x.json", "--prefix", "m", "--num-blocks", "0"], 2, "--num-blocks must be from 1 to 100,000, not 0"),
        (["status", "--prefix", "m", "--interval", "inf"], 2, "--interval: 'inf' is not a finite number"),
        (["status", "--prefix", "m", "--timeout", "nan"], 2, "--timeout: 'nan' is not a finite number"),
        (["keygen", ""], 11, "is a directory; name a file"),
        (["dump", "x.json"], 2, "--prefix"),
        (["dump", "no/folder/x.json", "--prefix", "m"], 7, "there is no folder no/folder"),
        (["publish"], 2, "PLAN"),
        (["publish", "nowhere.json", "--key", "k", "--yes", "--keep", "--lease", "5"], 2, "exclude each other"),
        (["publish", "nowhere.json", "--key", "k", "--yes", "--lease", "-5"], 2, "--lease must be above 0"),
        (["publish", "nowhere.json", "--key", "k", "--yes"], 4, "nowhere.json does not exist"),
        (["publish", REAL, "--key", "k", "--yes"], 5, "is not a plan to publish"),
        (["publish", REAL, "--key", "k", "--yes", "--force", "all"], 2, "'all' is not one of"),
        (["revoke", "--prefix", "m", "--key", "nowhere.pem"], 11, "nowhere.pem does not exist"),
        (["status", "--prefix", "m", "--trust", "x"], 11, "'x' is not a public key"),
        (["status", "--prefix", "m", "--interval", "0"], 2, "--interval must be above 0"),
        (["verify"], 2, "name a FILE, or --prefix and --trust"),
        (["verify", "nowhere.plan"], 4, "nowhere.plan does not exist"),
        (["verify", REAL], 13, "is refused: too_large"),
        (["keygen", REAL, "--passphrase-file", "nowhere"], 11, "the passphrase in nowhere cannot be read"),
        (["--prefx", "x"], 2, "there is no option --prefx; did you mean --prefix?"),
        (["stray"], 2, "stray"),
        (["--dump"], 2, "--dump"),
        (["--dump", REAL, "--movable", "none"], 2, "'none' is not one of 'all', 'agents'"),
        (["--dump", REAL, "--max-moves", "many"], 2, "--max-moves: 'many' is not a whole number"),
        (["--dump", REAL, "--max-moves", "-1"], 2, "--max-moves must be from 0 to 2147483647, not -1"),
        (["--dump", REAL, "--min-span", "4"], 2, "--min-span 4 goes with --resize"),
        (["--dump", REAL, "--resize", "--min-span", "0"], 2, "--min-span must be from 1 to 2147483647, not 0"),
        (["--dump", REAL, "--max-hops", "0"], 2, "--max-hops must be from 1 to 2147483647, not 0"),
        (["--dump", REAL, "--max-hops", "few"], 2, "--max-hops: 'few' is not a whole number"),
        (["--dump", REAL, "--previous", "nowhere.json"], 4, "nowhere.json does not exist"),
        (["--dump", REAL, "--previous", str(ROOT)], 4, "is a directory"),
        (["--dump", REAL, "--previous", REAL], 5, "is not a plan to go on from: its format is 'plan-swarm.dht-dump'"),
        (["--dump", REAL, "--horizon", "soon"], 2, "--horizon: 'soon' is not a number"),
        (["--dump", REAL, "--horizon", "0"], 2, "--horizon must be"),
        (["--dump", REAL, "--time-limit", "0"], 2, "--time-limit must be"),
        (["--dump", REAL, "--time-limit", "nan"], 2, "--time-limit: 'nan' is not a finite number"),
        (["--dump", REAL, "--seconds-per-block", "-1"], 2, "--seconds-per-block must be"),
        (["--dump", REAL, "--workers", "0"], 2, "--workers must be from 1 to 1024, not 0"),
        (["--dump", REAL, "--num-blocks", "0"], 2, "--num-blocks must be"),
        (["--dump", REAL, "--num-blocks", "100001"], 2, "--num-blocks must be"),
        (["--dump", REAL, "--min-gain", "much"], 2, "--min-gain 'much'"),
        (["--dump", REAL, "--min-gain=-5"], 2, "--min-gain must be"),
        (["--dump", REAL, "--span", "server4"], 2, "PEER=START:END"),
        (["--dump", REAL, "--span", "server4=21-40"], 2, "'21-40' is not a span; write START:END"),
        (["--dump", REAL, "--pin", "=0:3"], 2, "names no server"),
        (["--dump", REAL, "--pin", "server4=40:21"], 2, "empty or reversed"),
        (["--dump", REAL, "--pin", "server4=\x1b[2J"], 2, "not a span"),
        (["--dump", "nowhere.json"], 4, "nowhere.json does not exist"),
        (["--dump", str(ROOT)], 4, "is a directory"),
        (["--dump", REAL, "--prefix", "bloom"], 6, "it holds llama-65b-hf"),
        (["--dump", REAL, "--out", "no/such/folder/plan.json"], 7, "there is no folder no/such/folder"),
        (["--dump", REAL, "--out", str(ROOT)], 7, "is a directory"),
        (["--dump", REAL, "--out", "/dev/null"], 7, "not a plain file"),
        (["--dump", REAL, "--out", REAL], 2, "would overwrite a file that is read"),
        (["--dump", REAL, "--out", "-"], 2, "--json"),
    ],
)
def test_bad_command_lines(arguments: list[str], code: int, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert here(*arguments) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("plan-swarm: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert text in err


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 4), ("{", 4), ("[]", 5), ('{"format": "other"}', 5), ('{"format": "plan-swarm.dht-dump"}', 5)],
)
def test_bad_input_on_standard_input(text: str, code: int) -> None:
    done = run("--dump", "-", input=text)
    assert (done.returncode, done.stdout) == (code, "")
    assert re.fullmatch(r"plan-swarm: standard input.*\n", done.stderr)


def test_an_unexpected_error_is_one_line_too(
    planned: Callable[..., None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(KeyError("oops\nand more"))
    assert here("--dump", REAL) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"plan-swarm: unexpected error.*oops.*PLAN_SWARM_TRACEBACK=1.*\n", err)
    monkeypatch.setenv("PLAN_SWARM_TRACEBACK", "1")
    assert here("--dump", REAL) == 1
    assert "Traceback" in capfd.readouterr().err


def test_messages_speak_of_options(planned: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    for message, shown in (
        ("pins: 'x' is in no peer id", "--pin: 'x' is in no peer id"),
        ("min_replicas must be less", "--min-replicas must be less"),
        ("seedling is no field", "seedling is no field"),
    ):
        planned(PolicyInvalid(message))
        assert here("--dump", REAL) == 2
        assert capfd.readouterr().err == f"plan-swarm: {shown}\n"


def test_a_plan_to_go_on_from(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, dump = tmp_path / "plan.json", tmp_path / "dump.json"
    plan.write_text(json.dumps(make_plan(load_state(REAL), Policy(time_limit=1.0)).to_json()))
    assert here("--dump", REAL, "--previous", str(plan), "--out", str(plan)) == 2
    assert "would overwrite a file that is read" in capfd.readouterr().err
    dump.write_text(Path(REAL).read_text().replace("llama-65b-hf", "bloom"))
    assert here("--dump", str(dump), "--previous", str(plan)) == 5
    said = "the previous plan is for 'llama-65b-hf' of 80 blocks, and the swarm read is 'bloom' of 80"
    assert capfd.readouterr() == ("", f"plan-swarm: {said}\n")
    plan.write_text(plan.read_text().replace('"hops": 1', '"hops": 2', 1))
    assert here("--dump", REAL, "--previous", str(plan)) == 5
    assert "is not a plan to go on from: before.hops is 2, and should be 1" in capfd.readouterr().err


def test_too_few_hops(capfd: pytest.CaptureFixture[str]) -> None:
    assert here("--dump", str(ROOT / "benchmarks" / "data" / "churn-80x100-4.json"), "--max-hops", "1") == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"plan-swarm: --max-hops 1 cannot be kept: .* a request needs \d+ of them at least\n", err)


# What is printed and written ----------------------------------------------------------------------------


def test_json_is_one_document_and_nothing_else(planned: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    planned(real_dump())
    assert here("--dump", REAL, "--json") == 0
    out, err = capfd.readouterr()
    VALIDATOR.validate(json.loads(out))
    assert json.loads(out) == json.loads(json.dumps(real_dump().to_json()))
    assert out.isascii()
    assert err == ""


def test_out_gets_the_document_and_standard_output_the_view(
    planned: Callable[..., None], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    planned(real_dump())
    path = tmp_path / "plan.json"
    path.write_text("what was there")
    assert here("--dump", REAL, "--out", str(path)) == 0
    out, err = capfd.readouterr()
    VALIDATOR.validate(json.loads(path.read_text()))
    assert out.startswith("Move 1 server: ")
    assert "\x1b" not in out
    assert err == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_an_unwritable_file_does_not_lose_the_plan(
    planned: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned(real_dump())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert here("--dump", REAL, "--out", str(tmp_path / "plan.json")) == 7
    out, err = capfd.readouterr()
    assert out.startswith("Move 1 server: ")
    assert re.fullmatch(r"plan-swarm: .*No space left on device.*\n", err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_error", [False, True])
def test_contradicting_demands(
    as_error: bool, planned: Callable[..., None], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reason = "server4 is both pinned and drained; ask for one of them"
    plan = replace(plan_of([Row("a", (0, 4), (0, 4))], 4), status="infeasible", warnings=(reason,))
    planned(InfeasibleDemands(reason) if as_error else plan)
    path = tmp_path / "plan.json"
    assert here("--dump", REAL, "--out", str(path)) == 3
    assert capfd.readouterr() == ("", f"plan-swarm: {reason}\n")
    assert here("--dump", REAL, "--json", "--detailed-exitcode") == 3
    out, err = capfd.readouterr()
    assert err == f"plan-swarm: {reason}\n"
    if not as_error:
        assert json.loads(out)["status"] == "infeasible"
    assert not path.exists()


def test_detailed_exitcode(planned: Callable[..., None]) -> None:
    planned(real_dump())
    assert here("--dump", REAL) == 0
    assert here("--dump", REAL, "--detailed-exitcode") == 10
    planned(plan_of([Row("a", (0, 4), (0, 4))], 4))
    assert here("--dump", REAL, "--detailed-exitcode") == 0


def test_ascii_where_asked_or_where_nothing_else_goes(
    planned: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    planned(real_dump())
    assert here("--dump", REAL, "--ascii") == 0
    assert capfd.readouterr().out.isascii()
    done = run("--dump", REAL, code=AT_ONCE + LAUNCH, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
