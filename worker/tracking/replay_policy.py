"""Replay policy: how long a failed tuple waits for its next attempt, and whose policy that is.

Must not know: trackers, queues, clocks; `worker.tracking.outages` decides whether there is a next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from msgspec import Struct

from topology_api import Replay

#: What a spout says that does not replay: a tuple that fails is tried no further time.
ONCE: Final = Replay(max_attempts=1)


class Replays(Struct, frozen=True):
    """The policies for what fails in a task with epochs, by the spouts before it."""

    spouts: Mapping[str, Replay]
    #: The one with the most attempts: for timers, and for tuples whose spout is not known.
    most: Replay

    @classmethod
    def of(cls, spouts: Mapping[str, Replay | None]) -> Replays:
        """Return the policies of these spouts."""
        known = {spout: ONCE if replay is None else replay for spout, replay in spouts.items()}
        return cls(known, max(known.values(), key=attempts_of, default=ONCE))

    def of_spout(self, spout: str) -> Replay:
        """Return the policy for a tuple of a spout; another name: the spout is not known."""
        return self.spouts.get(spout, self.most)


def attempts_of(replay: Replay) -> float:
    """Return how often a tuple is tried at most."""
    return inf if replay.max_attempts is None else replay.max_attempts


def replay_delay(replay: Replay, attempt: int) -> float:
    """Return the seconds until the replay after failed attempt number `attempt` (from 1).

    Delays double from `first_delay` up to `max_delay`.
    """
    doublings = min(attempt - 1, 1023)  # with more, a float overflows
    return float(min(replay.max_delay, replay.first_delay * 2.0**doublings))
