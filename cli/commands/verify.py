"""`plan-swarm verify`: what is wrong with a signed plan, if anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asked import whole_number
from cli.exitcodes import ExitCode
from cli.options import DEFAULT_TIMEOUT, Action, InitialPeers, Quiet, Timeout, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from cli.look import Look
    from planner.envelope import Verified
    from planner.keys import PublicKey
    from planner.plan_records import Judged

SHOWN = 20
MAX_FILE = 2**20
"""Bytes; an envelope is refused from 64 KiB on, by that name."""


def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A signed plan, as publish --envelope wrote it.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="The model that it must be for; without FILE, look in its DHT.")
    ] = None,
    trust: Trust = None,
    last_epoch: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="N", help="The highest epoch that was seen already."),
    ] = None,
    last_payload: Annotated[
        str | None, typer.Option(metavar="HASH", help="The payload of that epoch, as verify prints it.")
    ] = None,
    initial_peers: InitialPeers = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
) -> Action:
    """Check a signed plan as an agent does, from a file or from the living swarm, and say what is wrong with it."""

    def act() -> ExitCode:
        from cli.keyfiles import public_keys
        from cli.live import check_installed
        from planner.errors import PolicyInvalid

        if last_payload is not None and last_epoch is None:
            raise PolicyInvalid("--last-payload goes with --last-epoch: it is the payload of that epoch")
        if last_epoch is not None and last_epoch < 1:
            raise PolicyInvalid(f"--last-epoch must be at least 1, not {last_epoch}")
        if last_payload is not None and re.fullmatch("[0-9A-Fa-f]{64}", last_payload) is None:
            raise PolicyInvalid("--last-payload is no payload's hash: 64 hexadecimal digits, as verify prints them")
        check_installed("cryptography", "msgpack")
        trusted = public_keys(trust or ())
        if file is not None:
            seen_last = last_payload.lower() if last_payload is not None else None
            _verify_file(file, trusted or None, prefix, last_epoch, seen_last)
            return ExitCode.SUCCESS
        if prefix is None or not trusted:
            raise PolicyInvalid("name a FILE, or --prefix and --trust to look into the swarm")
        if last_epoch is not None or last_payload is not None:
            raise PolicyInvalid("--last-epoch and --last-payload go with a FILE")
        _verify_swarm(prefix, trusted, initial_peers or (), timeout, quiet)
        return ExitCode.SUCCESS

    return act


def _verify_file(
    file: Path,
    trusted: Sequence[PublicKey] | None,
    prefix: str | None,
    last_epoch: int | None,
    last_payload: str | None,
) -> None:
    import time

    from cli.output import write_stdout
    from planner.envelope import Refusal, check_plan
    from planner.errors import EnvelopeRefused
    from planner.files import read_bounded
    from planner.text import escape

    name = escape(str(file))
    data = read_bounded(file, name, MAX_FILE, "the file that publish --envelope wrote", "more than any signed plan")
    verdict = check_plan(
        data,
        trusted=trusted,
        prefix=prefix,
        now=time.time(),
        last_epoch=last_epoch,
        last_payload_hash=last_payload,
    )
    if isinstance(verdict, Refusal):
        raise EnvelopeRefused(f"{name} is refused: {verdict}")
    note = "" if trusted else "no --trust was given: whether to trust its key is yours to say\n"
    write_stdout(f"{_words(verdict)}\n{note}")


def _verify_swarm(prefix: str, trusted: Sequence[PublicKey], given: Sequence[str], timeout: float, quiet: bool) -> None:
    from cli.live import progress, swarm
    from cli.output import lines_text, write_stdout
    from planner.errors import EnvelopeRefused

    with swarm(given, timeout) as way, progress(quiet, timeout):
        from planner.publishing import read_back

        found = read_back(prefix, trusted, way.peers, timeout=timeout)
    write_stdout(lines_text(lambda look: [line for seen in found for line in _found(seen, look)]))
    if all(seen.plan is None for seen in found):
        raise EnvelopeRefused("no plan of a trusted key holds")


def _found(seen: Judged, look: Look) -> list[Text]:
    """What stands under one key, line by line."""
    from planner.sealing import OUTDATED
    from planner.text import some

    said: list[str] = []
    if seen.plan is not None:
        said.append(f"{_words(seen.plan)}, under {len(seen.intact)} subkeys")
    refused = [one for one in seen.refusals if one[1].reason not in OUTDATED]
    said += [f"{look.safe(subkey, 60)} is refused: {refusal}" for subkey, refusal in refused[:SHOWN]]
    if len(refused) > SHOWN:
        said.append(f"... and {len(refused) - SHOWN:,} more are refused")
    if outdated := len(seen.refusals) - len(refused):
        said.append(f"{outdated:,} of its records are outdated by later ones")
    if seen.overwritten or seen.hidden:
        which = f" ({some(seen.overwritten)})" if seen.overwritten else ""
        said.append(f"warning: somebody overwrites its records{which}")
    said += [f"warning: {problem}" for problem in seen.problems]
    if not said:
        said.append("nothing is published under it")
    lines = look.wrap(f"{seen.key.text()}:", style="bold")
    for text in said:
        lines += look.wrap(look.safe(text, 1000), first="  ", later="    ")
    return lines


def _words(plan: Verified) -> str:
    from planner.text import escape
    from planner.when import at

    what = f"plan {plan.plan_id} for" if plan.plan is not None else "revoke of any plan for"
    return (
        f"valid: {what} {escape(plan.prefix, 80)}, epoch {plan.epoch}, until {at(plan.valid_until)},"
        f" signed with {plan.key.text()}, payload {plan.payload_hash}"
    )
