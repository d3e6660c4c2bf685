"""A stock Petals client: ``python generate.py MODEL PEER PREFIX`` compares its answers with the local model's.

To be started as the leader of a process group, which is to be killed afterwards.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import torch  # noqa: E402  # after prepare, as petals is
from petals import AutoDistributedModelForCausalLM  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402


def main(folder: str, peer: str, prefix: str) -> None:
    swarm = AutoDistributedModelForCausalLM.from_pretrained(
        folder, initial_peers=[peer], dht_prefix=prefix, torch_dtype=torch.float32
    )
    local = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        ours, theirs = swarm(tokens).logits, local(tokens).logits
        answer = {
            "difference": (ours - theirs).abs().max().item(),
            "size": theirs.abs().max().item(),
            "generated": swarm.generate(tokens, max_new_tokens=8, do_sample=False).tolist(),
            "expected": local.generate(tokens, max_new_tokens=8, do_sample=False).tolist(),
        }
    print(json.dumps(answer), flush=True)
    os._exit(0)  # a Petals client may hang in the interpreter's end; who started this kills its process group


if __name__ == "__main__":
    main(*sys.argv[1:])
