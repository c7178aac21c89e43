"""Chooses the error reports to show: the first from each place in the user's code. Later ones are only counted.

Errors come by the thousand, mostly from one line. The first report explains the error, the count shows how frequent it is.
Must not know: terminals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from squall.reports.error_reports import ErrorReport
from squall.status import TopologyStatus

#: Errors with the same component, call, place and kind count as the same; messages differ from tuple to tuple.
Place = tuple[str, str, str, str]


@dataclass(frozen=True)
class Trouble:
    """The errors of one component: their number, and the newest one."""

    component: str
    count: int
    newest: ErrorReport

    @property
    def line(self) -> str:
        """Return them as one line. File and line precede the message, which may be cut off."""
        file, _, line = self.newest.place.partition(", in ")[0].rpartition(":")
        call = f"{self.newest.call}()" if self.newest.call else ""
        place = f"{os.path.basename(file)}:{line}" if file else call
        return f"{self.component}{', ' * bool(place)}{place}: {self.newest.text}"


def place_of(report: ErrorReport) -> Place:
    """Return what identifies the report."""
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
        """Whether `fresh` has returned a report with this text, whatever its count is now."""
        return any(_is(report, text) for report in status.errors if place_of(report) in self.seen)


def report_of_failure(status: TopologyStatus) -> ErrorReport | None:
    """Return the error report that made a topology fail; None if it failed for another reason."""
    return next((report for report in status.errors if status.error and _is(report, status.error)), None)


def _is(report: ErrorReport, text: str) -> bool:
    """Whether a text is this report, whatever its count is now."""
    return text in (report.render(), replace(report, times=1).render())


def troubles(status: TopologyStatus) -> list[Trouble]:
    """Return the components that have errors, the one with the newest error first."""
    newest = {report.component: report for report in status.errors}
    found = [
        Trouble(name, component.errors, newest[name])
        for name, component in status.components.items()
        if component.errors and name in newest
    ]
    return sorted(found, key=lambda trouble: trouble.newest.time, reverse=True)
