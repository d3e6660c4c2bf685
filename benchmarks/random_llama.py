"""A Llama with random weights, of any size, written as safetensors block by block: memory holds one at a time.

``python -m benchmarks.random_llama FOLDER OPTIONS``, which are JSON: a process of its own lets go of the device.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from planner.agent.compat import prepare

prepare()

import torch  # noqa: E402  # after prepare, as it silences what transformers says when it is imported
from accelerate import init_empty_weights  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

VOCABULARY = 256
POSITIONS = 1024


def make_random_llama(folder: Path, hidden: int, intermediate: int, blocks: int, dtype: str, device: str) -> None:
    """Write the model in `folder` as Petals and transformers load it.

    Parameters
    ----------
    folder
        Is made.
    hidden, intermediate
        Sizes of each block; of a head: 128 as in all large ones, or a quarter of `hidden` if that is less.
    blocks
        Number of transformer layers.
    dtype
        ``"float16"`` or ``"float32"``.
    device
        What makes the random numbers: billions take a minute or more on a CPU.
    """
    heads = hidden // min(128, hidden // 4)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=POSITIONS,
        torch_dtype=dtype,
    )
    config.save_pretrained(folder)
    with init_empty_weights():
        model = LlamaForCausalLM(config)
    shards: dict[str, list[str]] = defaultdict(list)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    for name in shapes:
        block = name.removeprefix("model.layers.").partition(".")[0]
        shards[f"block-{block}.safetensors" if block.isdigit() else "rest.safetensors"].append(name)
    generator = torch.Generator(device).manual_seed(0)
    for file, names in shards.items():
        weights = {
            # Those of a norm have one dimension.
            name: torch.ones(shapes[name], dtype=config.torch_dtype)
            if len(shapes[name]) == 1
            else torch.empty(shapes[name], dtype=config.torch_dtype, device=device)
            .normal_(std=config.initializer_range, generator=generator)
            .cpu()
            for name in names
        }
        save_file(weights, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, names in shards.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


if __name__ == "__main__":
    make_random_llama(Path(sys.argv[1]), **json.loads(sys.argv[2]))
