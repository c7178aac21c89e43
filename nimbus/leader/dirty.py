"""Records which topologies may have changed in the store since Nimbus last looked at them: all, or those with new reports.

A report changes the least and comes most often: after a report, Nimbus looks again only at the report's topology.
Must not know: the reaction to a change.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from squall.cluster import paths
from squall.cluster.store import below

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
