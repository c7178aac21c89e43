"""Replacement: a new version takes over the name of a topology, and the version before comes back if it does not run.

The new version waits at /replacements/<name> while the old one drains (state REPLACING) and its workers stop. Then the old
record moves to /replaced/<name>, and the new one takes the name, with `replaces` and a deadline, and is placed. It has
proved that it runs when every worker has opened its tasks; then the old version is removed. If it fails, or is not up by its
deadline, its workers stop and the old record gets the name back, in the state that it had before.

Each step follows from the store alone, and takes effect with one write, so another Nimbus continues wherever one died.
Nothing is cleaned up on the way: what belongs to a version without a record is swept with all other orphans.

| in the store | step |
|---|---|
| a version waits for a topology that runs or has ended | `begin`: REPLACING |
| REPLACING, drained or too late | `withdraw`: the workers stop |
| REPLACING, and nothing of it runs | `take_over`: the name passes to the version that waits |
| REPLACING, and no version waits | `restore`: the state before |
| the version that waits has the name, or the name is KILLED | `drop_waiting` |
| a version on trial is up, or has ended | `prove` |
| hosts still prepare what a version on trial needs | `postpone` its deadline |
| a version on trial is not up by its deadline | `fail` |
| a version on trial has FAILED and nothing of it runs | `roll_back`: the version before gets the name back |
| the version before cannot come back any more | `drop_before` |
| a version that cannot be read waits, or is the one before | `report`: an event says so |

A version that cannot be read stays as it is, with all that belongs to it, until an operator repairs or kills it. If it
waits, it does not count until then; if it is the one before, nothing is replaced, and a version that FAILED on trial waits
for it.
Must not know: slots, who asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from nimbus.lifecycle.assigning import Assigner
from nimbus.lifecycle.notes import has_event, with_events
from nimbus.lifecycle.progress import LifecycleView, drained_or_late, is_gone, is_up
from nimbus.lifecycle.states import (
    ACTIVE,
    FAILED,
    INACTIVE,
    KILLED,
    REPLACING,
    IllegalTransition,
    allowed_events,
    step,
)
from nimbus.lifecycle.transition import forget_drains, message_timeout, transition
from squall.cluster.records import BadRecord, TopologyRecord
from squall.cluster.registry import Registry
from squall.reports.event_text import sentence
from squall.reports.events import Event
from squall.values import TopologyState

_log = logging.getLogger(__name__)

#: The events that a topology on trial takes.
_ON_TRIAL: Final = ("activate", "deactivate", "kill")


class NotProved(IllegalTransition):
    """The topology has just replaced its earlier version and is on trial. `secs`: until it is rolled back."""

    def __init__(self, record: TopologyRecord, event: str, now: float) -> None:
        super().__init__(record.state, event, record.name)
        self.secs = None if record.until is None else max(0.0, record.until - now)

    def __str__(self) -> str:
        cannot = f"cannot {self.event} topology {self.name!r}: it has just replaced the version before"
        if self.state == FAILED:
            cannot += " and failed; it is rolled back when its workers are gone: try again then"
        else:
            when = "" if self.secs is None else f" in {self.secs:.0f} s"
            cannot += (
                f" and has to prove that it runs; unless its workers are up before, it is rolled back{when}: try again when it"
                " is up, or rolled back"
            )
        return f"{cannot} (a kill would remove the version before as well)"


class ReplacementWaits(IllegalTransition):
    """Another version is already waiting for the name."""

    def __str__(self) -> str:
        return f"another version is already waiting to replace topology {self.name!r}: wait until it has, or kill it"


class UnreadableVersion(IllegalTransition):
    """A version of the topology in the store cannot be read."""

    def __init__(self, record: TopologyRecord, unread: Unread) -> None:
        super().__init__(record.state, "replace", record.name)
        self.unread = unread

    def __str__(self) -> str:
        return f"cannot replace topology {self.name!r}: {self.unread}"


@dataclass(frozen=True)
class Unread:
    """A version that cannot be read: the "replacement", or the "replaced" one."""

    part: str
    reason: str

    @property
    def event(self) -> Event:
        """The event that tells users."""
        return Event("unreadable", part=self.part, error=self.reason)

    def __str__(self) -> str:
        return sentence(self.event)


Found = TopologyRecord | Unread | None
"""The version that waits, or the one before."""


def check_proved(record: TopologyRecord, event: str, now: float) -> None:
    """Raise `NotProved` for an event that a topology on trial does not take. `now`: seconds since 1970."""
    if is_on_trial(record) and event not in _ON_TRIAL:
        raise NotProved(record, event, now)


def is_on_trial(record: TopologyRecord) -> bool:
    """Whether the version before comes back unless the workers of this one come up."""
    return record.replaces is not None and record.state in (ACTIVE, INACTIVE)


def step_due(view: LifecycleView, waiting: Found, before: Found, now: float) -> str | None:
    """Return the step of the table above that is due, or None."""
    record = view.record
    if any(isinstance(each, Unread) and not has_event(record, each.event) for each in (waiting, before)):
        return "report"
    if isinstance(waiting, TopologyRecord):
        found = _while_waiting(view, waiting, before, now)
    elif record.state == REPLACING:
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
    if waiting.id == record.id or record.state == KILLED:
        return "drop_waiting"
    if record.state == REPLACING:
        if view.assignment is not None:
            return "withdraw" if drained_or_late(view, now) else None
        return "take_over" if is_gone(view) else None
    if "replace" not in allowed_events(record.state) or isinstance(before, Unread):
        return None  # it is being rebalanced and is replaced afterwards; or the version before would be overwritten
    return "begin" if record.replaces is None else "drop_waiting"


def _while_proving(view: LifecycleView, before: Found, now: float) -> str | None:
    record = view.record
    if record.state == FAILED and before is not None:
        return "roll_back" if is_gone(view) and isinstance(before, TopologyRecord) else None
    if record.state not in (ACTIVE, INACTIVE) or is_up(view):
        return "prove"
    if record.deadline is not None and record.wait is not None and _is_being_prepared(view):
        # At least half of the time remains for the workers when everything is prepared.
        return "postpone" if now >= record.deadline - record.wait / 2 else None
    return "fail" if record.deadline is None or now >= record.deadline else None


def _may_come_back(record: TopologyRecord, before: TopologyRecord) -> bool:
    return record.replaces == before.id or (record.id == before.id and record.state == REPLACING)


class Replacements:
    """Takes the steps of replacements."""

    def __init__(
        self,
        registry: Registry,
        assigner: Assigner,
        timeout_secs: float,
        wall_clock: Callable[[], float],
    ) -> None:
        """`timeout_secs`: for a version to prove that it runs; `wall_clock`: gives seconds since 1970."""
        self._registry = registry
        self._assigner = assigner
        self._timeout = timeout_secs
        self._wall_clock = wall_clock
        #: Names without a topology whose versions cannot be read, as far as they were logged.
        self._logged: set[str] = set()

    def check(self, record: TopologyRecord) -> None:
        """Raise if the topology that has the name cannot be replaced now."""
        check_proved(record, "replace", self._wall_clock())
        if (
            record.state == FAILED and record.replaces is not None
        ):  # a version that waits now would be dropped
            raise NotProved(record, "replace", self._wall_clock())
        step(record.state, "replace", record.previous, record.name)
        waiting, before = self._waiting(record.name), self._before(record.name)
        for version in (waiting, before):
            if isinstance(version, Unread):
                raise UnreadableVersion(record, version)
        if waiting is not None:
            raise ReplacementWaits(record.state, "replace", record.name)

    def wait_for_name(self, record: TopologyRecord) -> None:
        """Let a version wait for its name; `advance` does the rest. `record.wait`: seconds for the drain of the one before."""
        self._registry.replacements.create(record)

    def advance(self, view: LifecycleView, now: float) -> bool:
        """Take the step that is due; return whether there was one."""
        name = view.record.name
        if view.record.state != REPLACING and view.record.replaces is None and not self._has_other(name):
            return False
        waiting, before = self._waiting(name), self._before(name)
        due = step_due(view, waiting, before, now)
        if due is not None:
            self._take(due, view, waiting, before, now)
        return due is not None

    def drop(self, name: str) -> bool:
        """Remove the versions that wait for a name or may come back to it; return whether there were any."""
        has_other = self._has_other(name)
        if has_other:
            self._registry.replacements.drop(name)
            self._registry.replaced.drop(name)
        return has_other

    def ids(self) -> set[str]:
        """Return the ids of all versions that wait or may come back."""
        return {record.id for record in self.records()}

    def records(self) -> list[TopologyRecord]:
        """Return the versions that wait or may come back and can be read."""
        return [version for _, version in self._all() if isinstance(version, TopologyRecord)]

    def unread(self) -> set[str]:
        """Return the names of versions that cannot be read."""
        return {name for name, version in self._all() if isinstance(version, Unread)}

    def drop_nameless(self, names: Collection[str]) -> None:
        """Remove the versions of names that no topology has, except those that cannot be read."""
        nameless = [(name, version) for name, version in self._all() if name not in names]
        unread = {name for name, version in nameless if isinstance(version, Unread)}
        for name in sorted(unread - self._logged):
            _log.error(
                "%s: no topology has this name, and a version of it cannot be read: `squall kill` removes it",
                name,
            )
        self._logged = unread
        for name in sorted({name for name, _ in nameless} - unread):
            _log.warning(
                "%s: a version that waited for this name, or had it before, is dropped: no topology has it",
                name,
            )
            self.drop(name)

    def _take(self, due: str, view: LifecycleView, waiting: Found, before: Found, now: float) -> None:
        record, registry = view.record, self._registry
        if due == "drop_waiting":
            registry.replacements.drop(record.name)
        elif due == "drop_before":
            registry.replaced.drop(record.name)
        elif due == "withdraw":
            self._assigner.withdraw(view)
        elif due == "prove":
            registry.topologies.update(
                record, replace(record, replaces=None, deadline=None, wait=None, until=None)
            )
            _log.info("%s: %s runs, the version before is dropped", record.name, record.id)
        elif due == "postpone":
            registry.topologies.update(record, replace(record, **self._time_from(now)))
        elif due == "fail":
            error = f"it was not up within {self._timeout:g} s of taking over; {_what_is_missing(view)}"
            transition(registry, record, "crash", self._wall_clock(), error=error)
        elif due == "restore":
            self._restore(view)
        elif due == "report":
            self._report_unread(record, (waiting, before))
        elif due == "begin" and isinstance(waiting, TopologyRecord):
            wait = message_timeout(record) if waiting.wait is None else waiting.wait
            # What a topology FAILED of stays known, for the case that it comes back.
            transition(registry, record, "replace", self._wall_clock(), deadline=now + wait, wait=wait)
        elif due == "take_over" and isinstance(waiting, TopologyRecord):
            self._take_over(record, waiting, now)
        elif due == "roll_back" and isinstance(before, TopologyRecord):
            self._roll_back(record, before)

    def _report_unread(self, record: TopologyRecord, found: Iterable[Found]) -> None:
        unread = (each.event for each in found if isinstance(each, Unread))
        events = [event for event in unread if not has_event(record, event)]
        self._registry.topologies.update(record, with_events(record, events, self._wall_clock()))
        for event in events:
            _log.error("%s: %s", record.name, sentence(event))

    def _take_over(self, record: TopologyRecord, waiting: TopologyRecord, now: float) -> None:
        self._registry.replaced.put(record)
        becomes = replace(waiting, replaces=record.id, since=self._wall_clock(), **self._time_from(now))
        self._registry.topologies.update(record, becomes)
        _log.info("%s: %s takes over from %s", record.name, waiting.id, record.id)
        self._registry.replacements.drop(record.name)

    def _roll_back(self, record: TopologyRecord, before: TopologyRecord) -> None:
        event = Event("rolled_back", version=record.id, successor=before.id, error=str(record.error))
        self._registry.topologies.update(record, self._restored(before, event))
        _log.warning("%s: %s", record.name, sentence(event))
        self._registry.replaced.drop(record.name)

    def _restore(self, view: LifecycleView) -> None:
        """Go back to the state before, since no version waits any more, and forget the drain."""
        record = view.record
        forget_drains(self._registry, record.id, view.workers)
        self._registry.topologies.update(
            record, self._restored(record, Event("replacement_gone", version=record.id))
        )
        _log.warning("%s: no version waits to replace it any more", record.name)

    def _restored(self, record: TopologyRecord, event: Event) -> TopologyRecord:
        time = self._wall_clock()
        back = replace(
            record,
            state=TopologyState[step(record.state, "restore", record.previous, record.name)],
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
            "deadline": now + self._timeout,
            "wait": self._timeout,
            "until": self._wall_clock() + self._timeout,
        }

    def _has_other(self, name: str) -> bool:
        return name in self._registry.replacements.names() or name in self._registry.replaced.names()

    def _all(self) -> Iterator[tuple[str, Found]]:
        """Yield each name with the version that waits for it, or may come back to it."""
        for name in self._registry.replacements.names():
            yield name, self._waiting(name)
        for name in self._registry.replaced.names():
            yield name, self._before(name)

    def _waiting(self, name: str) -> Found:
        try:
            return self._registry.replacements.get(name)
        except BadRecord as error:
            return Unread("replacement", str(error))

    def _before(self, name: str) -> Found:
        try:
            return self._registry.replaced.get(name)
        except BadRecord as error:
            return Unread("replaced", str(error))


def _is_being_prepared(view: LifecycleView) -> bool:
    reports = map(view.report_of, view.workers)
    return any(report is not None and report.waits for report in reports)


def _what_is_missing(view: LifecycleView) -> str:
    """Return which workers are not up, and why, if one of these or its host has reported it."""
    if not view.workers:
        return "there was no slot for it"
    reports = {placement.worker: view.report_of(placement) for placement in view.workers}
    unopened = [worker for worker, report in reports.items() if report is None or not report.opened]
    events = (report.fact for worker in unopened if (report := reports[worker]) is not None)
    cause = next((f"; {sentence(event)}" for event in events if event is not None), "")
    return f"its workers {', '.join(unopened) or '(none)'} had not opened their tasks{cause}"
