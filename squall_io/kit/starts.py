"""Where a source begins that knows times: a datetime, or the same as text, which an address of a pipe gives.

Must not know: sources.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime


def time_of(text: str) -> datetime | None:
    """Return the time that ISO text is, "2026-11-29T10:00:00Z"; None: it is none."""
    with suppress(ValueError):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 knows no Z
    return None


def zone_problem(start: datetime) -> str | None:
    """Return why a time says no moment; None if it does."""
    if start.tzinfo is not None:
        return None
    return f"start is {start}, without a time zone: give one, datetime(..., tzinfo=timezone.utc)"
