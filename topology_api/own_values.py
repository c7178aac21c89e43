"""What a configuration may hold under a user's own keys: what JSON has.

Must not know: which keys are Squall's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from topology_api.wording import shown, typed

#: Of a whole number: Python refuses to write one of much more bits as text.
MOST_BITS: Final = 10_000


def json_problem(value: object, depth: int = 0) -> str | None:
    """Return why the value of a user's own key cannot be encoded as JSON, or None."""
    if depth > 50:
        return "is nested more than 50 levels deep"
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"holds a whole number of more than {MOST_BITS:,} bits"
    if value is None or isinstance(value, (bool, int, str)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {shown(value)}, which JSON does not have"
    if isinstance(value, (list, tuple)):
        parts: list[object] = list(value)
    elif isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            return f"holds a dict with the key {typed(wrong[0])}: JSON has only str keys"
        parts = list(value.values())
    else:
        return f"holds {typed(value)}: a configuration can hold only what JSON has"
    return next(filter(None, (json_problem(part, depth + 1) for part in parts)), None)
