"""Moments as a person reads them."""

from __future__ import annotations

from datetime import datetime, timezone


def at(moment: float) -> str:
    """A Unix time in UTC: servers and operators sit in many time zones."""
    try:
        return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"Unix time {moment:.0f}"
