"""The order in which to ask several sources for a file, according to their earlier answers.

If a source delivers a wrong file, this is logged, and the source is not asked for that file for some time; with each further
wrong file this time doubles. For some time, a source that did not answer comes last in the order. Any thread may call any
method.
Must not know: how a file is fetched, who the sources are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

_log = logging.getLogger(__name__)

#: For how many seconds a source that did not answer comes last.
SILENT_SECS: Final = 30.0
#: For how many seconds a source is not asked for a file after it has delivered a wrong one (at first; doubled each time).
WRONG_SECS: Final = 10.0
#: The limit to which `WRONG_SECS` is doubled, in seconds.
MOST_SECS: Final = 600.0
#: The greatest number of wrong files that are remembered.
_REMEMBERED: Final = 1000


class FileSources:
    """How each source answered, as far as this matters for the order."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        #: Source -> the time until which it comes last.
        self._silent: dict[str, float] = {}
        #: (source, file) -> how many times the source delivered a wrong file, and the time until which it is not asked.
        self._wrong: dict[tuple[str, str], tuple[int, float]] = {}

    def order(self, sha256: str, sources: Iterable[str]) -> list[str]:
        """Return the sources to ask for a file now, in order; sources that did not answer come last."""
        now = self._now()
        with self._lock:
            asked = [each for each in sources if now >= self._wrong.get((each, sha256), (0, now))[1]]
            return sorted(asked, key=lambda each: now < self._silent.get(each, now))

    def wrong(self, source: str) -> set[str]:
        """Return the files (SHA-256) for which the source's latest delivery was a wrong file."""
        with self._lock:
            return {sha256 for name, sha256 in self._wrong if name == source}

    def is_silent(self, source: str) -> None:
        """Record that a source did not answer."""
        with self._lock:
            self._silent[source] = self._now() + SILENT_SECS

    def delivered(self, source: str, sha256: str, found: str) -> bool:
        """Record that a source delivered a file with the SHA-256 `found`; return whether that file is the right one."""
        with self._lock:
            self._silent.pop(source, None)
            times, _ = self._wrong.pop((source, sha256), (0, 0.0))
            if found == sha256:
                return True
            secs = min(WRONG_SECS * 2**times, MOST_SECS)
            self._wrong[source, sha256] = times + 1, self._now() + secs
            if len(self._wrong) > _REMEMBERED:
                del self._wrong[next(iter(self._wrong))]
        _log.error(
            "%s delivered a wrong file instead of %s: its SHA-256 is %s. This source is not asked for that file for %g s",
            source,
            sha256,
            found,
            secs,
        )
        return False
