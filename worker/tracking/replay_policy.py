"""Replay policy: how long a failed tuple waits for its next attempt.

Must not know: trackers, queues, clocks; `worker.tracking.outages` decides whether there is a next attempt.
"""

from __future__ import annotations

from topology_api import Replay


def replay_delay(replay: Replay, attempt: int) -> float:
    """Return the seconds until the replay after failed attempt number `attempt` (from 1).

    Delays double from `first_delay` up to `max_delay`.
    """
    doublings = min(attempt - 1, 1023)  # with more, a float overflows
    return float(min(replay.max_delay, replay.first_delay * 2.0**doublings))
