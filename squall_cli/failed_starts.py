"""Whether tasks of worker processes can never be opened: the same error of `open` or `prepare`, again and again.

A worker whose component cannot be opened is started again, since what it waits for may come. A person who watches a run has
more of its end and the one error: the third in a row of one task, with no opening in between, is taken for its last word.
Must not know: clusters, how a run is ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from squall.error_reports import ErrorReport

#: The calls that open a task.
STARTING: Final = ("open", "prepare", "start")
#: Starts in a row that end with the same error: the second comes at once, the third a second later.
ENOUGH: Final = 3
#: What differs from one attempt to the next: times, numbers of attempts and processes.
_NUMBER: Final = re.compile(r"\d+")

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
            same = before is not None and _said(report) == _said(before)
            self._counted[task] = report, count + 1 if same else 1
        return next((report for report, count in self._counted.values() if count >= ENOUGH), None)


def _said(report: ErrorReport) -> tuple[str, str, str]:
    return report.call, report.place, _NUMBER.sub("#", report.text)
