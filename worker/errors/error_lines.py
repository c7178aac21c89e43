"""The errors of user code as lines of the worker's log: each once, and so many a minute at most.

Must not know: tasks, where the log goes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

from squall.error_reports import ErrorReport, gist
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
        #: What the reports of each component said that were kept at the last look.
        self.known: dict[str, set[tuple[str, ...]]] = {}
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
        known = self.known.get(component, set())
        self.known[component] = {gist(report) for report in kept}
        return [report for report in kept if gist(report) not in known]

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
