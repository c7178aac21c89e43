"""Decides which step is due for one topology. Pure functions over values.

A report is valid for a placement if it comes from the placement's worker, and that worker was placed by the same version of the
assignment; restarts by the supervisor (the second number of an incarnation) do not matter here. "Ended" and "drained" refer to
the assignment that the worker knew when it reported: a worker that has got more tasks since then has not ended. Workers of a
supervisor that is not registered cannot report, so Nimbus does not wait for them.

A drain waits until every worker reports that nothing is pending. A worker that has not opened its tasks may never do so (its
files cannot be prepared, or its `open` hangs). The drain does not wait for such a worker if nothing was ever emitted in its
topology, because nothing can be in flight in that case. The knowledge that nothing was emitted may be slightly old, so it is
used only after workers have had `ANSWER_SECS` to report that they are up after all. The knowledge must also be complete: there
is a report of every worker, and there are counters of each worker that is up, or whose earlier process may have been up. A new
leader waits until it has all of these reports and counters.
Must not know: the store, how a decision is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from nimbus.lifecycle import states
from nimbus.lifecycle.trial import LOOK_SECS, NO_TRIAL, Trial
from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport
from squall.reports.events import Event
from topology_api.epoch_rules import state_path

#: Seconds within which Nimbus learns everything that a worker did before it got its drain order.
ANSWER_SECS: Final = 2.0
#: Seconds between two looks at the counters of a topology that has not committed anything yet.
COMMIT_SECS: Final = 2.0


class LifecycleView(msgspec.Struct, frozen=True):
    """All that is known about a topology at one moment."""

    record: TopologyRecord
    assignment: Assignment | None
    leaving: Assignment | None
    reports: Mapping[str, WorkerReport]
    #: Ids of the registered supervisors.
    supervisors: Collection[str]
    #: The workers whose counters are known, if the topology drains and never emitted anything; else None.
    silent: Collection[str] | None = None
    #: What the leader knows of the version's trial, while it is on trial.
    trial: Trial = NO_TRIAL

    @property
    def workers(self) -> tuple[Placement, ...]:
        """The workers that the topology has."""
        return workers_of(self.assignment)

    @property
    def withdrawn(self) -> tuple[Placement, ...]:
        """The workers that have to stop."""
        return workers_of(self.leaving)

    def report_of(self, placement: Placement) -> WorkerReport | None:
        """Return the last report of this placement's worker."""
        report = self.reports.get(placement.worker)
        return report if report is not None and speaks_for(report, placement) else None


def workers_of(assignment: Assignment | None) -> tuple[Placement, ...]:
    """Return the workers of an assignment; none if there is no assignment."""
    return () if assignment is None else assignment.placements


def withdrawn(before: Iterable[Placement], after: Iterable[Placement]) -> tuple[Placement, ...]:
    """Return the workers of `before` that are not in `after`."""
    stay = {(placement.worker, placement.incarnation) for placement in after}
    return tuple(old for old in before if (old.worker, old.incarnation) not in stay)


def speaks_for(report: WorkerReport, placement: Placement) -> bool:
    """Return whether the report comes from the worker of this placement, even if the worker was restarted."""
    return report.worker == placement.worker and report.incarnation.version == placement.incarnation.version


def settled(report: WorkerReport, record: TopologyRecord) -> WorkerReport:
    """Return the report in the form in which it is stored: without "drained", unless the topology drains.

    If it were stored, a late "drained", from a drain that has ended, would be taken for an answer to the next drain.
    """
    if report.drained and record.state not in (states.REBALANCING, states.REPLACING, states.KILLED):
        return replace(report, drained=False)
    return report


def is_on_trial(record: TopologyRecord) -> bool:
    """Return whether the previous version returns if this version does not prove that it runs."""
    return record.replaces is not None and record.state in states.RUNNING


def event_due(view: LifecycleView, now: float) -> str | None:
    """Return the event of the lifecycle table that is due, or None."""
    state = view.record.state
    if crash_of(view) is not None and "crash" in states.allowed_events(state):
        return "crash"
    if state in states.RUNNING and _all_say(view, lambda report: report.ended):
        return "complete"
    if state == states.REBALANCING and drained_or_late(view, now):
        return "rebalanced"
    if state == states.KILLED and is_gone(view):
        return "remove"
    return None


def awaits_commit(record: TopologyRecord) -> bool:
    """Return whether a running topology keeps its state at a path, and has not committed anything as far as its record says."""
    return not record.committed and record.state in states.RUNNING and state_path(record.conf) is not None


def moments(record: TopologyRecord, has_workers: bool, now: float) -> list[float]:
    """Return the times at which something may become due only because time passes. Empty for a record without a deadline that
    does not wait for its first commit."""
    if record.deadline is None:
        return [now + COMMIT_SECS] if has_workers and awaits_commit(record) else []
    if is_on_trial(record):
        halfway = record.deadline - (record.wait or 0.0) / 2  # from then on the deadline may be postponed
        nexts = [now + LOOK_SECS] if record.state == states.ACTIVE else []
        return nexts + [moment for moment in (halfway, record.deadline) if moment > now][:1]
    if not has_workers and record.state != states.REBALANCING:
        return []
    answered = _answered_by(record)
    return [answered if now < answered < record.deadline else record.deadline]


def must_leave(view: LifecycleView, now: float) -> bool:
    """Return whether the workers have to be withdrawn."""
    state = view.record.state
    over = state in (states.COMPLETED, states.FAILED)
    return view.assignment is not None and (over or (state == states.KILLED and drained_or_late(view, now)))


def is_unstarted(view: LifecycleView, placement: Placement) -> bool:
    """Return whether a worker does not run because its host could not start it."""
    report = view.report_of(placement)
    if report is None or report.address is not None or report.opened:
        return False
    return report.event is not None and report.event.kind == "not_started"


def crash_of(view: LifecycleView) -> str | None:
    """Return the first crash that a worker of the topology reported, in the order of workers."""
    reports = map(view.report_of, view.workers)
    return next((report.crash for report in reports if report is not None and report.crash is not None), None)


def still_there(view: LifecycleView) -> tuple[Placement, ...]:
    """Return the withdrawn workers that have not reported that they stopped.

    If a Nimbus stopped before it wrote the next assignment, a worker may be both in the list of withdrawn workers and in the
    assignment. Such a worker was not withdrawn; its place is decided again.
    """
    leaving = withdrawn(view.withdrawn, view.workers)
    return tuple(placement for placement in _reachable(view, leaving) if not _stopped(view, placement))


def _reachable(view: LifecycleView, placements: Iterable[Placement]) -> Iterable[Placement]:
    return (placement for placement in placements if placement.supervisor in view.supervisors)


def _stopped(view: LifecycleView, placement: Placement) -> bool:
    report = view.report_of(placement)
    return report is not None and report.stopped


def _all_say(view: LifecycleView, what: Callable[[WorkerReport], bool]) -> bool:
    """Return whether all tasks are placed, and each worker has sent a report that covers all its present tasks and for which
    `what` is true."""
    reports = [view.report_of(placement) for placement in view.workers]
    placed = sum(len(placement.tasks) for placement in view.workers)
    return placed == len(view.record.tasks) and all(
        report is not None and what(report) and _is_current(report, view) for report in reports
    )


def is_gone(view: LifecycleView) -> bool:
    """Return whether no worker of the topology runs any more."""
    return view.assignment is None and not still_there(view)


def is_up(view: LifecycleView) -> bool:
    """Return whether all tasks are placed, and every worker has opened its tasks (while INACTIVE: has reported)."""
    return _all_say(view, lambda report: report.opened or view.record.state == states.INACTIVE)


def why_not_up(view: LifecycleView) -> list[Event]:
    """If the topology is ACTIVE, return the last event of each worker that has reported an event and has not opened its
    tasks."""
    if view.record.state != states.ACTIVE:
        return []
    reports = map(view.report_of, view.workers)
    return [report.fact for report in reports if report is not None and not report.opened and report.fact]


def drained_or_late(view: LifecycleView, now: float) -> bool:
    """Return whether all workers report that nothing is pending, or the deadline has passed."""
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
    """Return the time by which every worker of a draining topology should have answered."""
    return (record.deadline or 0.0) - (record.wait or 0.0) + ANSWER_SECS


def _has_never_worked(view: LifecycleView, reports: Iterable[WorkerReport | None]) -> bool:
    """Return whether the counters of all workers that are, or may have been, up show that nothing was ever emitted."""
    if view.silent is None:
        return False
    began = (
        report for report in reports if report is not None and (report.opened or report.incarnation.restart)
    )
    return all(report.worker in view.silent for report in began)


def _has_nothing_pending(report: WorkerReport, view: LifecycleView) -> bool:
    if report.stopped or report.crash is not None:
        return True
    return (report.drained or report.ended) and _is_current(report, view)


def _is_current(report: WorkerReport, view: LifecycleView) -> bool:
    """Return whether the flags of the report refer to all the tasks that the worker has now."""
    return report.version == 0 or view.assignment is None or report.version >= view.assignment.version
