"""Options that an operator wants to have set in every run, from a TOML file.

A key is the name of an option, with or without dashes in front, and holds for every command that has it; a table
named after a command holds for that one alone. What stands on the command line comes first, then the environment,
then this file.

    initial-peers = ["/ip4/10.0.0.1/tcp/31337/p2p/12D3Koo..."]
    timeout = 60

    [publish]
    key = "/home/me/operator.pem"
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

VARIABLE = "PLAN_SWARM_CONFIG"
SHOWN = "~/.config/plan-swarm/config.toml"
"""Where the file is on most systems; `default_path` knows better."""
MAX_SIZE = 2**20
_ONCE = frozenset({"config_file", "dump_file", "version", "help", "install_completion", "show_completion"})
"""Options that make no sense in a file."""


def default_path() -> Path:
    """The file that is read where none is named."""
    return Path(typer.get_app_dir("plan-swarm")) / "config.toml"


def use(context: typer.Context, path: Path | None) -> Path | None:
    """Take what the file says as the defaults of all commands: the callback of ``--config``.

    Raises
    ------
    InputUnreadable
        If the file that was named, or the default one that is there, cannot be read.
    PolicyInvalid
        If it says what no command understands.
    """
    if context.resilient_parsing:  # a shell is completing: nobody would see what is wrong
        return path
    file = default_path() if path is None else path
    if path is not None or _may_exist(file):
        from planner.text import escape

        name = escape(str(file))
        context.default_map = {**(context.default_map or {}), **defaults(_read(file, name), context.command, name)}
    return path


def defaults(settings: Mapping[str, Any], group: Any, where: str) -> dict[str, Any]:
    """The settings of a file, as the parser takes defaults: by parameter, and a mapping for each command.

    Parameters
    ----------
    group
        The command line's parser.
    where
        What messages call the file.

    Raises
    ------
    PolicyInvalid
        If a setting is no option, or not of its kind.
    """
    from planner.errors import PolicyInvalid
    from planner.text import show

    parsers = {"": group, **group.commands}
    found: dict[str, dict[str, Any]] = {name: {} for name in parsers}
    for setting, value in settings.items():
        if isinstance(value, dict):
            if setting not in group.commands:
                raise PolicyInvalid(f"{where}: there is no command {show(setting)} for a table to be named after")
            table, users, whose = value, (setting,), f"{setting} has"
        else:
            table, users, whose = {setting: value}, tuple(parsers), "there is"
        for key, one in table.items():
            fits = {name: option for name in users if (option := _option(parsers[name], key)) is not None}
            if not fits:
                raise PolicyInvalid(f"{where}: {whose} no option {show(key)} that a file could set")
            for name, option in fits.items():
                # A command's own table says more than what holds for all, wherever it stands.
                if isinstance(value, dict) or option.name not in found[name]:
                    found[name][option.name] = _value(one, option, f"{where}: {key}")
    own = found.pop("")
    return {**own, **{name: given for name, given in found.items() if given}}


def _may_exist(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # in a folder that may not be looked into: reading it says so
        return True


def _option(parser: Any, key: str) -> Any | None:
    name = "--" + key.lstrip("-").replace("_", "-")
    for option in parser.params:
        if name in option.opts and option.name not in _ONCE:
            return option
    return None


def _value(value: Any, option: Any, where: str) -> Any:
    """One value as the parser takes it: what it reads by itself as text, so that it reads it as it reads a line."""
    from planner.errors import PolicyInvalid

    if option.is_flag:
        if not isinstance(value, bool):
            raise PolicyInvalid(f"{where} is a switch; write true or false")
        return value
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not option.multiple:
        raise PolicyInvalid(f"{where} takes one value, not a list")
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
        raise PolicyInvalid(f"{where} takes text or numbers{' or a list of them' if option.multiple else ''}")
    texts = [one if isinstance(one, str) else str(one) for one in values]
    return texts if option.multiple else texts[0]


def _read(path: Path, name: str) -> dict[str, Any]:
    from planner.errors import PolicyInvalid
    from planner.files import read_bounded
    from planner.text import escape

    content = read_bounded(path, name, MAX_SIZE, "a TOML file", "which is no file of settings")
    try:
        return _toml()(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of the encoding too
        raise PolicyInvalid(f"{name} is not TOML: {escape(str(error))}") from None


def _toml() -> Callable[[str], dict[str, Any]]:
    if sys.version_info >= (3, 11):
        from tomllib import loads
    else:
        from tomli import loads
    return loads
