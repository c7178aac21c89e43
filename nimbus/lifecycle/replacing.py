"""Replacement: a new version takes over the name of a topology, and the previous version returns if the new one does not run.

The new version waits at /replacements/<name> while the old version drains (state REPLACING) and stops its workers. Then the old
record moves to /replaced/<name>, and the new record takes the name, with `replaces` and a deadline, and its tasks are placed.
When its workers are up and its tuples are processed (`nimbus.lifecycle.trial`), the new version has proved that it runs, and
the old version is removed. If the new version fails, or is not up by its deadline, its workers stop and the old record gets the
name back, in its earlier state.

Each step follows only from the store, and takes effect with one write, so that another Nimbus can continue after a death at any
point. Nothing is cleaned up on the way: the values of a version without a record are swept with all other orphans.

| in the store | step |
|---|---|
| a version waits for a topology that runs or has ended | `begin`: REPLACING |
| REPLACING, drained or too late | `withdraw`: the workers stop |
| REPLACING, and no worker runs | `take_over`: the name passes to the version that waits |
| REPLACING, and no version waits | `restore`: the previous state |
| the version that waits has the name already, or the topology is KILLED | `drop_waiting` |
| the trial of a version ended well (`nimbus.lifecycle.trial`), or it has ended | `prove` |
| a version on trial is up and INACTIVE | `suspend` its trial, which begins when it is activated |
| hosts still prepare the files of a version on trial, or its trial begins | `postpone` its deadline |
| a version on trial is not up by its deadline, its tuples fail, or its start repeats an error | `fail` |
| an operator wants the previous version of one on trial (`nimbus.lifecycle.ending_trials`) | `fail` |
| a version on trial has FAILED and no worker runs | `roll_back`: the previous version gets the name back |
| the previous version cannot return any more | `drop_before` |
| a version that waits, or the previous version, cannot be read | `report`: an event says this |

A version that cannot be read stays unchanged, with all its values, until an operator repairs or kills it. If that version waits
for the name, it is ignored until then. While the previous version cannot be read, nothing is replaced, and a version that
FAILED on trial is not rolled back.
Must not know: slots, callers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from nimbus.lifecycle import states
from nimbus.lifecycle.assigning import Assigner
from nimbus.lifecycle.cleanup import to_type
from nimbus.lifecycle.notes import has_event, with_events
from nimbus.lifecycle.progress import LifecycleView, drained_or_late, is_gone, is_on_trial, is_up
from nimbus.lifecycle.states import IllegalTransition
from nimbus.lifecycle.transition import forget_drains, message_timeout, transition
from nimbus.lifecycle.trial import SAME_ERRORS, TrialOutcome, outcome_of, why_bad
from squall.cluster.record_sets import RecordSet
from squall.cluster.records import BadRecord, HowReplaced, TopologyRecord
from squall.cluster.registry import Registry
from squall.reports.event_text import sentence
from squall.reports.events import Event, subject
from squall.values import TopologyState
from topology_api.options import OPTIONS

_log = logging.getLogger(__name__)

#: The events that a topology on trial allows.
_ON_TRIAL: Final = ("activate", "deactivate", "kill")


class NotProved(IllegalTransition):
    """The topology has just replaced its previous version and is on trial. `secs`: the seconds until a rollback, if known."""

    def __init__(self, record: TopologyRecord, event: str, now: float) -> None:
        super().__init__(record.state, event, record.name)
        self.secs = None if record.until is None else max(0.0, record.until - now)

    def __str__(self) -> str:
        cannot = f"cannot {self.event} topology {self.name!r}: it has just replaced the previous version"
        if self.state == states.FAILED:
            cannot += " and failed; it is rolled back when its workers are gone: try again then"
        else:
            cannot += (
                f" and is on trial{self._how_it_goes_on()}: try again when the trial has ended, or end it with"
                f" {to_type('rollback', str(self.name))}"
            )
        return f"{cannot} (a kill would remove the previous version as well)"

    def _how_it_goes_on(self) -> str:
        when = "" if self.secs is None else f" within {self.secs:.0f} s"
        if self.state != states.INACTIVE:
            return f"; it is rolled back if its workers are not up{when} or its tuples fail"
        begins = f", which begins at {to_type('activate', str(self.name))}"
        return f"{begins}; it is rolled back if its workers are not up{when}" if when else begins


class ReplacementWaits(IllegalTransition):
    """Another version is already waiting for the name."""

    def __str__(self) -> str:
        return (
            f"another version is already waiting to replace topology {self.name!r}: wait until that version has taken over, or"
            " kill the topology"
        )


class UnreadableVersion(IllegalTransition):
    """A version of the topology in the store cannot be read."""

    def __init__(self, record: TopologyRecord, unread: Event) -> None:
        super().__init__(record.state, "replace", record.name)
        self.unread = unread

    def __str__(self) -> str:
        return f"cannot replace topology {self.name!r}: {sentence(self.unread)}"


#: The step that follows from the trial of a version whose workers are up.
_STEPS: Final = {TrialOutcome.OPEN: None, TrialOutcome.GOOD: "prove", TrialOutcome.BAD: "fail"}

#: The version that waits, or the previous version. For a version that cannot be read: the event that gives the reason.
Found = TopologyRecord | Event | None


def check_proved(record: TopologyRecord, event: str, now: float) -> None:
    """Raise `NotProved` for an event that a topology on trial does not allow. `now`: seconds since 1970."""
    if is_on_trial(record) and event not in _ON_TRIAL:
        raise NotProved(record, event, now)


def step_due(view: LifecycleView, waiting: Found, before: Found, now: float) -> str | None:
    """Return the step of the table above that is due, or None."""
    record = view.record
    if any(isinstance(each, Event) and not has_event(record, each) for each in (waiting, before)):
        return "report"
    if isinstance(waiting, TopologyRecord):
        found = _while_waiting(view, waiting, before, now)
    elif record.state == states.REPLACING:
        found = "restore"
    elif record.replaces is not None:
        found = _while_proving(view, before, now)
    else:
        found = None
    if found is None and isinstance(before, TopologyRecord) and not _may_come_back(record, before):
        found = "drop_before"
    return found


def _while_waiting(view: LifecycleView, waiting: TopologyRecord, before: Found, now: float) -> str | None:
    record = view.record
    if waiting.id == record.id or record.state == states.KILLED:
        return "drop_waiting"
    if record.state == states.REPLACING:
        if view.assignment is not None:
            return "withdraw" if drained_or_late(view, now) else None
        return "take_over" if is_gone(view) else None
    if "replace" not in states.allowed_events(record.state) or isinstance(before, Event):
        return None  # a rebalance must end first, or an unreadable previous version would be overwritten
    return "begin" if record.replaces is None else "drop_waiting"


def _while_proving(view: LifecycleView, before: Found, now: float) -> str | None:
    record = view.record
    if record.state == states.FAILED and before is not None:
        return "roll_back" if is_gone(view) and isinstance(before, TopologyRecord) else None
    if record.state not in states.RUNNING:
        return "prove"
    if view.trial.repeated is not None:
        return "fail"
    if is_up(view) and record.state == states.INACTIVE:
        return None if record.deadline is None else "suspend"
    if record.deadline is None:  # it was suspended
        return "postpone" if record.state == states.ACTIVE else None
    if is_up(view):
        return _STEPS[outcome_of(view.trial, now, record.deadline)]
    if record.wait is not None and _is_being_prepared(view):
        # When everything is prepared, at least half of the time remains for the workers.
        return "postpone" if now >= record.deadline - record.wait / 2 else None
    return "fail" if now >= record.deadline else None


def _may_come_back(record: TopologyRecord, before: TopologyRecord) -> bool:
    return record.replaces == before.id or (record.id == before.id and record.state == states.REPLACING)


def versions(registry: Registry) -> Iterator[tuple[str, Found]]:
    """Yield each name together with the version that waits for the name, or that may get it back."""
    for part, records in _places(registry):
        for name in records.names():
            yield name, _found(part, records, name)


def every_record(registry: Registry) -> tuple[list[TopologyRecord], set[str]]:
    """Return (the records of all topologies, including versions that wait for a name or may get it back; the names with a
    record that cannot be read).
    """
    records, unread = registry.all_topologies(), set(registry.bad)
    for name, version in versions(registry):
        if isinstance(version, Event):
            unread.add(name)
        elif version is not None:
            records.append(version)
    return records, unread


def _places(registry: Registry) -> Iterator[tuple[str, RecordSet[TopologyRecord]]]:
    yield "replacement", registry.replacements
    yield "replaced", registry.replaced


def _found(part: str, records: RecordSet[TopologyRecord], name: str) -> Found:
    try:
        return records.get(name)
    except BadRecord as error:
        return Event("unreadable", part=part, error=str(error))


class ReplaceTerms(msgspec.Struct, frozen=True):
    """A site's terms for new versions. timeout_secs: within which a version has to prove that it runs; versions_kept: how many
    earlier versions are kept."""

    timeout_secs: float = cast(float, OPTIONS["nimbus.replace.timeout.secs"].default)
    versions_kept: int = cast(int, OPTIONS["nimbus.versions.keep"].default)


USUAL_TERMS: Final = ReplaceTerms()


@dataclass(eq=False, repr=False)
class Replacements:
    """Takes the steps of replacements."""

    registry: Registry
    assigner: Assigner
    #: The seconds within which a version has to prove that it runs.
    timeout_secs: float
    #: Gives seconds since 1970.
    wall_clock: Callable[[], float]
    #: Keeps what is known of a version that is about to end: (the version, how it ends).
    keep_ended: Callable[[TopologyRecord, HowReplaced], None]
    #: Returns how many pending tuples the workers of a version (id) have left for the one that has the name again.
    left_over: Callable[[str], int] = lambda _: 0
    #: Names that no topology has, and whose unreadable versions have been logged.
    _logged: set[str] = field(default_factory=set, init=False)

    def check(self, record: TopologyRecord) -> None:
        """Raise if the topology that has the name cannot be replaced now."""
        check_proved(record, "replace", self.wall_clock())
        if record.state == states.FAILED and record.replaces is not None:
            # A version that began to wait now would be dropped.
            raise NotProved(record, "replace", self.wall_clock())
        states.step(record.state, "replace", record.previous, record.name)
        waiting, before = self._versions_of(record.name)
        for version in (waiting, before):
            if isinstance(version, Event):
                raise UnreadableVersion(record, version)
        if waiting is not None:
            raise ReplacementWaits(record.state, "replace", record.name)

    def advance(self, view: LifecycleView, now: float) -> bool:
        """Take the step that is due; return whether a step was due."""
        record = view.record
        if record.state != states.REPLACING and record.replaces is None and not self._has_other(record.name):
            return False
        waiting, before = self._versions_of(record.name)
        due = step_due(view, waiting, before, now)
        if due is not None:
            self._take(due, view, waiting, before, now)
        return due is not None

    def drop(self, name: str) -> bool:
        """Remove the versions that wait for a name or may get it back; return whether there were any."""
        has_other = self._has_other(name)
        if has_other:
            self.registry.replacements.drop(name)
            self.registry.replaced.drop(name)
        return has_other

    def drop_nameless(self) -> None:
        """Remove the versions of names that no topology has, except versions that cannot be read."""
        names = {record.name for record in self.registry.all_topologies()} | self.registry.bad.keys()
        nameless = [(name, version) for name, version in versions(self.registry) if name not in names]
        unread = {name for name, version in nameless if isinstance(version, Event)}
        for name in sorted(unread - self._logged):
            _log.error(
                "%s: no topology has this name, but a stored version for it cannot be read: `squall kill` removes that version",
                name,
            )
        self._logged = unread
        for name in sorted({name for name, _ in nameless} - unread):
            _log.warning(
                "%s: a version that waited for this name, or had it before, is dropped: no topology has the name",
                name,
            )
            self.drop(name)

    def _take(self, due: str, view: LifecycleView, waiting: Found, before: Found, now: float) -> None:
        record, registry = view.record, self.registry
        if due == "drop_waiting":
            registry.replacements.drop(record.name)
        elif due == "drop_before":
            registry.replaced.drop(record.name)
        elif due == "withdraw":
            self.assigner.withdraw(view)
        elif due == "prove":
            registry.topologies.update(
                record, replace(record, replaces=None, deadline=None, wait=None, until=None)
            )
            _log.info("%s: %s runs, the previous version is dropped", record.name, record.id)
        elif due == "postpone":
            registry.topologies.update(record, replace(record, **self._time_from(now)))
        elif due == "suspend":
            registry.topologies.update(record, replace(record, deadline=None, wait=None, until=None))
        elif due == "fail":
            error = _why_it_failed(view, self.timeout_secs)
            transition(registry, record, "crash", self.wall_clock(), error=error)
        elif due == "restore":
            self._restore(view)
        elif due == "report":
            self._report_unread(record, (waiting, before))
        elif due == "begin" and isinstance(waiting, TopologyRecord):
            wait = message_timeout(record) if waiting.wait is None else waiting.wait
            # Keep the error of a FAILED topology, in case the topology comes back.
            transition(registry, record, "replace", self.wall_clock(), deadline=now + wait, wait=wait)
        elif due == "take_over" and isinstance(waiting, TopologyRecord):
            self._take_over(record, waiting, now)
        elif due == "roll_back" and isinstance(before, TopologyRecord):
            self._roll_back(record, before)

    def _report_unread(self, record: TopologyRecord, found: Iterable[Found]) -> None:
        events = [each for each in found if isinstance(each, Event) and not has_event(record, each)]
        self.registry.topologies.update(record, with_events(record, events, self.wall_clock()))
        for event in events:
            _log.error("%s: %s", record.name, sentence(event))

    def _take_over(self, record: TopologyRecord, waiting: TopologyRecord, now: float) -> None:
        self.keep_ended(record, "replaced")
        self.registry.replaced.put(record)
        becomes = replace(waiting, replaces=record.id, since=self.wall_clock(), **self._time_from(now))
        self.registry.topologies.update(record, becomes)
        _log.info("%s: %s takes over from %s", record.name, waiting.id, record.id)
        self.registry.replacements.drop(record.name)

    def _roll_back(self, record: TopologyRecord, before: TopologyRecord) -> None:
        self.keep_ended(record, "rolled back")
        left = self.left_over(record.id)
        event = Event(
            "rolled_back", version=record.id, successor=before.id, error=str(record.error), count=left
        )
        back = replace(self._restored(before, event), ended_by=record.ended_by, returns=before.returns + 1)
        self.registry.topologies.update(record, back)
        _log.warning("%s: %s", record.name, sentence(event))
        self.registry.replaced.drop(record.name)

    def _restore(self, view: LifecycleView) -> None:
        """Return a topology to its previous state, since no version waits any more, and forget the drain."""
        record = view.record
        forget_drains(self.registry, record.id, view.workers)
        event = Event("replacement_gone", version=record.id)
        self.registry.topologies.update(record, self._restored(record, event))
        _log.warning("%s: no version waits to replace it any more", record.name)

    def _restored(self, record: TopologyRecord, event: Event) -> TopologyRecord:
        time = self.wall_clock()
        back = replace(
            record,
            state=TopologyState[states.step(record.state, "restore", record.previous, record.name)],
            previous=None,
            deadline=None,
            wait=None,
            since=time,
            until=None,
        )
        return with_events(back, [event], time)

    def _time_from(self, now: float) -> dict[str, Any]:
        """Return the fields of the deadline by which a version has to prove that it runs."""
        return {
            "deadline": now + self.timeout_secs,
            "wait": self.timeout_secs,
            "until": self.wall_clock() + self.timeout_secs,
        }

    def _has_other(self, name: str) -> bool:
        return any(name in records.names() for _, records in _places(self.registry))

    def _versions_of(self, name: str) -> tuple[Found, Found]:
        """Return (the version that waits for a name, the previous version)."""
        waiting, before = (_found(part, records, name) for part, records in _places(self.registry))
        return waiting, before


def _why_it_failed(view: LifecycleView, timeout_secs: float) -> str:
    """Return why a version on trial is rolled back."""
    if view.trial.repeated is not None:
        return f"it failed {SAME_ERRORS} times in a row at its start: {_cause(view.trial.repeated)}"
    if is_up(view):
        return why_bad(view.trial.evidence)
    return f"it was not up within {timeout_secs:g} s of taking over; {_what_is_missing(view)}"


def _is_being_prepared(view: LifecycleView) -> bool:
    reports = map(view.report_of, view.workers)
    return any(report is not None and report.waits for report in reports)


def _what_is_missing(view: LifecycleView) -> str:
    """Return which workers are not up, and the reason, if a worker or its host has reported one."""
    if not view.workers:
        return "there was no slot for it"
    reports = {placement.worker: view.report_of(placement) for placement in view.workers}
    unopened = [worker for worker, report in reports.items() if report is None or not report.opened]
    events = (report.fact for worker in unopened if (report := reports[worker]) is not None)
    cause = next((f"; {_cause(event)}" for event in events if event is not None), "")
    return f"its workers {', '.join(unopened) or '(none)'} had not opened their tasks{cause}"


def _cause(event: Event) -> str:
    """Return the sentence for an event of a version that is rolled back, in one line: its worker is not started again."""
    return sentence(subject(event), named=False)
