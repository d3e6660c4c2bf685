"""A plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from cli import words
from cli.figures import figures
from cli.look import Look
from cli.sentence import certainty, headline
from cli.servers import explanations, moving, staying
from cli.strip import strips
from planner.plan import Plan


def view(plan: Plan, look: Look) -> list[Text]:
    """All lines of the view, none wider than the look's width: from what to do down to the warnings."""
    model = f"{look.safe(plan.prefix, 80)}, {words.count(plan.num_blocks, 'block')}"
    model += f", {words.count(len(plan.servers), 'server')}"
    opening = look.wrap(headline(plan, look), style="bold green" if plan.moves else "bold")
    sections = [
        opening + (look.wrap(sure) if (sure := certainty(plan)) else []),
        look.wrap(model, style="dim") + figures(plan, look),
        moving(plan, look),
        staying(plan, look),
        look.wrap("Throughput per block", style="bold") + strips(plan, look),
        _titled("Why each server stays or goes", explanations(plan, look), look),
        _warnings(plan, look),
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(""), *section] if lines else section
    return lines


def to_text(lines: Iterable[Text], console: Console, colour: bool) -> str:
    """The lines as one text, with the console's colours or without any."""
    if not colour:
        return "".join(line.plain + "\n" for line in lines)
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
    return capture.get()


def _titled(title: str, lines: list[Text], look: Look) -> list[Text]:
    return look.wrap(title, style="bold") + lines if lines else []


def _warnings(plan: Plan, look: Look) -> list[Text]:
    lines: list[Text] = []
    for warning in plan.warnings:
        lines += look.wrap(look.safe(warning, 1000), first="warning: ", later="  ", style="yellow")
    return lines
