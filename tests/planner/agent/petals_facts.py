"""What a Petals source tree says by itself, read by `ast` and not imported: the other witness for the agent's list.

``python petals_facts.py SRC COMMIT DATE >tests/data/petals-main.json`` writes down the facts of a checkout, where SRC
is its folder ``src``. Facts and no source: signatures without annotations, names of attributes, bases, values.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from planner.agent.signatures import LISTED

Function = ast.FunctionDef | ast.AsyncFunctionDef

MODULES = sorted({name.partition(":")[0] for table in list(LISTED)[1:] for name in LISTED[table]})


def facts(source: Path) -> dict[str, dict[str, str]]:
    """The tables of `LISTED` for every function and class in the modules of Petals that it names."""
    found: dict[str, dict[str, str]] = {table: {} for table in list(LISTED)[1:]}
    for module in MODULES:
        file = source.joinpath(*module.split(".")).with_suffix(".py")
        if module.startswith("petals.") and file.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its escape sequences
                tree = ast.parse(file.read_text(encoding="utf-8"))
            imported = dict(imports(tree))
            here = {f"{module}:{name}": of for name, of in imported.items()}
            found["classes"] |= {name: of for name, of in here.items() if name in LISTED["classes"]}
            for node in tree.body:
                read(node, f"{module}:", found, imported)
    return found


def version(source: Path) -> str:
    return re.search(r'__version__ = "(.*)"', (source / "petals/__init__.py").read_text(encoding="utf-8")).group(1)


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def read(node: ast.stmt, place: str, found: dict[str, dict[str, str]], imported: dict[str, str]) -> None:
    if isinstance(node, Function):
        if "setter" not in decorators(node) and node.name != "__init__":
            found["signatures"][place + node.name] = signature(node)
        if place + node.name in LISTED["uses"]:
            found["uses"][place + node.name] = " ".join(sorted(names(node)))
    elif isinstance(node, ast.ClassDef):
        read_class(node, place + node.name, found, imported)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        text = folded(node.value)
        if is_literal(text):
            found["values"][place + node.targets[0].id] = text


def read_class(node: ast.ClassDef, name: str, found: dict[str, dict[str, str]], imported: dict[str, str]) -> None:
    bases = [ast.unparse(base) for base in node.bases]
    found["classes"][name] = " ".join(base if "." in base else imported.get(base, f"builtins.{base}") for base in bases)
    for inner in node.body:
        read(inner, f"{name}.", found, imported)
        if isinstance(inner, Function) and inner.name == "__init__":
            found["signatures"][name] = signature(inner, bound=True)
            found["attributes"][name] = " ".join(sorted(stored(inner)))
    if any("dataclass" in word for word in decorators(node)):
        fields = [inner for inner in node.body if isinstance(inner, ast.AnnAssign)]
        each = (f"{ast.unparse(of.target)}" + ("" if of.value is None else f"={folded(of.value)}") for of in fields)
        found["signatures"][name] = f"({', '.join(each)})"


def decorators(node: Function | ast.ClassDef) -> set[str]:
    return {word for decorator in node.decorator_list for word in re.findall(r"\w+", ast.unparse(decorator))}


def signature(node: Function, bound: bool = False) -> str:
    if "property" in decorators(node):
        return "property"
    of = node.args
    arguments = ast.arguments(
        posonlyargs=[bare(each) for each in of.posonlyargs],
        args=[bare(each) for each in of.args][bound or "classmethod" in decorators(node) :],
        vararg=of.vararg and bare(of.vararg),
        kwonlyargs=[bare(each) for each in of.kwonlyargs],
        kw_defaults=[default and ast.parse(folded(default), mode="eval").body for default in of.kw_defaults],
        kwarg=of.kwarg and bare(of.kwarg),
        defaults=[ast.parse(folded(default), mode="eval").body for default in of.defaults],
    )
    kind = ""
    if isinstance(node, ast.AsyncFunctionDef) and "asynccontextmanager" not in decorators(node):
        kind = "async yields " if any(isinstance(inner, ast.Yield) for inner in own(node)) else "async "
    return f"{kind}({ast.unparse(arguments)})"


def bare(argument: ast.arg) -> ast.arg:
    return ast.arg(arg=argument.arg)


def folded(node: ast.expr) -> str:
    """``256 * 1024`` as the number that it is; what is not made of literals as it stands."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Tuple, ast.Load)
    if all(isinstance(part, allowed) for part in ast.walk(node)):
        return repr(eval(compile(ast.Expression(node), "", "eval"), {}))  # noqa: S307  # literals and arithmetic
    return ast.unparse(node)


def is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except ValueError:
        return False
    return True


def own(node: Function) -> Iterator[ast.AST]:
    """What is in a function, without what is in functions inside of it."""
    pending: list[ast.AST] = [*node.body]
    while pending:
        inner = pending.pop()
        yield inner
        if not isinstance(inner, Function | ast.Lambda):
            pending += ast.iter_child_nodes(inner)


def stored(node: Function) -> set[str]:
    """Attributes of ``self`` that are set."""
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    }


def names(node: Function) -> set[str]:
    """Of attributes and globals: what it assigns to and is given is its own."""
    inner = list(ast.walk(node))
    given = {each.arg for each in inner if isinstance(each, ast.arg)}
    local = {each.id for each in inner if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    found = {each.id for each in inner if isinstance(each, ast.Name)} - given - local - {*dir(builtins)}
    return found | {each.attr for each in inner if isinstance(each, ast.Attribute)}


if __name__ == "__main__":
    folder, commit, date = Path(sys.argv[1]), *sys.argv[2:]
    head = {"source": "github.com/bigscience-workshop/petals", "commit": commit, "date": date}
    json.dump({**head, "version": version(folder), **facts(folder)}, sys.stdout, indent=1)
    print()
