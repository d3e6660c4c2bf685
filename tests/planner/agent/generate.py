"""A stock Petals client, whose answers are compared with the local model's: ``python generate.py MODEL PEER PREFIX``.

At the first line on standard input it opens a session and generates the first half of a text, at the next one the
rest, in the same session; at a third it begins anew. Each time it prints what it has, as a line of JSON. To be started
as the leader of a process group, which goes with its parent and may be killed at any time.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import torch  # noqa: E402  # after prepare, as petals is
from petals import AutoDistributedModelForCausalLM  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

from tests.planner.agent.left_behind import go_with_parent  # noqa: E402

HALF = 6
"""Tokens."""


def main(folder: str, peer: str, prefix: str) -> None:
    gc.disable()  # a Petals session that is collected in the thread of its own event loop waits for itself
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    local = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    wait()
    swarm = AutoDistributedModelForCausalLM.from_pretrained(
        folder, initial_peers=[peer], dht_prefix=prefix, torch_dtype=torch.float32
    )
    with torch.inference_mode():
        theirs = local(tokens).logits
        expected = local.generate(tokens, max_new_tokens=2 * HALF, do_sample=False)[0].tolist()
        while True:
            ours = swarm(tokens).logits
            answer = {"difference": (ours - theirs).abs().max().item(), "size": theirs.abs().max().item()}
            with swarm.inference_session(max_length=tokens.shape[1] + 2 * HALF) as session:
                first = swarm.generate(tokens, max_new_tokens=HALF, do_sample=False, session=session)[0].tolist()
                say(answer | {"generated": first, "expected": expected[: len(first)]})
                wait()
                rest = swarm.generate(None, max_new_tokens=HALF, do_sample=False, session=session)[0].tolist()
            say({"generated": first + rest, "expected": expected})
            wait()


def wait() -> None:
    if not sys.stdin.readline():
        os.killpg(0, signal.SIGKILL)  # a Petals client may hang in the interpreter's end


def say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    go_with_parent()
    main(*sys.argv[1:])
