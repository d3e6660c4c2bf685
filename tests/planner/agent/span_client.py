"""A stock Petals client that is told what to do by lines of JSON: ``python span_client.py MODEL``.

The first names a ``peer``. Each other has an id, runs in a thread of its own, and its lines of answer have that id;
the last of them says how it ``ended``. The client's own trying again is switched off, so that what the server does to
it is seen. To be started as the leader of a process group, which is to be killed afterwards.

``steps``: generate through blocks ``start`` to ``end``, token by token; with ``rounds``, in sessions one after the
other until ``enough``, and only the sum of it is told.
``calls``: make a call of each kind.
``watch``: until ``enough``, read what the server announces and compute through all that is ONLINE.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import torch  # noqa: E402  # after prepare, as petals is
from hivemind import DHT, MSGPackSerializer, deserialize_torch_tensor, serialize_torch_tensor  # noqa: E402
from hivemind.proto.runtime_pb2 import ExpertRequest, ExpertResponse, ExpertUID  # noqa: E402
from hivemind.utils.asyncio import as_aiter  # noqa: E402
from petals import AutoDistributedConfig  # noqa: E402
from petals.client.remote_sequential import RemoteSequential  # noqa: E402
from petals.server.from_pretrained import load_pretrained_block  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402
from petals.utils.dht import get_remote_module_infos  # noqa: E402

PREFIX = "tiny-llama-hf"
LENGTH = 100


class Client:
    def __init__(self, folder: str, peer: str) -> None:
        self.config = AutoDistributedConfig.from_pretrained(folder)
        self.config.initial_peers, self.config.dht_prefix, self.config.max_retries = [peer], PREFIX, 1
        self.dht = DHT(initial_peers=[peer], client_mode=True, start=True)
        self.uids = [f"{PREFIX}.{block}" for block in range(self.config.num_hidden_layers)]
        self.blocks = [
            load_pretrained_block(folder, block, config=self.config, torch_dtype=torch.float32)
            for block in range(len(self.uids))
        ]
        torch.manual_seed(0)
        self.inputs = torch.randn(1, LENGTH, self.config.hidden_size)
        self.enough: dict[int, threading.Event] = {}
        self.answers = os.fdopen(os.dup(1), "w")
        self.telling = threading.Lock()

    def tell(self, number: int, **what: Any) -> None:
        with self.telling:
            print(json.dumps({"id": number, **what}), file=self.answers, flush=True)

    def begin(self, command: dict[str, Any]) -> None:
        number = command.pop("id")
        if (do := command.pop("do")) == "enough":
            self.enough[number].set()
            return
        self.enough[number] = threading.Event()
        threading.Thread(target=self.work, args=(number, getattr(self, do), command), daemon=True).start()

    def work(self, number: int, do: Any, command: dict[str, Any]) -> None:
        try:
            with torch.inference_mode():
                self.tell(number, ended="whole", **do(number, **command))
        except Exception as error:
            self.tell(number, ended=type(error).__name__, said=str(error))

    def expected(self, start: int, end: int, length: int) -> torch.Tensor:
        hidden = self.inputs[:, :length]
        for block in self.blocks[start:end]:
            hidden = block(hidden)[0]
        return hidden

    def session(self, start: int, end: int, length: int, pause: float) -> Iterator[tuple[float, float]]:
        """Of each step the seconds it took, and how far its answer is from that of the local blocks."""
        expected = self.expected(start, end, length)
        with RemoteSequential(self.config, dht=self.dht)[start:end].inference_session(max_length=length) as session:
            for step in range(length):
                begun = time.monotonic()
                answer = session.step(self.inputs[:, step : step + 1])
                yield time.monotonic() - begun, (answer - expected[:, step : step + 1]).abs().max().item()
                time.sleep(pause)

    def steps(
        self, number: int, start: int, end: int, length: int = LENGTH, pause: float = 0.0, rounds: bool = False
    ) -> dict[str, Any]:
        worst, count = 0.0, 0
        while rounds or not count:
            for step, (seconds, wrong) in enumerate(self.session(start, end, length, pause)):
                worst, count = max(worst, wrong), count + 1
                if not rounds:
                    self.tell(number, step=step, seconds=seconds, wrong=wrong)
                elif self.enough[number].is_set():
                    return {"steps": count, "wrong": worst}
        return {"steps": count, "wrong": worst}

    def watch(self, number: int) -> dict[str, Any]:
        seen, asked, worst = None, 0, 0.0
        while not self.enough[number].wait(0.05):
            if (view := self.announced()) != seen:
                seen = view
                self.tell(number, view=view)
            online = [block for block, (state, *_) in view.items() if state == "ONLINE"]
            if online:
                try:
                    worst = max(worst, self.ask(min(online), max(online) + 1))
                    asked += 1
                except Exception as error:
                    # Who has read something old is refused rightly.
                    if self.announced() == view:
                        self.tell(number, refused=f"{type(error).__name__}: {error}", view=view)
        return {"asked": asked, "wrong": worst}

    def announced(self) -> dict[int, tuple[str, int, int]]:
        view = {}
        for block, info in enumerate(get_remote_module_infos(self.dht, self.uids, latest=True)):
            for self.peer, server in info.servers.items() if info is not None else ():
                view[block] = (server.state.name, server.start_block, server.end_block)
        return view

    def calls(self, number: int, start: int, end: int) -> dict[str, Any]:
        self.announced()
        hidden, none, order = map(
            serialize_torch_tensor, (self.inputs[:, :1], torch.empty(0), torch.empty(0, dtype=torch.int64))
        )
        options = {"max_length": 8, "session_id": "none"}
        requests = [
            ExpertRequest(
                uid=" ".join(self.uids[start:end]), tensors=tensors, metadata=MSGPackSerializer.dumps(options)
            ).SerializeToString()
            for tensors in ([hidden, none], [hidden, hidden, none], [hidden, none, order])
        ]
        return self.dht.run_coroutine(partial(call_each, peer=self.peer, uid=self.uids[start], requests=requests))

    def ask(self, start: int, end: int) -> float:
        tensors = [serialize_torch_tensor(tensor) for tensor in (self.inputs[:, :1], torch.empty(0))]
        uids = self.uids[start:end]
        request = ExpertRequest(uid=" ".join(uids), tensors=tensors, metadata=MSGPackSerializer.dumps({}))
        answer = self.dht.run_coroutine(partial(ask, peer=self.peer, uids=uids, request=request.SerializeToString()))
        tensor = deserialize_torch_tensor(ExpertResponse.FromString(answer).tensors[0])
        return (tensor - self.expected(start, end, 1)).abs().max().item()


async def ask(_dht: Any, node: Any, peer: Any, uids: list[str], request: bytes) -> bytes:
    """In the DHT's process: whether each block is served, and what all together make of a token."""
    stub = TransformerConnectionHandler.get_stub(node.protocol.p2p, peer)
    for uid in uids:
        await stub.rpc_info(ExpertUID(uid=uid), timeout=20)
    return (await stub.rpc_forward(ExpertRequest.FromString(request), timeout=20)).SerializeToString()


async def call_each(_dht: Any, node: Any, peer: Any, uid: str, requests: list[bytes]) -> dict[str, str]:
    """In the DHT's process: how each kind of call ends; ``answered``, or what is said instead."""
    stub = TransformerConnectionHandler.get_stub(node.protocol.p2p, peer)
    forward, backward, inference = map(ExpertRequest.FromString, requests)
    ends = {}
    for name, request in (
        ("rpc_info", ExpertUID(uid=uid)),
        ("rpc_forward", forward),
        ("rpc_forward_stream", forward),
        ("rpc_backward", backward),
        ("rpc_backward_stream", backward),
        ("rpc_push", forward),
        ("rpc_inference", inference),
    ):
        try:
            if name.endswith(("_stream", "_inference")):
                responses = await getattr(stub, name)(as_aiter(request))
                await asyncio.wait_for(responses.__anext__(), 20)
                await responses.aclose()
            else:
                await getattr(stub, name)(request, timeout=20)
            ends[name] = "answered"
        except Exception as error:
            ends[name] = str(error)
    return ends


def main(folder: str) -> None:
    commands = (
        json.loads(line) for line in os.fdopen(os.dup(0))
    )  # as a fork would wait for sys.stdin while it is read
    client = Client(folder, next(commands)["peer"])
    os.dup2(2, 1)  # whatever Petals prints is no answer
    gc.disable()  # a Petals session that is collected in the thread of its own event loop waits for itself
    client.tell(0, ended="ready")
    for command in commands:
        client.begin(command)
    os._exit(0)  # a Petals client may hang in the interpreter's end


if __name__ == "__main__":
    main(*sys.argv[1:])
