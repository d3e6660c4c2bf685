"""How Petals names a model in the DHT, and which of the names there somebody may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

MAX_NAME = 200
MAX_NAMES = 1000
"""Names that are compared: comparing takes quadratic time in their lengths, and anyone may announce any number."""


def prefix_of_model(repository: str) -> str:
    """Guess the DHT prefix that Petals gives to a model of the Hugging Face hub.

    Petals' rule goes by the model's architecture (``petals/models/*/config.py``), which is guessed from the name here:
    BLOOM keeps the owner and ends in ``-petals``; Mixtral keeps the owner; Falcon is the bare name; everything else is
    a Llama, the bare name ending in ``-hf``. Dots become hyphens, as a dot ends the prefix in a block's key.

    >>> prefix_of_model("meta-llama/Llama-2-70b-hf")
    'Llama-2-70b-hf'
    >>> prefix_of_model("bigscience/bloom")
    'bigscience/bloom-petals'
    """
    name = repository.rpartition("/")[2].lower()
    for family in ("bloom", "falcon", "mixtral"):
        if family in name:
            return _by_family(repository)[family]
    return _by_family(repository)["llama"]


def near_prefixes(asked: str, available: Collection[str], most: int = 3) -> tuple[str, ...]:
    """Find the prefixes that may be meant by `asked`, the likeliest first.

    First those that Petals would give to a model of that name, then those that are spelled alike.
    """
    if not 0 < len(asked) <= MAX_NAME:
        return ()
    names = sorted(name for name in available if len(name) <= MAX_NAME)[:MAX_NAMES]
    meant = list(dict.fromkeys((prefix_of_model(asked), *_by_family(asked).values())))
    folded = {prefix.casefold() for prefix in meant}
    near = [name for name in meant if name in names]
    near += [name for name in names if name.casefold() in folded]
    # Owners are left out on both sides: "petals-team/StableBeluga2" is nearer to its prefix than its length says.
    bare: dict[str, list[str]] = {}
    for name in names:
        bare.setdefault(_bare(name), []).append(name)
    for close in difflib.get_close_matches(_bare(asked), bare, n=most, cutoff=0.6):
        near += bare[close]
    return tuple(dict.fromkeys(name for name in near if name != asked))[:most]


def _by_family(repository: str) -> dict[str, str]:
    original = re.fullmatch(r"(bigscience/.+)-petals", repository)  # converted repositories of Petals before 1.2
    dashed = (original[1] if original else repository).replace(".", "-")
    name = dashed.rpartition("/")[2]
    return {
        "llama": name if name.endswith("-hf") else f"{name}-hf",
        "falcon": name,
        "mixtral": dashed,
        "bloom": f"{dashed}-petals",
    }


def _bare(name: str) -> str:
    return name.rpartition("/")[2].removesuffix("-petals").removesuffix("-hf").replace(".", "-").casefold()
