"""Whether tasks of worker processes can never be opened: the same error of `open` or `prepare`, again and again.

A worker whose component cannot be opened is started again, since what it waits for may come. A person who watches a run has
more of its end and the one error: the third in a row of one task, with no opening in between, is taken for its last word.
Must not know: clusters, how a run is ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from squall.error_reports import STARTING, ErrorReport, gist

#: Starts in a row that end with the same error: the second comes at once, the third a second later.
ENOUGH: Final = 3

Task = tuple[str, int]


class FailedStarts:
    """Counts, for each task, the starts in a row that ended with the same error."""

    def __init__(self) -> None:
        #: Of each task the newest report that was counted, and how many in a row say the same.
        self._counted: dict[Task, tuple[ErrorReport, int]] = {}

    def opened(self, tasks: Iterable[int]) -> None:
        """These tasks were opened: what was before does not count."""
        there = set(tasks)
        for task, (report, _) in self._counted.items():
            if task[1] in there:
                self._counted[task] = report, 0

    def last_word(self, reports: Iterable[ErrorReport]) -> ErrorReport | None:
        """Take the reports that there are, the oldest first, most of them known; one that says all, if there is such."""
        for report in reports:
            if report.call not in STARTING:
                continue
            task = report.component, report.task
            before, count = self._counted.get(task, (None, 0))
            if before is not None and report.time <= before.time:
                continue
            if before is None or gist(report) != gist(before):
                self._counted[task] = report, report.times
            else:  # the one before, which was seen again; or one behind it, if something else was in between
                seen = before.times if report.times > before.times else 0
                self._counted[task] = report, count + report.times - seen
        last = next((report for report, count in self._counted.values() if count >= ENOUGH), None)
        return None if last is None else replace(last, times=1)  # as it reads, however often it comes yet
