"""How a child of the nursery and the nursery speak with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GO = "go"
"""What a child hears that is to end by itself."""

Tell = Callable[..., None]
"""Tells the swarm's owner that something has happened: its name, and more as keywords."""
Heard = Callable[[], Any]
"""What the child was told since, after a moment's waiting: an order, `GO`, or None."""
