"""Whether tasks of worker processes can never be opened: the same error of `open` or `prepare`, again and again.

A worker whose component cannot be opened is started again, since what it waits for may come. A person who watches a run has
more of its end and the one error: what a task ended with for the third time, with no opening in between, is taken for its
last word; two addresses that are tried in turn are two errors, and each comes to its third time.
Must not know: clusters, how a run is ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from squall.error_reports import STARTING, ErrorReport, gist

#: Starts that end with the same error: the second comes at once, the third a second later.
ENOUGH: Final = 3


class FailedStarts:
    """Counts, for each task, the starts since its last opening that ended with the same error."""

    def __init__(self) -> None:
        #: By what a report says: the newest of them that was counted, and how many starts ended so.
        self._counted: dict[tuple[str, ...], tuple[ErrorReport, int]] = {}

    def opened(self, tasks: Iterable[int]) -> None:
        """These tasks were opened: what was before does not count."""
        there = set(tasks)
        for said, (report, _) in self._counted.items():
            if report.task in there:
                self._counted[said] = report, 0

    def last_word(self, reports: Iterable[ErrorReport]) -> ErrorReport | None:
        """Take the reports that there are, the oldest first, most of them known; one that says all, if there is such."""
        for report in reports:
            if report.call not in STARTING:
                continue
            said = gist(report)
            before, count = self._counted.get(said, (None, 0))
            if before is not None and report.time <= before.time:
                continue
            seen = before.times if before is not None and report.times > before.times else 0
            self._counted[said] = report, count + report.times - seen
        last = next((report for report, count in self._counted.values() if count >= ENOUGH), None)
        return None if last is None else replace(last, times=1)  # as it reads, however often it comes yet
