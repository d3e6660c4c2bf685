"""Who sees in the demo what a move costs: a stock client that generates all the time, and one that asks a server.

Both tell what they see as it comes, with the times of this machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import gc
import time
import traceback
from importlib import import_module
from typing import Any

from planner.agent.nursling import GO, Heard, Tell

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
LENGTH = 12
"""Tokens that are generated of each text, in one session."""
SETTINGS = {"request_timeout": 10.0, "update_period": 5.0, "max_retries": 5}
"""Of the client: seconds for an answer, seconds between two looks at the swarm, and tries for a token. Petals' own are
180, 60 and any number: so long the demo does not last, and a session may try for ever when its server was restarted."""
PATIENCE = 600.0
"""Seconds for which somebody asks, at most."""


def generate(tell: Tell, heard: Heard, order: dict[str, Any]) -> None:
    """Generate the same text again and again, as whoever uses Petals does; tell of each token whether it is right."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    petals: Any = import_module("petals")
    gc.disable()  # a Petals session that is collected in the thread of its own event loop waits for itself
    prompt = torch.tensor([PROMPT])
    local = transformers.LlamaForCausalLM.from_pretrained(order["model"], torch_dtype=torch.float32)
    swarm = petals.AutoDistributedModelForCausalLM.from_pretrained(
        order["model"],
        initial_peers=order["initial_peers"],
        dht_prefix=order["prefix"],
        torch_dtype=torch.float32,
        **SETTINGS,
    )
    with torch.inference_mode():
        expected = local.generate(prompt, max_new_tokens=LENGTH, do_sample=False)[0].tolist()[len(PROMPT) :]
        while True:
            begun = time.monotonic()
            try:
                with swarm.inference_session(max_length=len(PROMPT) + LENGTH) as session:
                    for step, right in enumerate(expected):
                        if heard() == GO:
                            return
                        begun = time.monotonic()
                        given = prompt if step == 0 else None
                        token = swarm.generate(given, max_new_tokens=1, do_sample=False, session=session)[0, -1].item()
                        tell("token", begun=begun, at=time.monotonic(), right=token == right)
            except Exception:
                traceback.print_exc()
                tell("token", begun=begun, at=time.monotonic(), right=False)


def ask(tell: Tell, heard: Heard, order: dict[str, Any]) -> None:
    """Ask a server itself, again and again, for each of its blocks; tell whether it answers for all of them."""
    from planner.agent import confirm
    from planner.event_loop import run
    from planner.node import client_node
    from solver.problem import Span

    span = Span(order["start"], order["end"])

    async def ask_on() -> None:
        async with client_node(order["initial_peers"], PATIENCE) as node:
            p2p = node._node.protocol.p2p
            while heard() != GO:
                begun = time.monotonic()
                answers = await confirm.ask(p2p, order["prefix"], {order["peer_id"]: span})
                tell("answer", at=begun, whole=answers[order["peer_id"]] == span)

    run(ask_on())
