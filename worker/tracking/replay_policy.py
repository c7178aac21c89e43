"""Replay policy: whether a failed tree is emitted again, and when.

Plain decisions; `SpoutTask` carries them out.
Must not know: trackers, queues, clocks.
"""

from __future__ import annotations

from topology_api import Replay


def replay_delay(replay: Replay | None, attempt: int) -> float | None:
    """Return the seconds until the emission after failed attempt number `attempt` (from 1), or None when that was the last.

    Delays double from `first_delay` up to `max_delay`.
    """
    if replay is None or attempt >= replay.max_attempts:
        return None
    doublings = min(attempt - 1, 1023)  # beyond that a float overflows
    return float(min(replay.max_delay, replay.first_delay * 2.0**doublings))
