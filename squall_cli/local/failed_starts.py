"""Whether a task can never be opened: `open` or `prepare` raises the same error again and again.

A worker whose component cannot be opened is started again, since a service that it needs may become available. In `squall
run`, it is more useful to end the run with that error: a task that fails with the same error for the third time, without
having been opened in between, is given up. If a task tries two addresses in turn, these are two errors with separate counts.
Must not know: clusters, how a run is ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from squall.reports.error_reports import STARTING, ErrorReport, gist

#: Starts with the same error after which a task is given up. The second start is immediate, the third a second later.
ENOUGH: Final = 3


class FailedStarts:
    """Counts the failed starts of each task with the same error since the task was last opened."""

    def __init__(self) -> None:
        #: By the gist of a report: the newest report that was counted, and the number of starts that failed with it.
        self._counted: dict[tuple[str, ...], tuple[ErrorReport, int]] = {}

    def opened(self, tasks: Iterable[int]) -> None:
        """Reset the counts of these tasks, which were opened."""
        opened = set(tasks)
        for key, (report, _) in self._counted.items():
            if report.task in opened:
                self._counted[key] = report, 0

    def update(self, reports: Iterable[ErrorReport]) -> ErrorReport | None:
        """Count the current reports, given oldest first; return the report that should end the run, or None."""
        for report in reports:
            if report.call not in STARTING:
                continue
            key = gist(report)
            before, count = self._counted.get(key, (None, 0))
            if before is not None and report.time <= before.time:
                continue
            seen = before.times if before is not None and report.times > before.times else 0
            self._counted[key] = report, count + report.times - seen
        last = next((report for report, count in self._counted.values() if count >= ENOUGH), None)
        return None if last is None else replace(last, times=1)  # the text must not depend on the count
