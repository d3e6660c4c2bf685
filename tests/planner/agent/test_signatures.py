"""The list of what the agent rests on: true of both Petals, and whatever is otherwise is refused by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner.agent import compat, signatures
from planner.agent.signatures import HANDLER, KNOWN, LISTED, Signature, check, complaints, listed
from tests.planner.agent import petals_facts

ROOT = Path(__file__).parents[3]
MAIN = json.loads((ROOT / "tests/data/petals-main.json").read_text(encoding="utf-8"))
SERVER, CACHE, DHT = "petals.server.server", "petals.server.memory_cache", "petals.utils.dht"
installed = pytest.mark.skipif(find_spec("petals") is None, reason="petals is not installed: make test installs it")


def source() -> Path:
    return Path(find_spec("petals").origin).parents[1]


def same(wanted: str, theirs: str) -> bool:
    """Whether two signatures agree, where the source may call a default by a name."""
    ours, found = Signature.parse(wanted), Signature.parse(theirs)
    if (ours.kind, ours.positional, [*ours.defaults]) != (found.kind, found.positional, [*found.defaults]):
        return False
    for name, default in found.defaults.items():
        by_name = default is not None and default != "" and not petals_facts.is_literal(default)
        if ours.defaults[name] is None if by_name else ours.defaults[name] != default:
            return False
    return True


def otherwise(version: str, facts: dict[str, dict[str, str]]) -> list[str]:
    """What the list says of Petals for a version and the facts do not."""
    wrong = []
    for table in list(LISTED)[1:]:
        for name, wanted in listed(table, version).items():
            theirs = facts[table].get(name)
            if not name.startswith("petals."):
                continue
            if wanted is None or theirs is None:
                right = wanted is theirs
            elif table == "signatures":
                right = same(wanted, theirs)
            elif table in ("attributes", "uses"):
                right = {*wanted.split()} <= {*theirs.split()}
            else:
                right = wanted == theirs
            wrong += [] if right else [f"{table} {name}: {wanted} / {theirs}"]
    return wrong


def test_the_list_is_true_of_petals_main():
    assert MAIN["version"] == KNOWN[1]
    assert otherwise(KNOWN[1], MAIN) == []


def test_what_main_has_of_its_own_is_seen():
    assert [line.partition(":")[0] for line in otherwise(KNOWN[0], MAIN)] == ["signatures petals.server.block_utils"]


def test_the_list_knows_every_rpc_of_main():
    rpcs = {name for name in MAIN["signatures"] if name.startswith(f"{HANDLER}.rpc_")}
    assert rpcs == {name for name in LISTED["signatures"] if name.startswith(f"{HANDLER}.rpc_")}


@installed
def test_the_list_is_true_of_the_installed_source():
    facts = petals_facts.facts(source())
    version = petals_facts.version(source())
    assert otherwise(version, facts) == []
    if version == MAIN["version"]:
        assert facts == {table: MAIN[table] for table in facts}


@installed
def test_the_installed_petals_passes_in_silence():
    script = "from planner.agent.signatures import check\nimport petals\nassert check() == petals.__version__, check()"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", f"from planner.agent.compat import prepare\nprepare()\n{script}"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def version():
    """What is installed; it is asked before anything of it is replaced."""
    return check()


@pytest.fixture
def put(monkeypatch, version):
    """Put something in the place of a listed name, or take the name away where nothing is given."""

    def replace(name, *other):
        module, _, path = name.partition(":")
        *owners, last = path.split(".")
        place = import_module(module)
        for owner in owners:
            place = getattr(place, owner)
        if other:
            monkeypatch.setattr(place, last, *other)
        else:
            monkeypatch.delattr(place, last)

    return replace


def declare(dht, uids, server_info, expiration_time, wait=True): ...
def declare_with_more(dht, uids, server_info, expiration_time, wait=True, retries=3, *, patience=None, **more): ...
def declare_with_less(dht, uids, server_info, wait=True): ...
def declare_renamed(dht, uids, info, expiration_time, wait=True): ...
def declare_demanding(dht, uids, server_info, expiration_time, wait=True, *, patience): ...
def declare_by_keyword(dht, uids, server_info, *, expiration_time, wait=True): ...
def declare_reordered(uids, dht, server_info, expiration_time, wait=True): ...
def declare_with_more_before(dht, uids, server_info, expiration_time, retries=3, wait=True): ...
def declare_without_default(dht, uids, server_info, expiration_time, wait): ...
def declare_otherwise(dht, uids, server_info, expiration_time, wait=False): ...
async def declare_later(dht, uids, server_info, expiration_time, wait=True): ...


@installed
@pytest.mark.parametrize(
    ("other", "said"),
    [
        (declare, []),
        (declare_with_more, []),
        (declare_with_less, ["has no parameter expiration_time"]),
        (declare_renamed, ["has no parameter server_info", "has a new required parameter info"]),
        (declare_demanding, ["has a new required parameter patience"]),
        (declare_by_keyword, ["takes expiration_time by keyword only", "takes wait by keyword only"]),
        (
            declare_reordered,
            ["takes its parameters in another order: uids, dht, server_info, expiration_time, wait"],
        ),
        (
            declare_with_more_before,
            ["takes its parameters in another order: dht, uids, server_info, expiration_time, retries, wait"],
        ),
        (declare_without_default, ["requires parameter wait, expected wait=True"]),
        (declare_otherwise, ["has wait=False, expected wait=True"]),
        (
            declare_later,
            [
                "is async (dht, uids, server_info, expiration_time, wait=True), "
                "expected (dht, uids, server_info, expiration_time, wait=True)"
            ],
        ),
        (3, ["shows no signature, expected (dht, uids, server_info, expiration_time, wait=True)"]),
        (min, ["shows no signature, expected (dht, uids, server_info, expiration_time, wait=True)"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_difference_of_a_function_has_its_line(put, version, other, said):
    put(f"{DHT}:declare_active_modules", other)
    assert complaints(version) == tuple(f"petals.utils.dht.declare_active_modules {each}" for each in said)


@installed
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{DHT}:declare_active_modules", "petals.utils.dht has no declare_active_modules"),
        (f"{HANDLER}._check_uids", "petals.server.handler.TransformerConnectionHandler has no _check_uids"),
        (f"{CACHE}:MemoryCache", "petals.server.memory_cache has no MemoryCache"),
        (f"{CACHE}:AllocationFailed", "petals.server.memory_cache has no AllocationFailed"),
        ("petals.data_structures:UID_DELIMITER", "petals.data_structures has no UID_DELIMITER"),
        ("petals.cli.run_server:Server", "petals.cli.run_server has no Server"),
    ],
)
def test_a_name_that_is_gone_is_said_once_for_all_that_hangs_on_it(put, version, name, said):
    put(name)
    assert complaints(version) == (said,)


@installed
def test_a_module_that_is_gone_is_said_once(monkeypatch, version):
    monkeypatch.setitem(sys.modules, CACHE, None)
    (said,) = complaints(version)
    assert said.startswith("petals.server.memory_cache cannot be imported: ModuleNotFoundError: ")
    assert "\n" not in said


@installed
def test_a_constructor_without_a_parameter_and_an_attribute(put, version):
    class MemoryCache(import_module(CACHE).MemoryCache):
        def __init__(self, max_size_bytes):
            self.max_size_bytes = max_size_bytes

    put(f"{CACHE}:MemoryCache", MemoryCache)
    assert complaints(version) == ("petals.server.memory_cache.MemoryCache has no parameter max_alloc_timeout",)

    class Unrelated:
        __init__ = MemoryCache.__init__

    put(f"{CACHE}:MemoryCache", Unrelated)
    lacking = complaints(version)
    assert "petals.server.memory_cache.MemoryCache has no use_cache" in lacking
    assert "petals.server.memory_cache.MemoryCache has no attribute runtime_pid" in lacking
    assert "petals.server.memory_cache.MemoryCache has no attribute max_size_bytes" not in lacking


@installed
def test_another_kind_value_or_base(put, version):
    async def rpc_inference(self, requests, context):
        return self._check_uids, self._allocate_cache, self._iterate_inference_steps, self.module_backends

    put(f"{HANDLER}.rpc_inference", rpc_inference)
    put("petals.data_structures:CHAIN_DELIMITER", ",")
    put(f"{SERVER}:RuntimeWithDeduplicatedPools", lambda *args, **kwargs: None)
    put(f"{CACHE}:MemoryCache.bytes_left", 7)
    assert complaints(version) == (
        "petals.server.handler.TransformerConnectionHandler.rpc_inference is async (self, requests, context), "
        "expected async yields (self, requests, context)",
        "petals.server.memory_cache.MemoryCache.bytes_left shows no signature, expected property",
        "petals.data_structures.CHAIN_DELIMITER is ',', expected ' '",
        "petals.server.server.RuntimeWithDeduplicatedPools is no hivemind.moe.server.runtime.Runtime",
    )


@installed
def test_further_arguments_that_are_no_longer_passed_on(put, version):
    def without(self, module_uids, dht, server_info, model_info, *, block_config, memory_cache, update_period): ...

    put(f"{SERVER}:ModuleAnnouncerThread.__init__", without)
    said = complaints(version)
    for name in ("expiration", "max_pinged", "**kwargs"):
        assert f"petals.server.server.ModuleAnnouncerThread has no parameter {name}" in said
    assert "petals.server.server.ModuleAnnouncerThread has no attribute trigger" in said


@installed
def test_code_that_no_longer_goes_by_what_the_agent_replaces(put, version):
    def main():
        import_module(SERVER).Serving().run()

    async def rpc_push(self, request, context):
        return self.module_backends[request.uid]

    put("petals.cli.run_server:main", main)
    put(f"{HANDLER}.rpc_push", rpc_push)
    assert complaints(version) == (
        "petals.cli.run_server.main does not use Server",
        "petals.cli.run_server.main does not use shutdown",
        "petals.server.handler.TransformerConnectionHandler.rpc_push does not use _check_uids",
    )


@installed
def test_a_method_open_to_the_swarm_that_is_not_known(put, version, monkeypatch):
    handler = import_module("petals.server.handler").TransformerConnectionHandler
    monkeypatch.setattr(handler, "rpc_forget", declare_later, raising=False)
    assert complaints(version) == ("petals.server.handler.TransformerConnectionHandler has an unknown rpc_forget",)


@installed
def test_a_newer_petals_is_taken_for_the_one_whose_shape_it_has(put, version, monkeypatch):
    monkeypatch.setattr(import_module("petals"), "__version__", "9.9")
    put(f"{DHT}:declare_active_modules", declare_with_more)
    assert check() == version


@installed
def test_check_refuses_by_name_and_says_what_it_compared(put, version, monkeypatch):
    monkeypatch.setattr(import_module("petals"), "__version__", "9.9")
    put(f"{DHT}:declare_active_modules", declare_with_less)
    put(f"{HANDLER}._check_uids")
    with pytest.raises(compat.PetalsUnusable) as raised:
        check()
    said = str(raised.value)
    assert said.startswith("petals 9.9 with hivemind ")
    assert "petals.utils.dht.declare_active_modules has no parameter expiration_time; " in said
    assert "petals.server.handler.TransformerConnectionHandler has no _check_uids; " in said
    assert f"compared with petals {version}, known: 2.2.0.post1, 2.3.0.dev2; " in said
    assert "\n" not in said


@installed
def test_a_name_that_only_the_other_petals_has_tells_them_apart(put, version, monkeypatch):
    module = import_module("petals.server.block_utils")
    if version == KNOWN[0]:
        monkeypatch.setattr(module, "get_model_block", lambda config, layer_idx=0: None, raising=False)
    else:
        put("petals.server.block_utils:get_model_block")
    assert check() == next(other for other in KNOWN if other != version)


def test_says_what_prepare_says_where_petals_is_missing(monkeypatch):
    def missing():
        raise compat.PetalsUnusable("petals is not installed")

    monkeypatch.setattr(signatures, "prepare", missing)
    with pytest.raises(compat.PetalsUnusable, match=r"^petals is not installed$"):
        check()
