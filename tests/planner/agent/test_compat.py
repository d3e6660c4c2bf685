"""Petals on the installed hivemind, and what is said when an installed version lacks something."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from planner.agent import compat
from planner.errors import PlanSwarmError

ROOT = Path(__file__).parents[3]
installed = pytest.mark.skipif(find_spec("petals") is None, reason="petals is not installed: make test installs it")


def imported_from_the_top_level() -> set[str]:
    """What the installed petals takes from `hivemind` itself, by import or by attribute."""
    names = set()
    for file in Path(find_spec("petals").origin).parent.rglob("*.py"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its escape sequences
            tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "hivemind" and not node.level:
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hivemind":
                names.add(node.attr)
    return names


@installed
def test_prepares_petals_and_says_nothing():
    script = f"""
import logging, os, sys
before = [*logging.root.handlers], logging.root.level, os.environ.get("PETALS_LOGGING")
from planner.agent.compat import PLACES, prepare
prepare()
import hivemind
kept = dict(vars(hivemind))
prepare()
assert dict(vars(hivemind)) == kept, "the second call changed something"
for place, names in PLACES.items():
    for name in names:
        assert getattr(hivemind, name) is getattr(sys.modules[place], name), name
missing = [name for name in {sorted(imported_from_the_top_level())!r} if not hasattr(hivemind, name)]
assert not missing, missing
import petals.server.server, petals.client
assert ([*logging.root.handlers], logging.root.level, os.environ.get("PETALS_LOGGING")) == before
assert logging.getLogger("hivemind").isEnabledFor(logging.INFO) and logging.getLogger("hivemind").handlers
"""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def fake(monkeypatch):
    """A hivemind 9.9 with everything in its place, and a petals that asks for nothing."""
    hivemind = ModuleType("hivemind")
    hivemind.__version__ = "9.9"
    monkeypatch.setitem(sys.modules, "hivemind", hivemind)
    monkeypatch.setitem(sys.modules, "petals", ModuleType("petals"))
    places = {}
    for place, names in compat.PLACES.items():
        places[place] = ModuleType(place)
        vars(places[place]).update({name: f"{place}.{name}" for name in names})
        monkeypatch.setitem(sys.modules, place, places[place])
    places["hivemind.utils.logging"].use_hivemind_log_handler = lambda where: None
    return hivemind, places


def test_sets_only_what_is_missing(fake):
    hivemind, _ = fake
    hivemind.PeerID = "theirs"
    compat.prepare()
    assert hivemind.PeerID == "theirs"
    assert hivemind.DHTNode == "hivemind.dht.DHTNode"


def test_names_what_an_installed_version_lacks_and_sets_nothing(fake):
    hivemind, places = fake
    del places["hivemind.utils.timed_storage"].get_dht_time
    del places["hivemind.p2p"].PeerID
    with pytest.raises(compat.PetalsUnusable) as raised:
        compat.prepare()
    said = str(raised.value)
    assert isinstance(raised.value, PlanSwarmError)
    assert "hivemind.utils.timed_storage.get_dht_time, hivemind.p2p.PeerID" in said
    assert "hivemind 9.9" in said
    assert "petals " in said
    assert "\n" not in said
    assert not hasattr(hivemind, "DHTNode")


def test_a_place_that_is_gone_lacks_all_its_names(fake, monkeypatch):
    monkeypatch.setitem(sys.modules, "hivemind.utils.nested", None)
    with pytest.raises(compat.PetalsUnusable, match=r"nested\.nested_flatten, hivemind\.utils\.nested\.nested_pack"):
        compat.prepare()


@pytest.mark.parametrize("package", ["hivemind", "petals"])
def test_says_which_package_is_not_installed(fake, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(compat.PetalsUnusable, match=f"^{package} is not installed; .*CONTRIBUTING"):
        compat.prepare()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert False, 'Please install a proper transformers version'", "AssertionError: Please install a proper"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("raise RuntimeError", "RuntimeError: no reason given"),
    ],
)
def test_passes_on_why_petals_refuses(fake, monkeypatch, tmp_path, source, reason):
    (tmp_path / "petals.py").write_text(source)
    monkeypatch.delitem(sys.modules, "petals")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(compat.PetalsUnusable, match=f"^petals cannot be imported: {reason}.*; found .*transformers "):
        compat.prepare()
    assert "PETALS_LOGGING" not in os.environ
