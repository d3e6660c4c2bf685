"""The names and signatures of Petals and hivemind that the agent rests on, and whether what is installed has them.

The agent works inside of a running server, on names that Petals promises to nobody. `signatures.json` lists them as
the Petals of PyPI and the one of git have them; `check` compares before anything is started, so that a Petals of
another shape is refused by the name of what differs instead of failing in the middle of a change.
"""

from __future__ import annotations

import ast
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

from planner.agent.compat import INSTALL, PetalsUnusable, prepare

LISTED: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""``petals`` has the versions in order. The tables below it have ``module:name`` and what is to be found there: one
text where all versions agree, else one for each, null where that version has no such name."""
KNOWN: tuple[str, ...] = tuple(LISTED["petals"])
HANDLER = "petals.server.handler:TransformerConnectionHandler"


def check() -> str:
    """Say which of the known Petals the installed one is, by what it has and not by what it calls itself.

    To be called before anything of Petals is replaced.

    Returns
    -------
    str
        One of `KNOWN`: what the agent may rest on is what that version has.

    Raises
    ------
    PetalsUnusable
        If it is none of them; the message names every difference to the one that comes nearest. What is not
        installed at all, `prepare` names.
    """
    prepare()
    found = {version: complaints(version) for version in KNOWN}
    nearest = min(KNOWN, key=lambda version: len(found[version]))
    if not found[nearest]:
        return nearest
    petals, hivemind = (getattr(import_module(name), "__version__", "?") for name in ("petals", "hivemind"))
    raise PetalsUnusable(
        f"petals {petals} with hivemind {hivemind} is not what the agent knows: {'; '.join(found[nearest])}; "
        f"compared with petals {nearest}, known: {', '.join(KNOWN)}; {INSTALL}"
    )


def complaints(version: str) -> tuple[str, ...]:
    """What the installed Petals and hivemind lack, or have otherwise, of what is listed for one version.

    Parameters
    ----------
    version
        One of `KNOWN`.

    Returns
    -------
    tuple of str
        A line for each, beginning with the dotted name; empty if it is this version as far as the agent can tell.
    """
    lines: list[str] = []
    for table, compare in _COMPARISONS.items():
        for name, wanted in listed(table, version).items():
            try:
                found = _find(name)
            except _Missing as missing:
                lines += [] if wanted is None else [str(missing)]
                continue
            if wanted is None:
                lines.append(f"{_dotted(name)} exists, which it does not in {version}")
            else:
                lines += (f"{_dotted(name)} {said}" for said in compare(found, wanted))
    lines += _unknown_rpcs(listed("signatures", version))
    return tuple(dict.fromkeys(lines))


def listed(table: str, version: str) -> dict[str, str | None]:
    """One table of `LISTED` as it is for one version."""
    column = KNOWN.index(version)
    return {name: of if isinstance(of, str) else of[column] for name, of in LISTED[table].items()}


def written(found: Any) -> str:
    """How something is called, in the words of the list: ``async (self, uid, *, timeout=None)``."""
    if isinstance(found, property):
        return "property"
    kind = "async yields " if inspect.isasyncgenfunction(found) else ""
    kind = "async " if inspect.iscoroutinefunction(found) else kind
    signature = inspect.signature(found)
    empty = inspect.Parameter.empty
    bare = [
        each.replace(annotation=empty, default=empty if each.default is empty else _AsIs(_text(each.default)))
        for each in signature.parameters.values()
    ]
    return kind + str(signature.replace(parameters=bare, return_annotation=empty))


@dataclass(frozen=True)
class Signature:
    """What `written` says, to be compared."""

    kind: str
    """``async`` for a coroutine, ``async yields`` for an asynchronous generator, ``property``, else nothing."""
    positional: tuple[str, ...]
    """What may be given by place, in order."""
    defaults: dict[str, str | None]
    """Of every parameter, None for one that must be given; ``...`` in the list stands for any."""

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read what is written."""
        kind, _, parameters = text.partition("(")
        function = ast.parse(f"def _({parameters or ')'}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        arguments = function.args
        positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        required: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
        names = [*positional, *(each.arg for each in arguments.kwonlyargs)]
        values = [*required, *arguments.defaults, *arguments.kw_defaults]
        defaults = {
            name: None if value is None else ast.unparse(value) for name, value in zip(names, values, strict=True)
        }
        # Under the same name whatever it is called, and never required.
        defaults |= {"*args": ""} if arguments.vararg else {}
        defaults |= {"**kwargs": ""} if arguments.kwarg else {}
        return cls(kind.strip(), tuple(positional), defaults)


def _compare_signature(found: Any, wanted_text: str) -> Iterator[str]:
    try:
        has_text = written(found)
    except (TypeError, ValueError):  # not to be called, or written in C
        yield f"shows no signature, expected {wanted_text}"
        return
    wanted, has = Signature.parse(wanted_text), Signature.parse(has_text)
    if has.kind != wanted.kind:
        yield f"is {has_text}, expected {wanted_text}"
        return
    for name, default in wanted.defaults.items():
        if name not in has.defaults:
            yield f"has no parameter {name}"
        elif name in wanted.positional and name not in has.positional:
            yield f"takes {name} by keyword only"
        elif default is not None and has.defaults[name] is None:
            yield f"requires parameter {name}, expected {name}={default}"
        elif default not in (None, "...", has.defaults[name]):
            yield f"has {name}={has.defaults[name]}, expected {name}={default}"
    new = [name for name, default in has.defaults.items() if default is None and name not in wanted.defaults]
    yield from (f"has a new required parameter {name}" for name in new)
    if set(wanted.positional) <= set(has.positional) and has.positional[: len(wanted.positional)] != wanted.positional:
        yield f"takes its parameters in another order: {', '.join(has.positional)}"


def _compare_value(found: Any, wanted: str) -> Iterator[str]:
    if _text(found) != wanted:
        yield f"is {_text(found)}, expected {wanted}"


def _compare_class(found: Any, wanted: str) -> Iterator[str]:
    """Whether it is that class or derived from it."""
    ancestors = found.__mro__ if isinstance(found, type) else ()
    if wanted not in {f"{ancestor.__module__}.{ancestor.__qualname__}" for ancestor in ancestors}:
        yield f"is no {wanted}"


def _compare_attributes(found: Any, wanted: str) -> Iterator[str]:
    """Whether instances have them from their birth: no instance is there yet to be asked."""
    constructors = [vars(ancestor).get("__init__") for ancestor in getattr(found, "__mro__", ())]
    set_there = {
        each.argval
        for constructor in constructors
        for code in _code(constructor)
        for each in dis.get_instructions(code)
        if each.opname == "STORE_ATTR"
    }
    for name in wanted.split():
        if name not in set_there and not hasattr(found, name):
            yield f"has no attribute {name}"


def _compare_uses(found: Any, wanted: str) -> Iterator[str]:
    """Whether its code looks up names that the agent puts its own things behind."""
    used = {name for code in _code(found) for name in code.co_names}
    yield from (f"does not use {name}" for name in wanted.split() if name not in used)


_COMPARISONS: dict[str, Callable[[Any, str], Iterator[str]]] = {
    "signatures": _compare_signature,
    "values": _compare_value,
    "classes": _compare_class,
    "attributes": _compare_attributes,
    "uses": _compare_uses,
}


def _unknown_rpcs(known: Mapping[str, str | None]) -> list[str]:
    """Every ``rpc_`` method is open to the swarm, so that one that is not known would answer for what is not served."""
    try:
        handler = _find(HANDLER)
    except _Missing:
        return []  # said already
    names = [name for name in dir(handler) if name.startswith("rpc_")]
    return [f"{_dotted(HANDLER)} has an unknown {name}" for name in names if f"{HANDLER}.{name}" not in known]


class _Missing(Exception):
    """The message says what is not where."""


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except Exception as error:  # petals checks by assert, and what it needs fails in ways of its own
        said = (str(error).splitlines() or ["no reason given"])[0]
        raise _Missing(f"{module} cannot be imported: {type(error).__name__}: {said}") from error
    place = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise _Missing(f"{place} has no {part}")
        found, place = getattr(found, part), f"{place}.{part}"
    return found


def _code(function: Any) -> Iterator[CodeType]:
    """The code of a function and of what is defined inside of it; nothing for what is not written in Python."""
    pending = [getattr(inspect.unwrap(function), "__code__", None)] if callable(function) else []
    while pending:
        if (code := pending.pop()) is not None:
            yield code
            pending += (constant for constant in code.co_consts if isinstance(constant, CodeType))


class _AsIs(str):
    """Text that stands in a signature without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _text(value: Any) -> str:
    """As a literal is written, for what is no literal its type: an address in memory is no difference."""
    if isinstance(value, Enum):
        return repr(value.value)
    if value is None or isinstance(value, bool | int | float | str | tuple):
        return repr(value)
    return f"{type(value).__name__}()"


def _dotted(name: str) -> str:
    return name.replace(":", ".")
