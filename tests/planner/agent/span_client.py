"""The client of `benchmarks.span_client`, which looks more closely.

``calls``: make a call of each kind.
``watch``: until ``enough``, read what the server announces and compute through all that is ONLINE.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from planner.agent.compat import prepare

prepare()

import torch  # noqa: E402  # after prepare, as petals is
from hivemind import MSGPackSerializer, deserialize_torch_tensor, serialize_torch_tensor  # noqa: E402
from hivemind.proto.runtime_pb2 import ExpertRequest, ExpertResponse, ExpertUID  # noqa: E402
from hivemind.utils.asyncio import as_aiter  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402
from petals.utils.dht import get_remote_module_infos  # noqa: E402

from benchmarks import span_client  # noqa: E402
from benchmarks.span_reference import distance  # noqa: E402
from benchmarks.talking import PREFIX  # noqa: E402


class Client(span_client.Client):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.uids = [f"{PREFIX}.{block}" for block in range(self.reference.num_blocks)]

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
            serialize_torch_tensor, (self.reference.inputs[:, :1], torch.empty(0), torch.empty(0, dtype=torch.int64))
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
        tensors = [serialize_torch_tensor(tensor) for tensor in (self.reference.inputs[:, :1], torch.empty(0))]
        uids = self.uids[start:end]
        request = ExpertRequest(uid=" ".join(uids), tensors=tensors, metadata=MSGPackSerializer.dumps({}))
        answer = self.dht.run_coroutine(partial(ask, peer=self.peer, uids=uids, request=request.SerializeToString()))
        tensor = deserialize_torch_tensor(ExpertResponse.FromString(answer).tensors[0])
        return distance(tensor, self.reference.expected(start, end, 1))


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


if __name__ == "__main__":
    span_client.main(Client)
