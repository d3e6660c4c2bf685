"""Every error as one line that says what, where and how to mend it, in the words of the command line."""

from __future__ import annotations

import os
import re
import traceback

from cli import config
from cli.invoked import NAME
from cli.streams import to_stderr

OPTIONS = {"pins": "--pin", "cordons": "--cordon", "drains": "--drain", "spans": "--span"}
"""Fields of a `Policy` whose options are not called as they are."""
TRACEBACK = "PLAN_SWARM_TRACEBACK"


def complain(message: str) -> None:
    """Say it on standard error, in one line that no text in it can break out of."""
    from planner.text import escape

    # The library's messages end where the sentence ends or in a full stop; ours never do.
    to_stderr(f"plan-swarm: {escape(' '.join(message.split()), limit=4000).removesuffix('.')}\n")


def in_options(message: str) -> str:
    """A message about a field of a `Policy` in the words of the line: the option's name, and where its value stands."""
    from dataclasses import fields

    from planner.policy import Policy

    names = "|".join(sorted((field.name for field in fields(Policy)), key=len, reverse=True))
    message = re.sub(rf"^(?:{names})\b", lambda found: option_of(found[0]), message)
    option = re.match(r"--[a-z-]+", message)
    origin = config.origin_of(option[0]) if option is not None else None
    return f"{message}; it stands as {origin}" if origin is not None else message


def option_of(name: str) -> str:
    """The option that sets a field of a `Policy`."""
    return OPTIONS.get(name, "--" + name.replace("_", "-"))


def usage(error: Exception) -> str:
    """What the parser of the command line found wrong, in one line with a way out."""
    option = getattr(error, "option_name", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.startswith("No such option"):
        alike = sorted(getattr(error, "possibilities", None) or ())
        way_out = f"did you mean {' or '.join(alike)}?" if alike else f"{_help(error)} lists them"
        return f"there is no option {option}; {way_out}"
    message = message.strip().removesuffix(".")
    message = message.replace("Value error, ", "").replace("argument(s)", "argument")
    # The parser quotes options as it quotes values; only values need it.
    message = re.sub(r"'(--?[a-z-]+)'", r"\1", message)
    message = re.sub(r"^Invalid value for (--[a-z-]+): must\b", r"\1 must", message)
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    origin = config.origin(context, parameter.name) if context is not None and parameter is not None else None
    way_out = f"it stands as {origin}" if origin is not None else f"see {_help(error)}"
    return f"{message[:1].lower()}{message[1:]}; {way_out}"


def _help(error: Exception) -> str:
    """The help of the command whose line is wrong."""
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else NAME} --help"


def unexpected(error: BaseException) -> None:
    """Say that something went wrong that should not have, and how to learn more."""
    if os.environ.get(TRACEBACK):
        to_stderr("".join(traceback.format_exception(error)))
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    complain(f"unexpected error, a bug in plan-swarm: {what[:500]}; run again with {TRACEBACK}=1 to see where")
