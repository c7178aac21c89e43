"""Decides which topologies a round of the master looks at: those that may have changed in the store since the last round (all
topologies, or only those with new reports), except those that rest after an error.

Reports are the most frequent changes, and each affects only one topology, so after a report Nimbus looks only at this topology.
After an error a topology rests for a moment, and each error is logged once.
Must not know: the reaction to a change, which step failed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from squall.cluster import paths
from squall.cluster.store import below
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds until a failed step is tried again.
REST_SECS: Final = 1.0
_OF_SUPERVISORS: Final = (paths.SUPERVISORS, paths.DRAINED)
#: Changes below these paths need no action. They do not concern the master, or are followed by a change of a record elsewhere.
_IGNORED: Final = (
    paths.BLOBS,
    paths.CLUSTER,
    paths.COUNTERS,
    paths.FORMER,
    paths.KEYS,
    paths.LEADERSHIP,
    paths.NIMBUSES,
    paths.PRESENCE,
    paths.VERSIONS,
)


class DirtySet:
    """`mark` may be called from any thread, the other methods from one thread."""

    def __init__(self) -> None:
        #: Whether every topology may have changed.
        self.all = True
        #: Whether supervisors may have come, gone or been drained.
        self.supervisors = True
        self._reported: deque[str] = deque()

    def mark(self, path: str) -> None:
        """Record that something at or below this path has changed."""
        if any(below(above, path) for above in _IGNORED):
            return
        if path != paths.REPORTS and below(paths.REPORTS, path):
            self._reported.append(paths.unquoted(path.split("/")[2]))
            return
        if any(below(above, path) or below(path, above) for above in _OF_SUPERVISORS):
            self.supervisors = True  # set before `all`: a thread that sees `all` must also see `supervisors`
        self.all = True

    def __bool__(self) -> bool:
        """Return whether any topology may have changed."""
        return self.all or bool(self._reported)

    def pop(self) -> set[str] | None:
        """Return and clear the ids of the topologies that may have changed; None: all topologies."""
        everything, self.all = self.all, False
        ids: set[str] = set()
        while self._reported:
            ids.add(self._reported.popleft())
        return None if everything else ids


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
            _log.error("%s: a step failed and is retried: %s", name, text, exc_info=None if known else error)
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
