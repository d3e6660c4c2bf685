"""A health monitor's view of a swarm (its ``/api/v1/state``), turned into the DHT records that it was made from.

The producer is `fetch_health_state` of github.com/petals-infra/health.petals.dev: one row a server, with Petals'
`compute_spans` behind it, written as JSON in which infinity is null and states are lower-case words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import InputInvalid
from planner.fields import is_peer_id
from planner.records import RecordState, Rejection
from planner.text import show

LIFETIME = 120.0
"""Seconds for which Petals' records live; the monitor does not say when those it read expire."""

_STATES = {state.name.lower(): int(state) for state in RecordState}


@dataclass(frozen=True)
class MonitorView:
    """A model's rows as raw records, for `planner.decode.decode`, and what had to be dropped or is doubtful."""

    records: tuple[dict[str, Any], ...]
    rejections: tuple[Rejection, ...]
    notes: tuple[str, ...]


def reports_by_prefix(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Find the monitor's report of each model, by DHT prefix; what is not a report is passed over.

    Raises
    ------
    InputInvalid
        If there is no list of reports, or two are of the same prefix.
    """
    reports = document.get("model_reports")
    if not isinstance(reports, list):
        raise InputInvalid("model_reports is not a list, as it is in a health monitor's /api/v1/state")
    by_prefix: dict[str, dict[str, Any]] = {}
    for report in reports:
        prefix = report.get("dht_prefix") if isinstance(report, dict) else None
        if not isinstance(prefix, str) or not prefix:
            continue
        if prefix in by_prefix:
            raise InputInvalid(f"two model_reports have the dht_prefix {show(prefix)}; remove one")
        by_prefix[prefix] = report
    return by_prefix


def view_of(prefix: str, report: dict[str, Any], read_at: float) -> MonitorView:
    """Turn the rows of one model's report into raw records, read at `read_at` (Unix time).

    Raises
    ------
    InputInvalid
        If the report has no list of rows.
    """
    rows = report.get("server_rows")
    if not isinstance(rows, list):
        raise InputInvalid(f"server_rows of {show(prefix)} is not a list")
    records: list[dict[str, Any]] = []
    rejections: list[Rejection] = []
    notes: list[str] = []
    unstated = 0
    for row in rows:
        peer_id = row.get("peer_id") if isinstance(row, dict) else None
        span = row.get("span") if isinstance(row, dict) else None
        info = span.get("server_info") if isinstance(span, dict) else None
        if not isinstance(span, dict) or not isinstance(info, dict):
            known = peer_id if is_peer_id(peer_id) else None
            rejections.append(Rejection(known, "it has no span with a server_info", what="row"))
            continue
        state = row.get("state")
        if state == "unreachable":
            state = info.get("state")
            if state != "offline" and is_peer_id(peer_id):
                notes.append(f"{peer_id}: the monitor could not reach it; it counts as {show(state)}, as it announces")
        if state == "offline":
            continue
        # What a server states itself is better than the monitor's range, which a stale record may have widened.
        if info.get("start_block") is None and info.get("end_block") is None:
            unstated += 1
            info = {**info, "start_block": span.get("start"), "end_block": span.get("end")}
        start = span.get("start") if info.get("start_block") is None else info["start_block"]
        records.append(
            {
                "uid": f"{prefix}.{start if isinstance(start, int) and start.bit_length() <= 64 else None}",
                "peer_id": peer_id,
                "expiration": read_at + LIFETIME,
                "value": [_STATES.get(state, state) if isinstance(state, str) else state, info.get("throughput"), info],
            }
        )
    if unstated:
        notes.append(
            f"servers that do not state their spans themselves: {unstated:,}; a monitor hides whether keys are missing "
            "inside, which a dump of the DHT would show"
        )
    return MonitorView(tuple(records), tuple(rejections), tuple(notes))
