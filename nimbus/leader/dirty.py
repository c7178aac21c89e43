"""What has changed in the store since Nimbus looked: everything, the supervisors, or only what workers of some topologies said.

A report changes the least and comes the most often, so it has only its own topology looked at.
Must not know: what is done about it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from squall.cluster import paths
from squall.cluster.store import below

_OF_SUPERVISORS: Final = (paths.SUPERVISORS, paths.DRAINED)
#: What changes here leads to nothing: it is written before what refers to it, or is not the master's.
_NOTHING: Final = (
    paths.BLOBS,
    paths.CLUSTER,
    paths.COUNTERS,
    paths.FORMER,
    paths.KEYS,
    paths.LEADERSHIP,
    paths.NIMBUSES,
    paths.PRESENCE,
)


class Changes:
    """`note` may be called from any thread, the rest from one."""

    def __init__(self) -> None:
        #: Whether everything is to be looked at.
        self.all = True
        #: Whether supervisors may be others, or drained.
        self.hosts = True
        self._reported: deque[str] = deque()

    def note(self, path: str) -> None:
        """Something at or below this path has changed."""
        if any(below(above, path) for above in _NOTHING):
            return
        if path != paths.REPORTS and below(paths.REPORTS, path):
            self._reported.append(paths.unquoted(path.split("/")[2]))
            return
        if any(below(above, path) or below(path, above) for above in _OF_SUPERVISORS):
            self.hosts = True  # first: who sees that something has changed sees this too
        self.all = True

    def __bool__(self) -> bool:
        """Whether there is anything to look at."""
        return self.all or bool(self._reported)

    def take(self) -> set[str] | None:
        """The ids of the topologies to look at, None for all; from here on, what changes is to be looked at again."""
        whole, self.all = self.all, False
        ids: set[str] = set()
        while self._reported:
            ids.add(self._reported.popleft())
        return None if whole else ids
