"""Options from a file: which commands take them, what they yield to, and what is wrong with a bad file."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from cli import app, config
from cli.asked import Asked
from planner.errors import PolicyInvalid
from tests.cli.process import NOWHERE, REAL, run

OF_FILE, OF_ENVIRONMENT = NOWHERE.replace("tcp/1", "tcp/2"), NOWHERE.replace("tcp/1", "tcp/3")
GROUP = typer.main.get_command(app.app)


def asked(*arguments: str, settings: str, folder: Path) -> Asked:
    """What planning is asked to do, with these settings."""
    path = folder / "settings.toml"
    path.write_text(settings, encoding="utf-8")
    found = app._parse(["--config", str(path), *arguments])
    assert isinstance(found, Asked)
    return found


def test_settings_are_defaults_of_every_command_that_has_the_option() -> None:
    found = config.defaults({"initial-peers": ["a", "b"], "--timeout": 60, "seed": 3}, GROUP, "file")
    assert (found["initial_peers"], found["timeout"], found["seed"]) == (["a", "b"], "60", "3")
    for command in ("dump", "models", "publish", "revoke", "status", "verify"):
        assert found[command] == {"initial_peers": ["a", "b"], "timeout": "60"}
    assert "keygen" not in found


@pytest.mark.parametrize("order", [1, -1])
def test_a_commands_own_table_says_more_wherever_it_stands(order: int) -> None:
    settings = dict(list({"timeout": 60, "status": {"timeout": 5, "watch": True}}.items())[::order])
    found = config.defaults(settings, GROUP, "file")
    assert (found["status"], found["models"]["timeout"]) == ({"timeout": "5", "watch": True}, "60")


def test_a_name_may_be_written_with_dashes_or_without() -> None:
    for name in ("--time-limit", "time-limit", "time_limit"):
        assert config.defaults({name: 3}, GROUP, "file") == {"time_limit": "3"}


def test_a_single_value_is_a_list_of_one_where_several_may_be_given() -> None:
    assert config.defaults({"pin": "server4"}, GROUP, "file") == {"pin": ["server4"]}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"initial-peer": "a"}, "there is no option 'initial-peer' that a file could set"),
        ({"dump": "a.json"}, "there is no option 'dump'"),
        ({"previous": "plan.json"}, "there is no option 'previous'"),
        ({"config": "a.toml"}, "there is no option 'config'"),
        ({"models": {"key": "a.pem"}}, "models has no option 'key'"),
        ({"modles": {}}, "there is no command 'modles'"),
        ({"quiet": "yes"}, "quiet is a switch; write true or false"),
        ({"timeout": [1, 2]}, "timeout takes one value, not a list"),
        ({"timeout": True}, "timeout takes text or numbers"),
        ({"pin": [["a"]]}, "pin takes text or numbers or a list of them"),
        ({"\x1b[2J": 1}, r"'\x1b[2J'"),
    ],
)
def test_what_no_command_understands_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        config.defaults(settings, GROUP, "here")
    assert str(caught.value).startswith("here: ")
    assert said in str(caught.value)


def test_the_line_comes_first_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = f'prefix = "m"\ninitial-peers = "{OF_FILE}"\nmovable = "agents"\nhorizon = 60\n'
    found = asked(settings=settings, folder=tmp_path)
    assert (found.prefix, found.initial_peers) == ("m", [OF_FILE])
    assert found.policy == {"movable": "agents", "horizon": 60.0}
    monkeypatch.setenv("PLAN_SWARM_INITIAL_PEERS", OF_ENVIRONMENT)
    assert asked(settings=settings, folder=tmp_path).initial_peers == [OF_ENVIRONMENT]
    found = asked("--initial-peers", NOWHERE, "--horizon", "7", settings=settings, folder=tmp_path)
    assert (found.initial_peers, found.policy["horizon"]) == ([NOWHERE], 7.0)


def test_lengths_hops_and_how_to_search_may_be_set(tmp_path: Path) -> None:
    settings = "resize = true\nmin-span = 4\nmax-hops = 3\ndeterministic = true\n"
    wanted = {"resize": True, "min_span": 4, "max_hops": 3, "deterministic": True}
    assert asked("--dump", REAL, settings=settings, folder=tmp_path).policy == wanted
    assert asked("--dump", REAL, settings="resize = false\n", folder=tmp_path).policy == {}


def test_a_dump_is_planned_with_peers_set_for_the_living_swarm(tmp_path: Path) -> None:
    """Only what is typed can contradict it."""
    assert asked("--dump", REAL, settings="initial-peers = 'a'\ntimeout = 5", folder=tmp_path).dump == REAL


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"[a", 2, "is not TOML: "),
        (b"\xff", 2, "is not TOML: "),
        (b"a = " + b"[" * 100_000, 2, "is not TOML: "),
        (b"#" * (2**20 + 1), 4, "has over 1 MiB"),
        (b"timeout = 'soon'", 2, "'soon' is not a number; it stands as timeout in FILE"),
        (b"time-limit = 1.5\nworkers = 1.5", 2, "'1.5' is not a whole number; it stands as workers in FILE"),
        (b"seed = -1", 2, "--seed must be from 0 to 2147483647, not -1; it stands as seed in FILE"),
        (b"min-gain = 'much'", 2, "or a share, such as 2%; it stands as min-gain in FILE"),
        (None, 4, "does not exist; give a TOML file"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes | None, code: int, said: str) -> None:
    path = tmp_path / "settings.toml"
    if content is not None:
        path.write_bytes(content)
    done = run("--config", str(path), "--dump", REAL)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert said.replace("FILE", str(path)) in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("timeout = -5", "--timeout must be above 0 and at most 3600 seconds, not -5; it stands as timeout in FILE"),
        ("[models]\n--timeout = -5", "not -5; it stands as --timeout in [models] of FILE"),
        ("timeout = 5\n[models]\ntimeout = 'x'", "'x' is not a number; it stands as timeout in [models] of FILE"),
        ("initial_peers = []", "initial_peers in FILE names no peer; write one like /ip4/"),
        ("[models]\ninitial-peers = ' , '", "initial-peers in [models] of FILE names no peer"),
        ("initial-peers = ['/ip4/1.1.1.1/tcp/1']", "initial-peers in FILE: '/ip4/1.1.1.1/tcp/1': it does not end in"),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_bad_value_is_named_with_its_file_and_key(tmp_path: Path, content: str, said: str, after: bool) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(content)
    given = ["--config", str(path)]
    done = run(*(["models", *given] if after else [*given, "models"]))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said.replace("FILE", str(path)) in done.stderr


def test_a_bad_value_on_the_line_is_not_laid_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("timeout = 5")
    done = run("models", "--config", str(path), "--timeout", "-5")
    assert done.stderr == "plan-swarm: --timeout must be above 0 and at most 3600 seconds, not -5\n"


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_peers_that_are_set_to_nothing_are_not_the_public_ones(value: str) -> None:
    for arguments in (["--prefix", "m"], ["models"], ["status", "--prefix", "m"]):
        done = run(*arguments, env={"PLAN_SWARM_INITIAL_PEERS": value})
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("plan-swarm: PLAN_SWARM_INITIAL_PEERS names no peer; write one like /ip4/")
        assert done.stderr.endswith("or unset it for the public swarm\n")


def test_what_is_set_for_the_living_swarm_does_not_matter_to_a_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_SWARM_INITIAL_PEERS", "")
    found = app._parse(["--dump", REAL])
    assert isinstance(found, Asked)
    assert not found.initial_peers


def test_the_default_file_and_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config.default_path() == tmp_path / "plan-swarm" / "config.toml"
    config.default_path().parent.mkdir()
    config.default_path().write_text("prefix = 'of the default file'")
    other = tmp_path / "other.toml"
    other.write_text("prefix = 'of the other'")

    def prefix() -> str | None:
        found = app._parse([])
        assert isinstance(found, Asked)
        return found.prefix

    assert prefix() == "of the default file"
    monkeypatch.setenv("PLAN_SWARM_CONFIG", str(other))
    assert prefix() == "of the other"


def test_completion_is_silent_about_a_bad_file(tmp_path: Path) -> None:
    words = f"plan-swarm --config {tmp_path / 'none'} --pr"
    done = run(env={"_PLAN_SWARM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "--prefix" in done.stdout


def test_a_setting_reaches_a_command(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"initial-peers = ['{NOWHERE}']\n[models]\ntimeout = 3\n")
    for arguments in (["--config", str(path), "models"], ["models", "--config", str(path)]):
        done = run(*arguments)
        assert done.returncode == 8
        assert NOWHERE in done.stderr


def test_every_command_takes_the_file_after_its_name() -> None:
    for command in (*GROUP.commands, "demo swarm"):
        if command not in ("demo", "serve"):
            assert "--config" in run(*command.split(), "--help").stdout
    # What stands after `serve` is Petals' own option of that name.
    assert "--config" not in run("serve", "--help").stdout
