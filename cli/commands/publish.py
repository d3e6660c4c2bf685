"""`plan-swarm publish`: sign exactly this plan, and put it where the servers' agents find it."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asked import number
from cli.exitcodes import ExitCode
from cli.options import DEFAULT_TIMEOUT, Action, InitialPeers, KeyFile, PassphraseFile, Quiet, Timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.live import Way
    from planner.envelope import Verified
    from planner.keys import SigningKey
    from planner.published import PublishedPlan
    from planner.publishing import Compared, Published


class Force(str, Enum):
    """What may have changed all the same; the values are those of `planner.drift.Override`."""

    SPAN = "span"
    PEERS = "peers"
    THROUGHPUT = "throughput"
    PARTIAL = "partial"
    EXPIRED = "expired"


def publish(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The file that --out or --json wrote.")],
    key: KeyFile,
    passphrase_file: PassphraseFile = None,
    keep: Annotated[
        bool, typer.Option("--keep", metavar="", help="Go on signing heartbeats, one a minute, until Ctrl-C.")
    ] = False,
    lease: Annotated[
        float | None,
        typer.Option(parser=number, metavar="SECONDS", help="Let moves begin for so long. Default: 600."),
    ] = None,
    force: Annotated[
        list[Force] | None,
        typer.Option(
            metavar="WHAT",
            help="Publish although this has changed since the plan was made (span, peers or throughput of servers), "
            "although the reading is partial, or the plan has expired; several times for several.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask.")] = False,
    envelope: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the signed plan to a file too.")] = None,
    initial_peers: InitialPeers = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
) -> Action:
    """Sign a plan and publish it into the living swarm, if that is still as the plan found it.

    No server is told to move: those whose agents trust your key follow the plan while its heartbeat is fresh.
    """

    def act() -> ExitCode:
        from cli.keyfiles import signing_key
        from cli.live import check_installed, progress, swarm
        from cli.output import check_output, write_stdout
        from planner.drift import Override
        from planner.errors import PolicyInvalid

        if keep and lease is not None:
            raise PolicyInvalid("--keep and --lease exclude each other: one goes on signing, the other signs once")
        if not yes and not sys.stdin.isatty():
            raise PolicyInvalid("nobody can be asked here, as standard input is no terminal; give --yes")
        check_installed()
        from planner.envelope import HEARTBEAT_SECONDS, MAX_LEASE
        from planner.plan_file import load_plan

        if lease is not None and not 0 < lease <= MAX_LEASE:
            raise PolicyInvalid(f"--lease must be above 0 and at most {MAX_LEASE:g} seconds, not {lease:g}")
        if envelope is not None:
            check_output(envelope, [plan, key, passphrase_file], "--envelope")
        wanted, signer = load_plan(plan), signing_key(key, passphrase_file)
        write_stdout(_plan_text(wanted))
        given, forced = initial_peers or (), [Override(one.value) for one in force or ()]
        with swarm(given, timeout) as way:
            from planner.publishing import compare
            from planner.publishing import publish as put

            if not yes:
                with progress(quiet, timeout) as report:
                    compared = compare(wanted, way.peers, forced=forced, timeout=timeout, progress=report)
                write_stdout(_text(_compared(compared)))
                if not typer.confirm(f"Publish it, signed with {signer.public.text()}?", err=True):
                    return ExitCode.INTERRUPTED
            # It is compared once more, as nobody knows how long the answer took.
            with progress(quiet, timeout) as report:
                done = put(
                    wanted,
                    signer,
                    way.peers,
                    lease=HEARTBEAT_SECONDS if lease is None else lease,
                    forced=forced,
                    timeout=timeout,
                    progress=report,
                    storing=lambda verified, sealed: _storing(way, verified, sealed, envelope),
                )
            say_published(done)
            way.ending.let_go()
            if keep:
                _keep(done, signer, way, timeout)
        return ExitCode.SUCCESS

    return act


def _storing(way: Way, verified: Verified, sealed: bytes, file: Path | None) -> None:
    """Write the signed plan to its file, then let no signal come between storing it and saying so."""
    from planner.canonical import write_whole

    hold(way, verified, "; plan-swarm revoke takes it back")
    if file is not None:
        write_whole(file, sealed)


def hold(way: Way, verified: Verified, way_back: str = "") -> None:
    """From now on the command ends only when it has said what the swarm has taken, or when it is told to twice."""
    way.ending.hold(
        f"epoch {verified.epoch} is being stored, and this ends when it is known what came of it; Ctrl-C again leaves"
        f" at once, and plan-swarm status then shows what stands{way_back}"
    )


def _plan_text(plan: PublishedPlan) -> str:
    from cli import words
    from cli.output import lines_text
    from cli.servers import moving
    from planner.when import at

    moves = f"moves {words.count(len(plan.moves), 'server')}" if plan.moves else "moves nobody"
    rise = f"the bottleneck goes from {words.rps(plan.before.min_throughput)} to"
    rise += f" {words.rps(plan.after.min_throughput)} RPS"
    return lines_text(
        lambda look: [
            *look.wrap(f"Plan {plan.plan_id} for {look.safe(plan.prefix, 80)} {moves}; {rise}.", style="bold"),
            *look.wrap(f"Made {at(plan.created_at)}, valid until {at(plan.valid_until)}."),
            *moving(plan, look),
        ]
    )


def _text(sentences: Sequence[str]) -> str:
    from cli.output import lines_text

    return lines_text(lambda look: [line for text in sentences for line in look.wrap(look.safe(text, 1000))])


def _compared(compared: Compared) -> list[str]:
    overridden = [f"overridden: {drift}" for drift in compared.overridden]
    return [*overridden, f"Read anew: {compared.reading.summary()}."]


def say_published(done: Published) -> None:
    """Say what was published; where standard output takes it no more, on standard error that it stands all the same.

    Raises
    ------
    BrokenPipeError, OutputUnwritable
        As `cli.output.write_stdout`.
    """
    from cli.live import say
    from cli.output import write_stdout
    from planner.errors import OutputUnwritable

    try:
        write_stdout(_published_text(done))
    except (BrokenPipeError, OutputUnwritable):
        say(f"published as epoch {done.verified.epoch} all the same; see plan-swarm status")
        raise


def _published_text(done: Published) -> str:
    """What was published and what another node has seen of it."""
    from planner.text import some
    from planner.when import at

    verified, seen = done.verified, done.seen
    lines = _compared(done.compared) if done.compared is not None else []
    what = "plan" if verified.plan is not None else "revoke"
    if verified.plan is None:
        lines.append(_taken_back(verified, done.replaced))
    lines.append(
        f"Published the {what} as epoch {verified.epoch}, {len(done.envelope):,} bytes,"
        f" under {len(done.taken)} of {len(done.subkeys)} subkeys."
    )
    lines.append(
        f"Another node sees it under {len(seen.intact)}, valid until {at(verified.valid_until)}"
        + (f"; moves may begin until {at(done.fresh_until)}." if done.fresh_until is not None else ".")
    )
    if seen.overwritten:
        lines.append(f"warning: somebody overwrites your records: {some(seen.overwritten)}")
    lines += [f"warning: {problem}" for problem in seen.problems]
    return _text(lines)


def _taken_back(revoke: Verified, replaced: Verified | None) -> str:
    from planner.text import escape

    if replaced is not None and replaced.plan is not None:
        return f"Takes back plan {replaced.plan_id}, epoch {replaced.epoch}."
    stands = "a revoke stands there already" if replaced is not None else "no plan of this key was to be seen there"
    return f"warning: {stands}, for {escape(revoke.prefix, 80)}; this takes back what may be hidden"


def _keep(done: Published, key: SigningKey, way: Way, timeout: float) -> None:
    import time

    from cli.live import say
    from planner.envelope import HEARTBEAT_SECONDS
    from planner.errors import SwarmUnreachable
    from planner.publishing import KEEP_INTERVAL, Beat
    from planner.publishing import keep as beat
    from planner.when import at

    fresh_until = done.fresh_until or 0.0
    try:
        say(f"keeping it fresh: one heartbeat every {KEEP_INTERVAL:g} s, until Ctrl-C")
        while True:
            way.pause(KEEP_INTERVAL)
            # A signal may come when the next one is on its way, so this is the latest that it may bring.
            fresh_until = time.time() + HEARTBEAT_SECONDS
            try:
                sent = beat(done, key, way.peers, timeout=timeout)
            except SwarmUnreachable as error:
                say(f"no heartbeat was sent: {error}; trying again in {KEEP_INTERVAL:g} s")
                continue
            if sent is None:
                say("the plan has expired, so there is nothing more to keep")
                return
            if not isinstance(sent, Beat):
                say(f"epoch {sent.epoch} of the same key has taken the plan's place, so there is nothing more to keep")
                return
            if sent.restored:
                say("warning: somebody has overwritten the plan; it was stored again under new subkeys")
            fresh_until = sent.fresh_until
            say(f"heartbeat sent: moves may begin until {at(fresh_until)}")
    except (KeyboardInterrupt, SystemExit):
        say(f"no more heartbeats: moves may begin until {at(fresh_until)}, or until plan-swarm revoke stops them")
        raise
