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
from copy import copy
from pathlib import Path
from typing import Any

import typer

from cli.asked import source_of

VARIABLE = "PLAN_SWARM_CONFIG"
SHOWN = "~/.config/plan-swarm/config.toml"
"""Where the file is on most systems; `default_path` knows better."""
MAX_SIZE = 2**20
_ONCE = frozenset({"config_file", "dump_file", "previous", "version", "help", "install_completion", "show_completion"})
"""Options that make no sense in a file."""


def default_path() -> Path:
    """The file that is read where none is named."""
    return Path(typer.get_app_dir("plan-swarm")) / "config.toml"


_FILE, _SETTINGS = f"{__name__}.file", f"{__name__}.settings"
"""Names in a context's `meta`, which a command shares with the line before it."""
_last: list[typer.Context] = []
"""The context of the command that was parsed last, for what turns out to be wrong only later."""


def take_everywhere(group: Any) -> None:
    """Let ``--config`` stand after a command too, as that command's other options do.

    Not after one that hands what it does not know to another program, which has a ``--config`` of its own.
    """
    (option,) = (option for option in group.params if option.name == "config_file")
    option = copy(option)
    option.expose_value, option.envvar, option.rich_help_panel = False, None, None
    below = list(group.commands.values())
    for parser in below:  # which grows
        below += getattr(parser, "commands", {}).values()
        if not hasattr(parser, "commands") and not parser.context_settings.get("ignore_unknown_options"):
            parser.params.append(option)


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
    _last[:] = [context]
    file = default_path() if path is None and context.parent is None else path
    if file is not None and (path is not None or _may_exist(file)):
        from planner.text import escape

        name = escape(str(file))
        settings = _read(file, name)
        context.meta.update({_FILE: name, _SETTINGS: settings})
        context.default_map = _of(context, defaults(settings, context.find_root().command, name))
    return path


def origin(context: Any, name: str) -> str | None:
    """Where in a file of settings the value of a parameter stands; None if it comes from elsewhere."""
    if source_of(context, name) != "DEFAULT_MAP" or _FILE not in context.meta:
        return None
    file, settings = context.meta[_FILE], context.meta[_SETTINGS]
    own = settings.get(context.info_name)
    for table, place in ((own, f"[{context.info_name}] of {file}"), (settings, file)):
        for key in table if isinstance(table, dict) else ():
            option = _option(context.command, key)
            if option is not None and option.name == name:
                return f"{key} in {place}"
    return None


def origin_of(option: str) -> str | None:
    """The same of an option of the command that was parsed last."""
    for context in _last:
        found = _option(context.command, option)
        if found is not None:
            return origin(context, found.name)
    return None


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


def _of(context: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The part of all defaults that is a context's own."""
    if context.parent is None:
        return found
    part: dict[str, Any] = _of(context.parent, found).get(context.info_name, {})
    return part


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
