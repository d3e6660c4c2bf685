"""Values from the DHT as JSON: what a dump holds, and what the one decoder reads, live or dumped."""

from __future__ import annotations

import math
from typing import Any

from planner.wire import Unreadable


def plain(value: object) -> Any:
    """Turn an unpacked value into JSON values.

    Tuples become lists. What JSON does not know becomes a text that says what it was, so that the decoder names it when
    it drops the record: ``"inf"``, ``"<7 bytes>"``, ``"<a value of 1,000,000 bytes, over 131,072>"``.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    return f"<{value.reason}>" if isinstance(value, Unreadable) else f"<a {type(value).__name__}>"
