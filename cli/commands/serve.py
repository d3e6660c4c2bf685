"""`plan-swarm serve`: a Petals server that follows signed plans."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asked import number
from cli.exitcodes import ExitCode
from cli.options import Action, Trust

if TYPE_CHECKING:
    from planner.keys import PublicKey

MAX_PLAN = 2**20
"""Bytes of a file with a signed plan; such plans are refused from 64 KiB on, by that name."""

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Whatever is not an option of ours is one of Petals', which reads it."""


class WithoutPlan(str, Enum):
    """What a server does while no plan counts; the values are those of `planner.agent.server.Manner`."""

    KEEP = "keep"
    PETALS = "petals"


class Newcomer(str, Enum):
    """What a server without a span does."""

    WAIT = "wait"
    PETALS = "petals"


def _folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("is empty; name a folder")
    return Path(text)


def serve(
    context: typer.Context,
    trust: Trust = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A signed plan from a file, as publish --envelope wrote it; several."),
    ] = None,
    without_plan: Annotated[
        WithoutPlan,
        typer.Option(
            help="While no plan counts: stay with the span, or follow Petals' own rule, yet load only what is new. "
            "Default: keep.",
            show_default=False,
        ),
    ] = WithoutPlan.KEEP,
    newcomer: Annotated[
        Newcomer | None,
        typer.Option(
            help="Without a span: wait to be given one by a plan, or choose at once as Petals does. Default: wait "
            "where a key is trusted.",
            show_default=False,
        ),
    ] = None,
    newcomer_timeout: Annotated[
        float,
        typer.Option(
            parser=number,
            metavar="SECONDS",
            show_default=False,
            help="Choose as Petals does after so long without a plan for it. Default: 600.",
        ),
    ] = 600.0,
    pinned: Annotated[
        bool, typer.Option("--pinned", metavar="", help="Stay where it is, whatever a plan says.")
    ] = False,
    drain_timeout: Annotated[
        float,
        typer.Option(
            parser=number,
            metavar="SECONDS",
            show_default=False,
            help="Give sessions over dropped blocks so long. Default: 300.",
        ),
    ] = 300.0,
    refresh: Annotated[
        float,
        typer.Option(
            parser=number,
            metavar="SECONDS",
            show_default=False,
            help="Look for plans so often; the same in all of a swarm. Default: 60.",
        ),
    ] = 60.0,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            parser=_folder,
            metavar="FOLDER",
            help="Where it keeps its identity, its span and the newest plans; one for each server. "
            "Default: ~/.local/state/plan-swarm.",
        ),
    ] = None,
) -> Action:
    """Run a Petals server that changes its span while it serves, as signed plans say.

    It takes the options of `python -m petals.cli.run_server` by the same names, the model among them, and these:
    """
    arguments = list(context.args)

    def act() -> ExitCode:
        from contextlib import suppress

        from cli.interrupt import cleaning_up
        from cli.keyfiles import public_keys
        from cli.live import check_installed
        from planner.errors import PolicyInvalid

        check_installed()
        for name, seconds, least in (
            ("--newcomer-timeout", newcomer_timeout, 0.0),
            ("--drain-timeout", drain_timeout, 0.0),
            ("--refresh", refresh, 1.0),
        ):
            if not least <= seconds <= 86_400:
                raise PolicyInvalid(f"{name} must be from {least:g} to 86400 seconds, not {seconds:g}")
        trusted = public_keys(trust or ())
        if plan and not trusted:
            raise PolicyInvalid("--plan needs --trust: a plan counts by the key that signed it")
        files = tuple(_read_plan(file, trusted) for file in plan or ())
        from planner.agent.serve import owned
        from planner.agent.serve import serve as run

        folder = state_dir if state_dir is not None else _default_state_dir()
        with suppress(KeyboardInterrupt), cleaning_up(), owned(folder):
            from planner.agent.following import Following
            from planner.agent.server import Manner, SpanServer

            told = Following(trusted, folder, files, refresh, pinned=pinned or not trusted)
            first = newcomer or (Newcomer.WAIT if trusted else Newcomer.PETALS)
            manner = Manner(drain_timeout, without_plan.value, first.value, newcomer_timeout)
            run(arguments, folder, lambda options: SpanServer(told=told, manner=manner, **options))
        return ExitCode.SUCCESS

    return act


def _read_plan(path: Path, trusted: Collection[PublicKey]) -> bytes:
    """Read a signed plan; where its time is not now, the server starts all the same, and the agent refuses it."""
    import time

    from planner.envelope import check_plan
    from planner.errors import EnvelopeRefused
    from planner.files import read_bounded
    from planner.sealing import Reason, Refusal
    from planner.text import escape

    name = escape(str(path))
    data = read_bounded(path, name, MAX_PLAN, "a signed plan", "more than any signed plan")
    found = check_plan(data, trusted=trusted, prefix=None, now=time.time())
    if isinstance(found, Refusal) and found.reason not in (Reason.EXPIRED, Reason.NOT_YET_VALID):
        raise EnvelopeRefused(f"{name} is refused: {found}; give what publish --envelope has written")
    return data


def _default_state_dir() -> Path:
    import os

    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "plan-swarm"
