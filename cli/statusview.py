"""The status of a swarm as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from cli import table, words
from cli.look import Look
from planner.sealing import OUTDATED
from planner.status import KEPT, KeyStatus, ServerStatus, Status, refusals_by_name
from planner.text import some
from planner.when import at

MOST_NOTES = 10
PEER_WIDTH = 20


def view(status: Status, look: Look) -> list[Text]:
    """All lines: the plans, then the servers, then what is doubtful."""
    head = f"{look.safe(status.prefix, 80)}, {words.count(len(status.servers), 'server')}, {at(status.read_at)}"
    lines = look.wrap(head, style="bold")
    if status.reading is not None and status.reading.partial:
        lines += look.wrap(f"warning: the reading is partial: {status.reading.summary()}", style="yellow")
    for key in status.keys:
        lines += [Text(""), *_plan(key, look)]
    if not status.keys:
        lines += [Text(""), *look.wrap("No plan is published for it.")]
    if status.servers:
        lines += [Text(""), *_servers(status, look)]
        if status.followed is None:
            lines += look.wrap("Targets are those of a trusted plan; name its key with --trust.", style="dim")
    notes = status.notes[:MOST_NOTES]
    for note in notes:
        lines += look.wrap(look.safe(note, 1000), first="warning: ", later="  ", style="yellow")
    if len(status.notes) > len(notes):
        lines += look.wrap(f"... and {len(status.notes) - len(notes)} more warnings", style="yellow")
    return lines


def _plan(row: KeyStatus, look: Look) -> list[Text]:
    trust = "trusted" if row.trusted else "not trusted"
    lines = look.wrap(f"{row.key.text()} ({trust})", style="bold")
    said = [_verdict(row)]
    if row.plan is not None and row.judged.heartbeat is not None:
        said.append(f"fresh: moves may begin until {at(row.judged.heartbeat.fresh_until)}")
    elif row.plan is not None:
        said.append("not fresh: no heartbeat holds, so no move begins")
    if row.overwritten:
        which = f" ({some(row.judged.overwritten)})" if row.judged.overwritten else ""
        said.append(f"warning: somebody overwrites its records{which}")
    # What the operator's own later records have outdated is no news.
    counts = refusals_by_name([one for one in row.judged.refusals if one[1].reason not in OUTDATED])
    if counts:
        said.append("refused: " + ", ".join(f"{name} ({count:,})" for name, count in counts.items()))
    said += [f"warning: {problem}" for problem in row.judged.problems]
    for text in said:
        lines += look.wrap(look.safe(text, 1000), first="  ", later="    ")
    return lines


def _verdict(row: KeyStatus) -> str:
    plan = row.judged.plan
    if plan is None:
        return {
            "overwritten": "overwritten: only strangers' records are left; agents keep the last valid plan they had",
            "expired": "expired: its last plan has run out",
        }.get(row.verdict, "nothing is published under it")
    under = f"under {words.count(len(row.judged.intact), 'subkey')}" if row.judged.intact else KEPT
    until = f"until {at(plan.valid_until)}, {under}"
    if plan.plan is None:
        return f"revoked: epoch {plan.epoch} takes back {plan.plan_id or 'whatever there was'}, {until}"
    moves = words.count(len(plan.plan.moves), "move")
    return f"valid: epoch {plan.epoch}, plan {plan.plan_id}, {moves}, {until}"


def _servers(status: Status, look: Look) -> list[Text]:
    rows = status.servers

    def target(row: ServerStatus) -> str:
        return words.span(row.target, look) if row.planned else ""

    columns = [
        table.Column("server", [look.safe(row.peer_id) for row in rows], shrinks_to=15, middle=True, style="bold"),
        table.Column("present", [words.span(row.present, look) for row in rows], right=True),
        table.Column("target", [target(row) for row in rows], right=True),
        table.Column("state", [row.state for row in rows], drop=2),
        table.Column("agent", [look.safe(row.agent) if row.agent else look.dash for row in rows], shrinks_to=8, drop=1),
        table.Column("name", [look.safe(row.public_name or "", 40) for row in rows], shrinks_to=8, drop=3),
    ]
    return table.render(columns, look) + _waiting(rows, look)


def _waiting(rows: Sequence[ServerStatus], look: Look) -> list[Text]:
    """Why servers wait, each reason once: sentences do not fit into a column."""
    peers_of: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.why:
            verb = "says" if row.planned and row.present == row.target else "waits"
            peers_of.setdefault((verb, row.why), []).append(look.cut_middle(look.safe(row.peer_id), PEER_WIDTH))
    lines: list[Text] = []
    for (verb, why), peers in sorted(peers_of.items(), reverse=True):
        lines += look.wrap(f"{some(peers, 3)}: {look.safe(why, 400)}", first=f"{verb}: ", later="  ")
    return lines
