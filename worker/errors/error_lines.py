"""Writes the errors of user code to the worker's log: each error once, and only a limited number a minute.

Must not know: tasks, where the log goes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

from squall.reports.error_reports import ErrorReport, gist
from worker.errors.reports import ErrorLog

_log = logging.getLogger(__name__)

#: The level of these lines. It has its own name, so that programs that already show the reports elsewhere can leave the lines
#: out.
REPORT: Final = logging.ERROR + 1
logging.addLevelName(REPORT, "REPORT")

#: The most reports that are written within `SECONDS`. All reports are counted, and the status shows the latest of each
#: component.
MOST: Final = 20
SECONDS: Final = 60.0


class ErrorLines:
    """Writes the reports that are new."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        #: For each component: the gists of the reports that were kept at the last check.
        self.known: dict[str, set[tuple[str, ...]]] = {}
        self.written: deque[float] = deque()
        self.left_out = 0

    def write_new(self, errors: Mapping[str, ErrorLog], now: float) -> int:
        """Write the reports that are new; return the number of errors so far."""
        for component, log in errors.items():
            if log.count != self.counts.get(component, 0):
                self.counts[component] = log.count
                for report in self.fresh(component, list(log.kept)):
                    self.write(report, now)
        return sum(self.counts.values())

    def fresh(self, component: str, kept: list[ErrorReport]) -> list[ErrorReport]:
        """Return the reports that are new since the last check, except repetitions of known reports."""
        known = self.known.get(component, set())
        self.known[component] = {gist(report) for report in kept}
        return [report for report in kept if gist(report) not in known]

    def write(self, report: ErrorReport, now: float) -> None:
        """Write a report, unless the limit of this minute is reached."""
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
