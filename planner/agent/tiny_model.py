"""A Llama with random weights, small enough to be made in a second and served by many servers on one machine."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

NUM_BLOCKS = 8
VOCABULARY = 256
PREFIX = "tiny-llama-hf"


def make_tiny_model(folder: str | os.PathLike[str], *, num_blocks: int = NUM_BLOCKS, seed: int = 0) -> Path:
    """Write the model in `folder` as Petals and transformers load it.

    Parameters
    ----------
    folder
        Is made if it is missing; files of an earlier model in it are replaced.
    num_blocks
        Number of transformer layers, at least 1.
    seed
        The same seed gives the same weights; the random state of the process is left as it was.

    Returns
    -------
    Path
        The folder.
    """
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_blocks,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config)
    # A shard for about each block, so that a server reads the files of its own blocks only.
    model.save_pretrained(folder, max_shard_size="100KB", safe_serialization=False)
    return Path(folder)
