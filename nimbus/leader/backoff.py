"""Back-off of each topology: after an error the topology rests for a moment, and each error is logged once.

Must not know: which step failed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds until a failed step is tried again.
REST_SECS: Final = 1.0


class _Rest(NamedTuple):
    until: float
    error: str


class TopologyBackoff:
    """The topologies whose last step failed, by their id."""

    def __init__(self) -> None:
        self._resting: dict[str, _Rest] = {}
        self._unreadable: dict[str, str] = {}

    def rests(self, topology_id: str, now: float) -> bool:
        """Return whether the topology is still resting."""
        rest = self._resting.get(topology_id)
        return rest is not None and now < rest.until

    def add(self, topology_id: str, name: str, error: Exception, now: float) -> None:
        """Let a topology rest after a failed step. The error is logged unless the topology's last error was the same."""
        text = f"{type(error).__name__}: {error}"
        before = self._resting.get(topology_id)
        if before is None or before.error != text:
            known = isinstance(error, SquallError)
            _log.error(
                "%s: a step failed and is tried again: %s", name, text, exc_info=None if known else error
            )
        self._resting[topology_id] = _Rest(now + REST_SECS, text)

    def end_round(self, now: float) -> None:
        """Forget the errors of topologies that do not rest: all their steps succeeded."""
        self._resting = {key: rest for key, rest in self._resting.items() if now < rest.until}

    def update(self, unreadable: Mapping[str, str], ids: Collection[str]) -> None:
        """Log once which topologies cannot be read, and why. Forget all topologies except those with these ids."""
        for name, reason in unreadable.items():
            if self._unreadable.get(name) != reason:
                _log.error("%s: its record cannot be read, it is left alone: %s", name, reason)
        self._unreadable = dict(unreadable)
        self._resting = {key: rest for key, rest in self._resting.items() if key in ids}

    @property
    def due(self) -> float | None:
        """The time at which the next topology has rested long enough; None: no topology rests."""
        return min((rest.until for rest in self._resting.values()), default=None)
