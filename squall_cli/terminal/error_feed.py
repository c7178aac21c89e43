"""Which error reports a person has not seen yet: each place in the user's code is shown once, then counted.

Errors come by the thousand, and mostly from one line; the first report of it says all, the number says how bad it is.
Must not know: terminals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from squall.reports.error_reports import ErrorReport
from squall.status import TopologyStatus

#: What makes two errors the same to a person: where, in which call, of which kind. Messages differ from tuple to tuple.
Place = tuple[str, str, str, str]


@dataclass(frozen=True)
class Trouble:
    """The errors of one component: how many, and the newest of them."""

    component: str
    count: int
    newest: ErrorReport

    @property
    def line(self) -> str:
        """In one line, the file and line in front of the message, which may be cut off."""
        file, _, line = self.newest.place.partition(", in ")[0].rpartition(":")
        call = f"{self.newest.call}()" if self.newest.call else ""
        place = f"{os.path.basename(file)}:{line}" if file else call
        return f"{self.component}{', ' * bool(place)}{place}: {self.newest.text}"


def place_of(report: ErrorReport) -> Place:
    """Return what the report is recognised by."""
    kind = report.text.partition(":")[0]
    return report.component, report.call, kind, report.place


class ErrorFeed:
    """Remembers what was shown."""

    def __init__(self) -> None:
        self.seen: set[Place] = set()

    def fresh(self, status: TopologyStatus) -> list[ErrorReport]:
        """Return the reports of places that were not there before, oldest first."""
        found = []
        for report in status.errors:
            place = place_of(report)
            if place not in self.seen:
                self.seen.add(place)
                found.append(report)
        return found

    def has_shown(self, text: str, status: TopologyStatus) -> bool:
        """Return whether a report with this text was among what `fresh` gave, however often it has been seen since."""
        return any(_is(report, text) for report in status.errors if place_of(report) in self.seen)


def report_of_failure(status: TopologyStatus) -> ErrorReport | None:
    """Return the report of what a topology failed of, None when it failed of something else."""
    return next((report for report in status.errors if status.error and _is(report, status.error)), None)


def _is(report: ErrorReport, text: str) -> bool:
    """Return whether a text is a report, however often that has been seen since."""
    return text in (report.render(), replace(report, times=1).render())


def troubles(status: TopologyStatus) -> list[Trouble]:
    """Return the components that have errors, the newest error first."""
    newest = {report.component: report for report in status.errors}
    found = [
        Trouble(name, component.errors, newest[name])
        for name, component in status.components.items()
        if component.errors and name in newest
    ]
    return sorted(found, key=lambda trouble: trouble.newest.time, reverse=True)
