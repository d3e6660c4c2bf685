"""A stock Petals client that is told what to do by lines of JSON: ``python -m benchmarks.span_client OPTIONS``.

OPTIONS is JSON: the model's folder, how the server holds its blocks, and, where not all, which servers to use. What
they must answer is computed first, by the same blocks in this process. The first line names a ``peer``. Each other has
an id, runs in a thread of its own, and its lines of answer have that id; the last of them says how it ``ended``. The
client's own trying again is switched off, so that what the server does to it is seen. To be started as the leader of a
process group, which is to be killed afterwards.

``steps``: generate through blocks ``start`` to ``end``, token by token, to the end or until ``enough``; with
``rounds``, in sessions one after the other, and only the sum of it is told.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from planner.agent.compat import keep_sockets_in, prepare

prepare()
keep_sockets_in(tempfile.gettempdir())

import torch  # noqa: E402  # after prepare, as petals is
from hivemind import DHT  # noqa: E402
from petals import AutoDistributedConfig  # noqa: E402
from petals.client.remote_sequential import RemoteSequential  # noqa: E402

from benchmarks.span_reference import Reference, distance  # noqa: E402
from benchmarks.talking import PREFIX  # noqa: E402


class Client:
    """A client, and what the server must answer it."""

    def __init__(self, reference: Reference, answers: TextIO, folder: str, peer: str) -> None:
        self.reference, self.answers = reference, answers
        self.config = AutoDistributedConfig.from_pretrained(folder)
        self.config.initial_peers, self.config.dht_prefix, self.config.max_retries = [peer], PREFIX, 1
        self.dht = DHT(initial_peers=[peer], client_mode=True, start=True)
        self.enough: dict[int, threading.Event] = {}
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

    def session(self, start: int, end: int, length: int, pause: float) -> Iterator[tuple[float, float]]:
        """Of each step the seconds it took, and how far its answer is from what is expected."""
        inputs, expected = self.reference.inputs, self.reference.expected(start, end, length)
        with RemoteSequential(self.config, dht=self.dht)[start:end].inference_session(max_length=length) as session:
            for step in range(length):
                begun = time.monotonic()
                answer = session.step(inputs[:, step : step + 1])
                yield time.monotonic() - begun, distance(answer, expected[:, step : step + 1])
                time.sleep(pause)

    def steps(
        self,
        number: int,
        start: int,
        end: int,
        length: int | None = None,
        pause: float = 0.0,
        rounds: bool = False,
    ) -> dict[str, Any]:
        worst, count, length = 0.0, 0, length or self.reference.inputs.shape[1]
        while rounds or not count:
            for step, (seconds, wrong) in enumerate(self.session(start, end, length, pause)):
                worst, count = max(worst, wrong), count + 1
                if not rounds:
                    self.tell(number, step=step, seconds=seconds, wrong=wrong, at=time.time())
                if self.enough[number].is_set():
                    return {"steps": count, "wrong": worst}
        return {"steps": count, "wrong": worst}


def main(kind: type[Client] = Client) -> None:
    options, answers = json.loads(sys.argv[1]), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Petals prints is no answer
    # Before the client, whose processes are forked: what was on a device is not theirs.
    reference = Reference(options["model"], **options["reference"])
    # A fork would wait for sys.stdin while it is read.
    commands = (json.loads(line) for line in os.fdopen(os.dup(0)))
    client = kind(reference, answers, options["model"], next(commands)["peer"])
    client.config.allowed_servers = options.get("servers")
    gc.disable()  # a Petals session that is collected in the thread of its own event loop waits for itself
    client.tell(0, ended="ready")
    for command in commands:
        client.begin(command)
    os._exit(0)  # a Petals client may hang in the interpreter's end


if __name__ == "__main__":
    main()
