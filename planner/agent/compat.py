"""What Petals needs to run on the hivemind of today: the one module that knows of it.

hivemind 1.1.12 no longer has at its top level what Petals imports from there; `prepare` puts the names back.
Processes that are forked afterwards inherit them.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

from planner.errors import PackageUnusable

PLACES = {
    "hivemind.utils.tensor_descr": ("BatchTensorDescriptor", "TensorDescriptor"),
    "hivemind.utils.timed_storage": (
        "MAX_DHT_TIME_DISCREPANCY_SECONDS",
        "get_dht_time",
        "TimedStorage",
        "DHTExpiration",
        "ValueWithExpiration",
    ),
    "hivemind.utils.serializer": ("MSGPackSerializer",),
    "hivemind.p2p": ("P2P", "P2PContext", "PeerID"),
    "hivemind.dht": ("DHTNode",),
    "hivemind.utils.mpfuture": ("MPFuture",),
    "hivemind.utils.asyncio": ("anext",),
    "hivemind.compression.serialization": (
        "serialize_torch_tensor",
        "deserialize_torch_tensor",
        "deserialize_tensor_stream",
    ),
    "hivemind.utils.logging": ("get_logger",),
    "hivemind.utils.nested": ("nested_flatten", "nested_pack", "nested_compare"),
    "hivemind.moe.server.runtime": ("Runtime",),
}
"""Where hivemind has the names that Petals takes from its top level."""

TESTED = "petals 2.2.0.post1 with hivemind 1.1.12"
INSTALL = "in a checkout, make demo-swarm installs them; CONTRIBUTING.md says how to do it by hand"
_ASKED_FOR = ("petals", "hivemind", "transformers", "torch")


class PetalsUnusable(PackageUnusable):
    """Petals, or what it needs, is missing or of a version that does not fit; the message names what and which."""


def prepare() -> None:
    """Make ``import petals`` work in this process and import it once, without a word on the terminal.

    Sets on the `hivemind` module only what it lacks, and nothing at all if it cannot set everything. A second
    call changes nothing.

    Raises
    ------
    PetalsUnusable
        If a package is missing, a name is not at its known place, or Petals refuses what is installed.
    """
    with _silence():
        hivemind = imported("hivemind")
        found: dict[str, Any] = {}
        lacking = []
        for place, names in PLACES.items():
            for name in names:
                if hasattr(hivemind, name):
                    continue
                try:
                    found[name] = getattr(import_module(place), name)
                except (ImportError, AttributeError):
                    lacking.append(f"{place}.{name}")
        if lacking:
            raise PetalsUnusable(
                f"hivemind has no {', '.join(lacking)}, which petals needs; "
                f"found {_versions(hivemind)}, tested: {TESTED}; {INSTALL}"
            )
        for name, value in found.items():
            setattr(hivemind, name, value)
        imported("petals")
        # Petals, as it is imported, has hivemind's handler take over the root logger of whoever imports it.
        import_module("hivemind.utils.logging").use_hivemind_log_handler("in_hivemind")


def keep_sockets_in(folder: str | os.PathLike[str]) -> None:
    """Have hivemind make its Unix sockets in a folder that somebody removes, as it leaves them behind in /tmp.

    Raises
    ------
    PetalsUnusable
        If hivemind is not installed.
    """
    imported("hivemind")
    import_module("hivemind.p2p.p2p_daemon").P2P._UNIX_SOCKET_PREFIX = f"/unix{os.fspath(folder)}/"


def imported(module: str) -> Any:
    """A module of Petals, of hivemind or of what they need.

    Raises
    ------
    PetalsUnusable
        If it is missing, or refuses what is installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise PetalsUnusable(f"{module} is not installed; tested: {TESTED}; {INSTALL}") from None
        raise PetalsUnusable(_refused(module, error)) from error
    except Exception as error:  # petals checks versions by assert, and what it needs fails in ways of its own
        raise PetalsUnusable(_refused(module, error)) from error


def _refused(module: str, error: Exception) -> str:
    said = (str(error).splitlines() or [""])[0].strip() or "no reason given"
    what = f"{module} cannot be imported: {type(error).__name__}: {said}"
    return f"{what}; found {_versions()}, tested: {TESTED}; {INSTALL}"


def _versions(hivemind: Any = None) -> str:
    found = []
    for package in _ASKED_FOR:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "not installed"
        if package == "hivemind" and hivemind is not None:
            version = getattr(hivemind, "__version__", version)
        found.append(f"{package} {version}")
    return ", ".join(found)


@contextmanager
def _silence() -> Iterator[None]:
    """Neither warnings nor log records, and no log level of others set by Petals.

    The streams stay as they are: hivemind makes its log handler while it is imported, and a handler that wrote to
    a stand-in would lose what it is told ever after.
    """
    disabled, level = logging.root.manager.disable, logging.root.level
    asked = {name: os.environ.get(name) for name in ("PETALS_LOGGING", "BITSANDBYTES_NOWELCOME")}
    os.environ.update(PETALS_LOGGING="False", BITSANDBYTES_NOWELCOME="1")
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        logging.root.setLevel(level)
        for name, value in asked.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
