"""What is true of the whole repository: who imports whom, what a run loads, and that the pins are what is installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("solver", "planner", "cli")
DUMP = "examples/llama-65b-hf.json"


def imports(package: str) -> Iterator[tuple[str, str]]:
    """Every import in a package, wherever it stands: the file, and the top-level package that is imported."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no source in {package}"
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((str(file.relative_to(ROOT)), alias.name.split(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(file.relative_to(ROOT)), package if node.level else (node.module or "").split(".")[0]


def loaded_by(code: str, *arguments: str, report: Path) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after running `code`, which must exit with 0."""
    script = (
        "import sys\n"
        f"sys.argv = ['plan-swarm', *{list(arguments)!r}]\n"
        f"try:\n    {code}\n"
        f"finally:\n    open({str(report)!r}, 'w').write('\\n'.join(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in report.read_text().splitlines()}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("solver", {"planner", "cli", "benchmarks", "tests"}),
        ("planner", {"cli", "benchmarks", "tests"}),
        ("cli", {"benchmarks", "tests"}),
        ("benchmarks", {"tests"}),
    ],
)
def test_imports_go_one_way(package, forbidden):
    assert [(file, name) for file, name in imports(package) if name in forbidden] == []


def test_solver_imports_only_numpy_and_ortools_beside_the_standard_library():
    outside = {(file, name) for file, name in imports("solver") if name not in sys.stdlib_module_names}
    assert {name for _, name in outside} <= {"solver", "numpy", "ortools"}, sorted(outside)


def test_nothing_from_a_dump_to_a_plan_imports_petals_or_what_it_needs():
    heavy = {"torch", "transformers", "hivemind", "petals"}
    found = [(file, name) for package in PACKAGES for file, name in imports(package) if name in heavy]
    assert [(file, name) for file, name in found if not file.startswith("planner/agent/")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_published(package):
    assert (ROOT / package / "__init__.py").is_file()
    assert (ROOT / package / "py.typed").is_file()


def test_the_petals_rule_can_be_imported_without_ortools(tmp_path):
    loaded = loaded_by("import solver.petals_rule", report=tmp_path / "modules")
    assert "solver" in loaded
    assert "ortools" not in loaded


def test_help_does_not_load_ortools(tmp_path):
    loaded = loaded_by("from cli.app import main; main()", "--help", report=tmp_path / "modules")
    assert "cli" in loaded
    assert not loaded & {"ortools", "pandas", "torch", "hivemind", "petals"}


def test_a_plan_from_a_dump_loads_no_torch_hivemind_or_petals(tmp_path):
    code, arguments = "from cli.app import main; main()", ("--dump", DUMP, "--json")
    loaded = loaded_by(code, *arguments, report=tmp_path / "modules")
    assert {"cli", "planner", "solver"} <= loaded
    assert not loaded & {"torch", "transformers", "hivemind", "petals"}


@pytest.mark.parametrize("module", ["follow", "slack", "turns", "record", "memory"])
def test_what_an_agent_decides_and_remembers_loads_neither_petals_nor_hivemind_nor_ortools(module, tmp_path):
    loaded = loaded_by(f"import planner.agent.{module}", report=tmp_path / "modules")
    assert "planner" in loaded
    assert not loaded & {"torch", "transformers", "hivemind", "petals", "ortools", "pandas", "cli"}


def requirements_in(path: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / path).read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def installed_version(pin: Requirement) -> Version | None:
    try:
        return Version(version(pin.name))
    except PackageNotFoundError:
        return None


PINS = [pin for pin in requirements_in("constraints.txt") if pin.marker is None or pin.marker.evaluate()]
BUILD_ONLY = {"hatchling", "tomlkit", "trove-classifiers"}
"""What may be missing where everything is installed, as it only builds others."""


@pytest.mark.parametrize("pin", [pin for pin in PINS if installed_version(pin)], ids=lambda pin: pin.name)
def test_what_is_installed_is_what_is_pinned(pin):
    assert pin.specifier.contains(installed_version(pin).public, prereleases=True), f"{pin} is pinned"


def test_what_is_pinned_is_installed():
    assert {pin.name for pin in PINS if installed_version(pin) is None} <= BUILD_ONLY


def test_everything_that_is_asked_for_is_pinned_exactly_once():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [Requirement(line) for line in pyproject["project"]["dependencies"]]
    asked += [Requirement(line) for line in pyproject["project"]["optional-dependencies"]["agent"]]
    asked += [
        line for path in (ROOT / "requirements").glob("*.txt") for line in requirements_in(f"requirements/{path.name}")
    ]
    asked = [requirement for requirement in asked if requirement.marker is None or requirement.marker.evaluate()]
    pinned = [canonicalize_name(pin.name) for pin in PINS]
    assert {canonicalize_name(requirement.name) for requirement in asked} <= set(pinned)
    assert len(pinned) == len(set(pinned))
    versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}
    assert [r for r in asked if not r.specifier.contains(versions[canonicalize_name(r.name)], prereleases=True)] == []


@pytest.mark.parametrize("group", ["test", "check"])
def test_dependency_groups_say_what_the_requirement_files_say(group):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = {requirement.name for requirement in requirements_in(f"requirements/{group}.txt")}
    assert set(pyproject["dependency-groups"][group]) == listed


def test_the_uv_override_and_the_pins_agree():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    versions = {pin.name: next(iter(pin.specifier)).version for pin in PINS}
    (override,) = pyproject["tool"]["uv"]["override-dependencies"]
    assert override["package"] == {"name": "petals", "version": versions["petals"]}
    for requirement in map(Requirement, override["dependencies"]):
        assert requirement.specifier.contains(versions[requirement.name]), requirement
