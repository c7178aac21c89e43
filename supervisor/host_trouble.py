"""Decides whether this host can start workers, from the starts that its own faults made fail: a disk that cannot be written, no
process or descriptor to be had.

After FAILURES such starts in a row the host is marked, and Nimbus gives its tasks to hosts that can run them. A failure counts
only half a second or more after the one before: then the fault has lasted for three tries of one worker (at 0, 1 and 3 s), and
many workers that start in the same moment count once. While the host is marked, a check does what a start does, with growing
pauses; a check or a start that succeeds ends the mark. After that, the pauses continue where they were for a while, so that a
host that fails now and then is not given tasks again and again.

An error that user code may have caused in its worker's directory (no permission, a folder in place of a file) counts only if
the check fails too. Must not know: how a worker is started or checked (a function is given), Nimbus, clocks.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

#: Failed starts in a row after which the host is marked.
FAILURES: Final = 3
#: Seconds between two failures that count.
APART: Final = 0.5
#: Seconds before the first check, doubled for each further check.
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0
#: Seconds without a mark after which the pauses begin again with the first.
FORGET: Final = 600.0
#: The most characters of the reason.
MOST_TEXT: Final = 300

#: Errors that user code without special rights cannot cause on purpose, or that concern every worker of the host.
_OF_HOST: Final = frozenset(
    getattr(errno, name)
    for name in (
        "EROFS", "EIO", "ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN"
    )
    if hasattr(errno, name)
)  # fmt: skip


class HostTrouble:
    """Whether a host can start workers. `check` raises `OSError` if no worker can be started. `now` is any clock's time in
    seconds."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        #: Why this host cannot start workers; "": it can, as far as is known.
        self.why = ""
        self._failures = 0
        self._last = float("-inf")
        self._pause = FIRST_PAUSE
        self._check_at = 0.0
        self._ended = float("-inf")

    def failed(self, error: Exception | None, now: float) -> None:
        """Record that a worker could not be started because of an error."""
        if not isinstance(error, OSError) or now < self._last + APART:
            return
        self._last = now
        if error.errno not in _OF_HOST and self._checked() is None:
            return
        self._failures += 1
        if self._failures >= FAILURES and not self.why:
            self.why = str(error)[:MOST_TEXT]
            if now >= self._ended + FORGET:
                self._pause = FIRST_PAUSE
            self._check_at = now + self._pause
            _log.error(
                "this host cannot start workers: %s; Nimbus may give its tasks to other hosts", self.why
            )

    def started(self, now: float) -> None:
        """Record that a worker was started."""
        self._failures = 0
        if self.why:
            _log.info("this host can start workers again")
            self.why, self._ended = "", now

    def retry(self, now: float) -> None:
        """Check the host once more, if a check is due."""
        if not self.why or now < self._check_at:
            return
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._check_at = now + self._pause
        if self._checked() is None:
            self.started(now)

    def _checked(self) -> OSError | None:
        """Return why no worker can be started now; None: one can."""
        try:
            self._check()
        except OSError as error:
            return error
        return None
