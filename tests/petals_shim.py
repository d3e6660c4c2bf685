"""Make petals 2.2.0.post1 importable with hivemind 1.1.12.

That hivemind no longer has at its top level what petals imports from there; `install` puts the names back.
"""

from __future__ import annotations

import warnings
from importlib import import_module

NAMES = {
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


def install() -> None:
    """Put the missing names on the `hivemind` module, and import petals once without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hivemind = import_module("hivemind")
        for module, names in NAMES.items():
            for name in names:
                if not hasattr(hivemind, name):
                    setattr(hivemind, name, getattr(import_module(module), name))
        import_module("petals")
