"""Replay policy: whether a failed tree is emitted again, and when.

Pure functions; `SpoutTask` carries the decisions out.
Must not know: trackers, queues, clocks.
"""

from __future__ import annotations

from topology_api import Replay


def replay_delay(replay: Replay | None, attempt: int) -> float | None:
    """Return the seconds until the replay after failed attempt number `attempt` (from 1); None if it was the last attempt.

    Delays double from `first_delay` up to `max_delay`.
    """
    if replay is None or attempt >= replay.max_attempts:
        return None
    doublings = min(attempt - 1, 1023)  # with more, a float overflows
    return float(min(replay.max_delay, replay.first_delay * 2.0**doublings))
