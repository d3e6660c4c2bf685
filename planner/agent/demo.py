"""The demo swarm on a terminal: start it, say how to plan it, keep it until it is ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from planner.addresses import wrong_with
from planner.agent.demo_swarm import LAYOUT, START_TIMEOUT, DemoSwarm, ServerSpec
from planner.canonical import file_behind, write_whole
from planner.errors import OutputUnwritable
from planner.text import escape


def run(
    write: Callable[[str], None] = print,
    servers: Sequence[ServerSpec] = LAYOUT,
    *,
    timeout: float = START_TIMEOUT,
    peers_file: str | os.PathLike[str] | None = None,
    leave_if_told: Callable[[], None] = lambda: None,
    command: str = "plan-swarm",
) -> None:
    """Start a swarm, say how to plan it, and keep it until Ctrl-C or another exception ends it.

    Parameters
    ----------
    write
        Is given each line as it comes.
    servers, timeout
        As of `DemoSwarm`.
    peers_file
        Holds the addresses by which others join, a line each, from when every server is ONLINE until the end.
    leave_if_told
        Called every second: raises once more what a signal has raised, should that have been lost.
    command
        How to call plan-swarm in another terminal.

    Raises
    ------
    DemoSwarmFailed
        If it does not come up, or a server breaks down; a server that is killed is only reported.
    PetalsUnusable
        If Petals, or what it needs, is missing or does not fit.
    OutputUnwritable
        If `peers_file` cannot be written.
    SystemExit
        If `leave_if_told` or a signal raises it, when everything is down; Ctrl-C is the normal end and returns.
    """
    with suppress(KeyboardInterrupt), ExitStack() as until_the_end:
        if peers_file is not None:
            peers = file_behind(Path(peers_file))
            # Before too: what a swarm that was killed has left would send others to nobody.
            _remove_left(peers)
            until_the_end.callback(peers.unlink, missing_ok=True)
        write(f"Starting a DHT and {len(servers)} Petals servers on this machine, on its CPU ...")
        started = time.monotonic()
        with DemoSwarm(servers, timeout=timeout) as swarm:
            if peers_file is not None:
                write_whole(Path(peers_file), "".join(f"{peer}\n" for peer in swarm.initial_peers))
            write(f"All {len(servers)} are ONLINE after {time.monotonic() - started:.0f} s.")
            for line in describe(swarm, command):
                write(line)
            up = {spec.name for spec in servers}
            while up:
                leave_if_told()
                swarm.listen(1.0)
                for name in sorted(name for name in up if swarm.servers[name].state == "ended"):
                    write(f"{name} was killed; its records expire in {2 * swarm.update_period:g} s at most.")
                    up.remove(name)


def _remove_left(peers: Path) -> None:
    """Remove the addresses that a swarm has left there, and nothing else.

    Raises
    ------
    OutputUnwritable
        If anything else is there.
    """
    try:
        lines = peers.read_text().splitlines()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        lines = [""]
    if any(wrong_with(line) is not None for line in lines):
        raise OutputUnwritable(f"{escape(str(peers))} holds something else than addresses of peers; name another file")
    peers.unlink()


def describe(swarm: DemoSwarm, command: str = "plan-swarm") -> tuple[str, ...]:
    """What the swarm is made of, and the command that plans it, line by line."""
    servers = swarm.servers
    width = max(map(len, servers), default=0)
    return (
        "",
        f"  model    {swarm.prefix}, {swarm.num_blocks} blocks with random weights, in {swarm.model}",
        *(
            f"  {name:<{width}}  blocks {server.spec.start}:{server.spec.end}  {server.spec.throughput:>5g} RPS"
            f"  {server.peer_id}"
            for name, server in servers.items()
        ),
        f"  in all   {_sums(swarm)}",
        "",
        "None of them moves by itself. Plan it, in another terminal, with:",
        "",
        f"  {command} --prefix {swarm.prefix} --initial-peers {swarm.initial_peers[0]}",
        "",
        "Ctrl-C takes everything down.",
    )


def _sums(swarm: DemoSwarm) -> str:
    """The throughput of each run of blocks that have the same."""
    specs = [server.spec for server in swarm.servers.values()]
    sums = [sum(spec.throughput for spec in specs if spec.start <= b < spec.end) for b in range(swarm.num_blocks)]
    edges = [b for b in range(swarm.num_blocks) if b == 0 or sums[b] != sums[b - 1]]
    ends = [*edges[1:], swarm.num_blocks]
    return ", ".join(f"{sums[a]:g} RPS over blocks {a}:{b}" for a, b in zip(edges, ends, strict=True))
