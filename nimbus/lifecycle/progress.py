"""What is due for one topology: values in, a decision out.

A report counts for a placement when it comes from that worker and was placed by the same assignment; restarts
by the supervisor (the second number of an incarnation) do not matter here. That it has ended or drained it
says of the assignment that it knew: a worker that was given more tasks since has not ended. Workers of a
supervisor that is not there cannot report: nobody waits for them.

A drain waits for every worker to say that it has nothing pending. One that has not opened its tasks may never be able to
(what it needs cannot be prepared, its `open` hangs): nobody waits for it when nothing was ever emitted in its topology, for
then nothing can be in flight. What is known may be a moment old, so that holds only once workers have had `ANSWER_SECS` to say
that they are up after all; and it has to be known: a worker must have been reported, and the counters of one that is up, or
of which an earlier process may have been. A Nimbus that begins to lead waits until it has heard them.
Must not know: the store, how a decision is carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nimbus.lifecycle import (
    ACTIVE,
    COMPLETED,
    FAILED,
    INACTIVE,
    KILLED,
    REBALANCING,
    REPLACING,
    allowed_events,
)
from nimbus.placing import withdrawn
from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport

ANSWER_SECS: Final = 2.0
"""Within this time Nimbus has heard of whatever a worker did before it was told to drain."""


@dataclass(frozen=True)
class View:
    """All that is known of a topology at one moment."""

    record: TopologyRecord
    assignment: Assignment | None
    leaving: Assignment | None
    reports: Mapping[str, WorkerReport]
    supervisors: Collection[str]
    """Ids of those that are there."""
    silent: Collection[str] | None = None
    """While it drains: whose counters are known, if nothing was ever emitted in it as far as they say; else None."""

    @property
    def workers(self) -> tuple[Placement, ...]:
        """The workers that the topology has."""
        return () if self.assignment is None else self.assignment.placements

    @property
    def withdrawn(self) -> tuple[Placement, ...]:
        """The workers that are to go."""
        return () if self.leaving is None else self.leaving.placements

    def report_of(self, placement: Placement) -> WorkerReport | None:
        """The last word of the worker that was placed so."""
        report = self.reports.get(placement.worker)
        return report if report is not None and speaks_for(report, placement) else None


def speaks_for(report: WorkerReport, placement: Placement) -> bool:
    """Whether the report comes from the worker that was placed so, restarted or not."""
    return report.worker == placement.worker and report.incarnation[0] == placement.incarnation[0]


def settled(report: WorkerReport, record: TopologyRecord) -> WorkerReport:
    """The report as it is kept: a worker drains while its topology asks for it, and at no other time.

    One that comes late, when what it drained for is over, would count for the next drain.
    """
    if report.drained and record.state not in (REBALANCING, REPLACING, KILLED):
        return replace(report, drained=False)
    return report


def event_due(view: View, now: float) -> str | None:
    """The event of the lifecycle table that has come, if any."""
    state = view.record.state
    if crash_of(view) is not None and "crash" in allowed_events(state):
        return "crash"
    if state in (ACTIVE, INACTIVE) and _all_ended(view):
        return "complete"
    if state == REBALANCING and drained_or_late(view, now):
        return "rebalanced"
    if state == KILLED and is_gone(view):
        return "remove"
    return None


def moments(record: TopologyRecord, has_workers: bool, now: float) -> list[float]:
    """When something may come of it that time has passed, the record's deadline being one to wait for."""
    if record.deadline is None:
        return []
    if record.replaces is not None and record.state in (ACTIVE, INACTIVE):
        halfway = record.deadline - (record.wait or 0.0) / 2  # by then it may be postponed
        return [record.deadline] if halfway <= now else [halfway]
    if not has_workers and record.state != REBALANCING:
        return []
    answered = _answered_by(record)
    return [answered if now < answered < record.deadline else record.deadline]


def must_leave(view: View, now: float) -> bool:
    """Whether the workers are to be withdrawn."""
    state = view.record.state
    if view.assignment is None:
        return False
    return state in (COMPLETED, FAILED) or (state == KILLED and drained_or_late(view, now))


def crash_of(view: View) -> str | None:
    """The first crash that a worker of the topology reported, in the order of workers."""
    reports = map(view.report_of, view.workers)
    return next((report.crash for report in reports if report is not None and report.crash is not None), None)


def still_there(view: View) -> tuple[Placement, ...]:
    """The withdrawn workers that have not said that they are gone.

    One that the assignment has all the same was never withdrawn: whoever was about to write another assignment did not get
    that far, and what is to become of it is decided anew.
    """
    leaving = withdrawn(view.withdrawn, view.workers)
    return tuple(placement for placement in _reachable(view, leaving) if not _stopped(view, placement))


def _reachable(view: View, placements: Iterable[Placement]) -> Iterable[Placement]:
    return (placement for placement in placements if placement.supervisor in view.supervisors)


def _stopped(view: View, placement: Placement) -> bool:
    report = view.report_of(placement)
    return report is not None and report.stopped


def _all_ended(view: View) -> bool:
    placed = sum(len(placement.tasks) for placement in view.workers)
    reports = [view.report_of(placement) for placement in view.workers]
    return placed == len(view.record.tasks) and all(
        report is not None and report.ended and _is_current(report, view) for report in reports
    )


def is_gone(view: View) -> bool:
    """Whether nothing of the topology runs any more."""
    return view.assignment is None and not still_there(view)


def is_up(view: View) -> bool:
    """Whether all tasks are placed, and every worker has opened them (while INACTIVE: has said that it is there)."""
    reports = [view.report_of(placement) for placement in view.workers]
    placed = sum(len(placement.tasks) for placement in view.workers)
    return placed == len(view.record.tasks) and all(
        report is not None and (report.opened or view.record.state == INACTIVE) and _is_current(report, view)
        for report in reports
    )


def why_not_up(
    record: TopologyRecord, placements: Iterable[Placement], reports: Mapping[str, WorkerReport]
) -> list[str]:
    """What the hosts said of those workers of an ACTIVE topology that are not up: it died, its environment cannot be built."""
    if record.state != ACTIVE:
        return []
    found = ((reports.get(placement.worker), placement) for placement in placements)
    return [
        report.note
        for report, placement in found
        if report is not None and speaks_for(report, placement) and not report.opened and report.note
    ]


def drained_or_late(view: View, now: float) -> bool:
    """Whether nothing is pending any more, as far as workers can tell, or it was waited for long enough."""
    deadline = view.record.deadline
    if deadline is not None and now >= deadline:
        return True
    reports = [view.report_of(placement) for placement in _reachable(view, view.workers)]
    never_worked = (
        deadline is not None and now >= _answered_by(view.record) and _has_never_worked(view, reports)
    )
    return all(
        report is not None and (_has_nothing_pending(report, view) or (never_worked and not report.opened))
        for report in reports
    )


def _answered_by(record: TopologyRecord) -> float:
    """When the workers of a topology that drains by its deadline have been told so for long enough."""
    return (record.deadline or 0.0) - (record.wait or 0.0) + ANSWER_SECS


def _has_never_worked(view: View, reports: Iterable[WorkerReport | None]) -> bool:
    """Whether nothing was ever emitted: so say the counters of all its workers that are or may have been up."""
    if view.silent is None:
        return False
    began = (report for report in reports if report is not None and (report.opened or report.incarnation[1]))
    return all(report.worker in view.silent for report in began)


def _has_nothing_pending(report: WorkerReport, view: View) -> bool:
    if report.stopped or report.crash is not None:
        return True
    return (report.drained or report.ended) and _is_current(report, view)


def _is_current(report: WorkerReport, view: View) -> bool:
    """Whether the flags speak of all the tasks that the worker has by now."""
    return report.version == 0 or view.assignment is None or report.version >= view.assignment.version
