"""The errors of user code as lines of the worker's log: each once, and so many a minute at most.

Must not know: tasks, where the log goes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

from squall.error_reports import ErrorReport
from worker.reports import ErrorLog

_log = logging.getLogger(__name__)

#: The level of these lines, with a name of its own: who shows the status to somebody shows the reports already.
REPORT: Final = logging.ERROR + 1
logging.addLevelName(REPORT, "REPORT")

#: Reports written within `SECONDS`; all are counted, and the latest of each component are kept for the status.
MOST: Final = 20
SECONDS: Final = 60.0


class ErrorLines:
    """Writes what is new."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        #: The latest report of each component that was looked at.
        self.latest: dict[str, ErrorReport] = {}
        self.written: deque[float] = deque()
        self.left_out = 0

    def look(self, errors: Mapping[str, ErrorLog], now: float) -> int:
        """Write the reports that are new; the number of errors so far."""
        for component, log in errors.items():
            if log.count != self.counts.get(component, 0):
                self.counts[component] = log.count
                for report in self.fresh(component, list(log.kept)):
                    self.write(report, now)
        return sum(self.counts.values())

    def fresh(self, component: str, kept: list[ErrorReport]) -> list[ErrorReport]:
        """The reports that came since the last look; one that was only seen again is none."""
        last = self.latest.get(component)
        found: list[ErrorReport] = []
        for report in reversed(kept):
            if last is not None and same(report, last):
                break
            found.append(report)
        if kept:
            self.latest[component] = kept[-1]
        return found[::-1]

    def write(self, report: ErrorReport, now: float) -> None:
        """One report, if there is room for it in this minute."""
        while self.written and self.written[0] <= now - SECONDS:
            self.written.popleft()
        if len(self.written) >= MOST:
            self.left_out += 1
            return
        if self.left_out:
            _log.log(REPORT, "%d errors of user code before this one are only counted", self.left_out)
            self.left_out = 0
        self.written.append(now)
        _log.log(REPORT, "%s", report.render())
        if len(self.written) == MOST:
            _log.log(REPORT, "errors are only counted from here on, for up to %.0f s", SECONDS)


def same(one: ErrorReport, last: ErrorReport) -> bool:
    """Whether a report is the one that was looked at last, perhaps seen again since (it has the time of the last time)."""
    if (one.task, one.call, one.text, one.place) != (last.task, last.call, last.text, last.place):
        return False
    return one.time == last.time or one.times > last.times
