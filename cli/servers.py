"""The servers of a plan: those that move, those that don't and why, and what the alternatives are."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from cli import table, words
from cli.look import Look
from planner.plan import Plan, PlannedServer
from planner.published import PublishedPlan

NAMED = 3
"""As many servers of a group are named; larger groups are counted."""
MOST_REASONS = 6


def moving(plan: Plan | PublishedPlan, look: Look) -> list[Text]:
    """The table of the servers whose span changes."""
    moves = plan.moves
    if not moves:
        return []

    def column(cell: Callable[[PlannedServer], object]) -> list[str]:
        return [str(cell(server)) for server in moves]

    columns = [
        table.Column("server", column(lambda s: look.safe(s.peer_id)), shrinks_to=15, middle=True, style="bold"),
        table.Column("RPS", column(lambda s: words.rps(s.throughput)), right=True, drop=4),
        table.Column("from", column(lambda s: words.span(s.current, look) if s.current else "new"), right=True, drop=1),
        table.Column("to", column(lambda s: words.span(s.target, look)), right=True, style="bold"),
        table.Column("kept", column(lambda s: s.kept), right=True, drop=5),
        table.Column("loaded", column(lambda s: len(s.loaded)), right=True, drop=2),
        table.Column("dropped", column(lambda s: len(s.dropped)), right=True, drop=6),
        table.Column(
            "load", column(lambda s: words.duration(s.reload_seconds) if s.loaded else look.dash), right=True, drop=3
        ),
    ]
    if len(plan.waves) > 1:
        waves = column(lambda s: look.dash if s.wave is None else s.wave + 1)
        columns.insert(1, table.Column("wave", waves, right=True, drop=7))
    if any(server.public_name for server in moves):
        names = column(lambda s: look.safe(s.public_name or ""))
        columns.append(table.Column("name", names, shrinks_to=8, drop=8))
    return table.render(columns, look)


def staying(plan: Plan, look: Look) -> list[Text]:
    """A line for the servers that don't move, with counts and reasons."""
    still = [server for server in plan.servers if not server.moves]
    if not still:
        return look.wrap("Every server moves.") if plan.moves else []
    free = [server for server in still if server.movable]
    groups: dict[str, list[PlannedServer]] = {}
    for server in still:
        if not server.movable:
            groups.setdefault(server.why_not or "no reason given", []).append(server)
    stay = f"{words.count(len(still), 'server')} {'stays' if len(still) == 1 else 'stay'}"
    if not groups:
        return look.wrap(f"{stay}, free to move.")
    parts = [f"free to move: {len(free)}"] if free else []
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    for reason, servers in ordered[:MOST_REASONS]:
        who = ""
        if len(servers) <= NAMED:
            who = f" ({', '.join(look.cut_middle(look.safe(server.peer_id), 20) for server in servers)})"
        parts.append(f"{look.safe(reason)}: {len(servers)}{who}")
    if len(ordered) > MOST_REASONS:
        parts.append(f"other reasons: {sum(len(servers) for _, servers in ordered[MOST_REASONS:])}")
    return look.wrap(f"{stay}; {', '.join(parts)}.", later="  ")


def explanations(plan: Plan, look: Look) -> list[Text]:
    """Each server's best alternative and what it would change, its reason beneath."""
    if not plan.explanations:
        return []
    servers = {server.peer_id: server for server in plan.servers}
    explained = plan.explanations

    def planned(peer_id: str) -> str:
        server = servers.get(peer_id)
        if server is None:
            return look.dash
        if not server.moves:
            return f"stays {words.span(server.current, look)}"
        return f"goes {words.span(server.target, look)}"

    def changed(value: float | None) -> str:
        return look.dash if value is None else words.signed_rps(value, look)

    def loads(more: int | None) -> str:
        sign = "" if not more else "+" if more > 0 else look.minus
        return look.dash if more is None else f"{sign}{abs(more)}"

    columns = [
        table.Column("server", [look.safe(e.peer_id) for e in explained], shrinks_to=12, middle=True, style="bold"),
        table.Column("plan", [planned(e.peer_id) for e in explained], drop=1),
        table.Column("instead", [words.span(e.alternative, look) for e in explained]),
        table.Column("objective", [changed(e.objective_change) for e in explained], right=True, drop=2),
        table.Column("bottleneck", [changed(e.min_throughput_change) for e in explained], right=True, drop=5),
        table.Column("loads", [loads(e.blocks_loaded_change) for e in explained], right=True, drop=4),
        table.Column("proven", ["yes" if e.proven else "no" for e in explained], drop=3),
    ]
    heading, *rows = table.render(columns, look)
    lines = [heading]
    for row, explanation in zip(rows, explained, strict=True):
        reason = look.safe(explanation.reason, 400)
        if explanation.petals_rule:
            reason += f"; Petals' rule says {look.safe(explanation.petals_rule)}"
        lines += [row, *look.wrap(reason, first="  ", later="  ", style="dim")]
    return lines
