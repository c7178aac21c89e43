"""Chooses which error reports are shown, and which error report ends a run.

The first report from each place in the user's code is shown; later reports from the same place are only counted. There may be
thousands of errors, mostly from one line of code: the first report explains the error, and the count shows how frequent it is.

A worker whose component cannot be opened (`open` or `prepare` raises) is started again, since a service that it needs may
become available. In `squall run`, it is more useful to end the run with the error: a task that fails with the same error for
the third time, without having been opened in between, is given up. If a task tries two addresses in turn, it has two errors
with separate counts.
Must not know: terminals, clusters, how a run is ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from squall.reports.error_reports import STARTING, ErrorReport, gist
from squall.status import TopologyStatus

#: Errors with the same component, call, place and kind are treated as the same error; messages differ from tuple to tuple.
Place = tuple[str, str, str, str]


class Trouble(msgspec.Struct, frozen=True):
    """The errors of one component: their number, and the newest error."""

    component: str
    count: int
    newest: ErrorReport

    @property
    def line(self) -> str:
        """Return the errors as one line. File and line precede the message, because the end of the line may be cut off."""
        file, _, line = self.newest.place.partition(", in ")[0].rpartition(":")
        call = f"{self.newest.call}()" if self.newest.call else ""
        place = f"{os.path.basename(file)}:{line}" if file else call
        return f"{self.component}{', ' * bool(place)}{place}: {self.newest.text}"


def place_of(report: ErrorReport) -> Place:
    """Return the identity of a report's error."""
    kind = report.text.partition(":")[0]
    return report.component, report.call, kind, report.place


class ErrorFeed:
    """Remembers which reports were shown."""

    def __init__(self) -> None:
        self.seen: set[Place] = set()

    def fresh(self, status: TopologyStatus) -> list[ErrorReport]:
        """Return the reports from new places, oldest first."""
        found = []
        for report in status.errors:
            place = place_of(report)
            if place not in self.seen:
                self.seen.add(place)
                found.append(report)
        return found

    def has_shown(self, text: str, status: TopologyStatus) -> bool:
        """Whether `fresh` has returned a report with this text, even if the report's count has changed since then."""
        return any(_is(report, text) for report in status.errors if place_of(report) in self.seen)


def report_of_failure(status: TopologyStatus) -> ErrorReport | None:
    """Return the error report that made a topology fail; None if the topology failed for a different reason."""
    return next((report for report in status.errors if status.error and _is(report, status.error)), None)


def _is(report: ErrorReport, text: str) -> bool:
    """Whether a text is the text of this report, with the report's present count or with the count 1."""
    return text in (report.render(), replace(report, times=1).render())


def troubles(status: TopologyStatus) -> list[Trouble]:
    """Return the components that have errors. The component with the newest error comes first."""
    newest = {report.component: report for report in status.errors}
    found = [
        Trouble(name, component.errors, newest[name])
        for name, component in status.components.items()
        if component.errors and name in newest
    ]
    return sorted(found, key=lambda trouble: trouble.newest.time, reverse=True)


#: How many starts must fail with the same error before a task is given up. The second start follows at once, the third after a
#: second.
ENOUGH: Final = 3


class FailedStarts:
    """Counts, for each task and error, the starts that have failed since the task was last opened."""

    def __init__(self) -> None:
        #: By the gist of a report: the newest report that was counted, and the number of starts that failed with this error.
        self._counted: dict[tuple[str, ...], tuple[ErrorReport, int]] = {}

    def opened(self, tasks: Iterable[int]) -> None:
        """Reset the counts of these tasks, since they were opened."""
        opened = set(tasks)
        for key, (report, _) in self._counted.items():
            if report.task in opened:
                self._counted[key] = report, 0

    def update(self, reports: Iterable[ErrorReport]) -> ErrorReport | None:
        """Count the current reports, which are given oldest first. Return the report that should end the run, or None."""
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
