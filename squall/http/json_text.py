"""The JSON that servers of Squall send.

Must not know: which answers there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins


def json_text(answer: object) -> str:
    """Return an answer (a struct or plain values) as JSON. NaN and infinities become texts."""
    value = to_builtins(answer)
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a user's gauge may be anything
        return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
