"""How another version takes over the name of a topology, and how the one before comes back when it does not run.

The new version waits at /replacements/<name> while the old one drains (state REPLACING) and its workers go. Then the old
record moves to /replaced/<name>, the new one takes the name, with `replaces` and a deadline, and is placed. It has proved
that it runs when every worker has opened its tasks; then the old version goes for good. If it fails, or is not up by its
deadline, its workers go and the old record has the name again, in the state that it had before.

Every step is found from what stands in the store, and each is one write that matters, so a Nimbus that dies anywhere is
followed by one that goes on. Nothing is cleaned up on the way: what belongs to a version that has no record any more is
swept with all other orphans.

| what stands in the store | step |
|---|---|
| a version waits for a topology that runs or has ended | `begin`: REPLACING |
| REPLACING, drained or too late | `withdraw`: the workers go |
| REPLACING, nothing runs any more | `take over`: the name passes to the version that waits |
| REPLACING, and no version waits | `restore`: the state before |
| the version that waits has the name, or the name is KILLED | `drop waiting` |
| a version that is to prove itself is up, or has ended | `prove` |
| its hosts still prepare what it needs | `postpone` its deadline |
| it is not up by its deadline | `fail` |
| it has FAILED and nothing of it runs any more | `roll back`: the version before has the name again |
| a version before that nobody can come back to | `drop before` |
| a version that cannot be read waits, or is the one before | `tell`: the topology's notes say so |

A version that cannot be read stays as it is, with all that belongs to it, until somebody repairs or kills it: nobody knows what
it is. One that waits is taken for none as long as that lasts; while the one before cannot be read, nothing is replaced, and a
version that FAILED on trial waits for it.
Must not know: slots, who asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from nimbus.assigning import Assigner
from nimbus.lifecycle import (
    ACTIVE,
    FAILED,
    INACTIVE,
    KILLED,
    REPLACING,
    IllegalTransition,
    allowed_events,
    step,
)
from nimbus.notes import with_notes
from nimbus.progress import View, drained_or_late, is_gone, is_up
from nimbus.stepping import take_step
from squall.cluster.records import BadRecord, TopologyRecord
from squall.cluster.registry import Registry
from squall.status import ROLLED_BACK

_log = logging.getLogger(__name__)

#: The events that a topology takes while it is to prove that it runs.
_WHILE_PROVING: Final = ("activate", "deactivate", "kill")


class NotProved(IllegalTransition):
    """A command to a topology that has just replaced its earlier version. `secs`: until its roll back."""

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
                " and is to prove that it runs; unless its workers are up before, it is rolled back"
                f"{when}: try again when it is up, or rolled back"
            )
        return f"{cannot} (a kill would remove the version before as well)"


class ReplacementWaits(IllegalTransition):
    """Another version waits for the name already."""

    def __str__(self) -> str:
        return (
            f"another version waits to replace topology {self.name!r} already: wait until it has, or kill it"
        )


class UnreadableVersion(IllegalTransition):
    """A version of the topology stands in the store that cannot be read."""

    def __init__(self, record: TopologyRecord, unread: Unread) -> None:
        super().__init__(record.state, "replace", record.name)
        self.unread = unread

    def __str__(self) -> str:
        return f"cannot replace topology {self.name!r}: {self.unread}"


@dataclass(frozen=True)
class Unread:
    """A version that cannot be read."""

    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what} cannot be read ({self.reason}): repair or remove that value"


Found = TopologyRecord | Unread | None
"""What stands where a version waits, or where the one before does."""


def check_proved(record: TopologyRecord, event: str, now: float) -> None:
    """`NotProved` for an event that would disturb a topology's proof that it runs; `now`: what users are told the time by."""
    if is_on_trial(record) and event not in _WHILE_PROVING:
        raise NotProved(record, event, now)


def is_on_trial(record: TopologyRecord) -> bool:
    """Whether it has the name of a version that comes back when its workers do not come up."""
    return record.replaces is not None and record.state in (ACTIVE, INACTIVE)


def step_due(view: View, waiting: Found, before: Found, now: float) -> str | None:
    """The step of the table above that is due."""
    record = view.record
    if any(isinstance(each, Unread) and not _is_told(record, each) for each in (waiting, before)):
        return "tell"
    if isinstance(waiting, TopologyRecord):
        found = _while_waiting(view, waiting, before, now)
    elif record.state == REPLACING:
        found = "restore"
    elif record.replaces is not None:
        found = _while_proving(view, before, now)
    else:
        found = None
    if found is None and isinstance(before, TopologyRecord) and not _may_come_back(record, before):
        found = "drop before"
    return found


def _while_waiting(view: View, waiting: TopologyRecord, before: Found, now: float) -> str | None:
    record = view.record
    if waiting.id == record.id or record.state == KILLED:
        return "drop waiting"
    if record.state == REPLACING:
        if view.assignment is not None:
            return "withdraw" if drained_or_late(view, now) else None
        return "take over" if is_gone(view) else None
    if "replace" not in allowed_events(record.state) or isinstance(before, Unread):
        return None  # it is being rebalanced, and will take it afterwards; or what stands there would be written over
    return "begin" if record.replaces is None else "drop waiting"


def _while_proving(view: View, before: Found, now: float) -> str | None:
    record = view.record
    if record.state == FAILED and before is not None:
        return "roll back" if is_gone(view) and isinstance(before, TopologyRecord) else None
    if record.state not in (ACTIVE, INACTIVE) or is_up(view):
        return "prove"
    if record.deadline is not None and record.wait is not None and _is_being_prepared(view):
        # Half of the time at least is left for the workers when everything is prepared.
        return "postpone" if now >= record.deadline - record.wait / 2 else None
    return "fail" if record.deadline is None or now >= record.deadline else None


def _may_come_back(record: TopologyRecord, before: TopologyRecord) -> bool:
    return record.replaces == before.id or (record.id == before.id and record.state == REPLACING)


class Replacements:
    """Takes the steps."""

    def __init__(
        self,
        registry: Registry,
        assigner: Assigner,
        timeout_secs: float,
        default_wait: Callable[..., float],
        calendar: Callable[[], float],
    ) -> None:
        """`default_wait` of a record: how long it may drain when nothing else was said; `calendar`: what users are told the
        time by."""
        self._registry = registry
        self._assigner = assigner
        self._timeout = timeout_secs
        self._default_wait = default_wait
        self._calendar = calendar
        #: Names that no topology has, and whose versions cannot be read, that were told of.
        self._told: set[str] = set()

    def check(self, record: TopologyRecord) -> None:
        """Raise when the topology that has the name takes no replacement now."""
        check_proved(record, "replace", self._calendar())
        if record.state == FAILED and record.replaces is not None:
            raise NotProved(record, "replace", self._calendar())  # a version that waits now would be dropped
        step(record.state, "replace", record.previous, record.name)
        waiting, before = self._waiting(record.name), self._before(record.name)
        for found in (waiting, before):
            if isinstance(found, Unread):
                raise UnreadableVersion(record, found)
        if waiting is not None:
            raise ReplacementWaits(record.state, "replace", record.name)

    def wait_for_name(self, record: TopologyRecord) -> None:
        """Have a version wait for its name; `advance` does the rest. `record.wait`: how long the one before may drain."""
        self._registry.create_replacement(record)

    def advance(self, view: View, now: float) -> bool:
        """Take the step that is due; whether there was one."""
        name = view.record.name
        if view.record.state != REPLACING and view.record.replaces is None and not self._has_other(name):
            return False
        waiting, before = self._waiting(name), self._before(name)
        due = step_due(view, waiting, before, now)
        if due is not None:
            self._take(due, view, waiting, before, now)
        return due is not None

    def drop(self, name: str) -> bool:
        """A topology goes: no version waits for its name, and none comes back; whether any did."""
        there = self._has_other(name)
        if there:
            self._registry.remove_replacement(name)
            self._registry.remove_replaced(name)
        return there

    def ids(self) -> set[str]:
        """The ids of all versions that wait or may come back."""
        return {record.id for record in self.records()}

    def records(self) -> list[TopologyRecord]:
        """The versions that wait or may come back, as far as they can be read."""
        return [found for _, found in self._all() if isinstance(found, TopologyRecord)]

    def unread(self) -> set[str]:
        """The names for which a version stands that cannot be read."""
        return {name for name, found in self._all() if isinstance(found, Unread)}

    def drop_nameless(self, names: Collection[str]) -> None:
        """Drop the versions of names that no topology has."""
        nameless = [(name, found) for name, found in self._all() if name not in names]
        unread = {name for name, found in nameless if isinstance(found, Unread)}
        for name in sorted(unread - self._told):
            _log.error(
                "%s: no topology has this name, and a version of it cannot be read: `squall kill` removes it",
                name,
            )
        self._told = unread
        for name in sorted({name for name, _ in nameless} - unread):
            _log.warning(
                "%s: a version that waited for this name, or had it before, is dropped: nobody has it", name
            )
            self.drop(name)

    def _take(self, due: str, view: View, waiting: Found, before: Found, now: float) -> None:
        record, registry = view.record, self._registry
        if due == "drop waiting":
            registry.remove_replacement(record.name)
        elif due == "drop before":
            registry.remove_replaced(record.name)
        elif due == "withdraw":
            self._assigner.withdraw(view)
        elif due == "prove":
            registry.update_topology(
                record, replace(record, replaces=None, deadline=None, wait=None, until=None)
            )
            _log.info("%s: %s runs, the version before is dropped", record.name, record.id)
        elif due == "postpone":
            registry.update_topology(record, replace(record, **self._time_from(now)))
        elif due == "fail":
            error = f"it was not up within {self._timeout:g} s of taking over; {_what_is_missing(view)}"
            take_step(registry, record, "crash", self._calendar(), error=error)
        elif due == "restore":
            self._restore(view)
        elif due == "tell":
            self._tell(record, (waiting, before))
        elif due == "begin" and isinstance(waiting, TopologyRecord):
            wait = self._default_wait(record) if waiting.wait is None else waiting.wait
            # What a topology FAILED of stays known, for the case that it comes back.
            take_step(registry, record, "replace", self._calendar(), deadline=now + wait, wait=wait)
        elif due == "take over" and isinstance(waiting, TopologyRecord):
            self._take_over(record, waiting, now)
        elif due == "roll back" and isinstance(before, TopologyRecord):
            self._roll_back(record, before)

    def _tell(self, record: TopologyRecord, found: Iterable[Found]) -> None:
        notes = [str(each) for each in found if isinstance(each, Unread) and not _is_told(record, each)]
        self._registry.update_topology(record, with_notes(record, notes, self._calendar()))
        for note in notes:
            _log.error("%s: %s", record.name, note)

    def _take_over(self, record: TopologyRecord, waiting: TopologyRecord, now: float) -> None:
        self._registry.save_replaced(record)
        becomes = replace(waiting, replaces=record.id, since=self._calendar(), **self._time_from(now))
        self._registry.update_topology(record, becomes)
        _log.info("%s: %s takes over from %s", record.name, waiting.id, record.id)
        self._registry.remove_replacement(record.name)

    def _roll_back(self, record: TopologyRecord, before: TopologyRecord) -> None:
        note = f"the version {record.id} {ROLLED_BACK}, and {before.id} has the name again: {record.error}"
        back = self._restored(before, note)
        self._registry.update_topology(record, back)
        _log.warning("%s: %s", record.name, note)
        self._registry.remove_replaced(record.name)

    def _restore(self, view: View) -> None:
        """Nothing waits any more: back to the state before, with what the workers drained for forgotten."""
        record = view.record
        for placement in view.workers:
            report = self._registry.report(record.id, placement.worker)
            if report is not None and report.drained:
                self._registry.save_report(record.id, replace(report, drained=False))
        self._registry.update_topology(
            record, self._restored(record, f"the version that was to replace {record.id} is gone")
        )
        _log.warning("%s: no version waits to replace it any more", record.name)

    def _restored(self, record: TopologyRecord, note: str) -> TopologyRecord:
        time = self._calendar()
        back = replace(
            record,
            state=step(record.state, "restore", record.previous, record.name),
            previous=None,
            deadline=None,
            wait=None,
            since=time,
            until=None,
        )
        return with_notes(back, [note], time)

    def _time_from(self, now: float) -> dict[str, Any]:
        """The fields that say how long a version has to prove that it runs."""
        return {
            "deadline": now + self._timeout,
            "wait": self._timeout,
            "until": self._calendar() + self._timeout,
        }

    def _has_other(self, name: str) -> bool:
        return name in self._registry.replacements() or name in self._registry.all_replaced()

    def _all(self) -> Iterator[tuple[str, Found]]:
        """Every name with what waits for it, or may come back to it."""
        for name in self._registry.replacements():
            yield name, self._waiting(name)
        for name in self._registry.all_replaced():
            yield name, self._before(name)

    def _waiting(self, name: str) -> Found:
        try:
            return self._registry.replacement(name)
        except BadRecord as error:
            return Unread("the version that is to replace it", str(error))

    def _before(self, name: str) -> Found:
        try:
            return self._registry.replaced(name)
        except BadRecord as error:
            return Unread("the version before", str(error))


def _is_being_prepared(view: View) -> bool:
    reports = map(view.report_of, view.workers)
    return any(report is not None and report.waits for report in reports)


def _is_told(record: TopologyRecord, unread: Unread) -> bool:
    return any(note.text == str(unread) for note in record.notes)


def _what_is_missing(view: View) -> str:
    """Which workers are not up, and why as far as they, or their hosts, have said it: not what was said of others."""
    if not view.workers:
        return "there was no slot for it"
    reports = {placement.worker: view.report_of(placement) for placement in view.workers}
    unopened = [worker for worker, report in reports.items() if report is None or not report.opened]
    said = (report.note for worker in unopened if (report := reports[worker]) is not None)
    cause = next((f"; {note}" for note in said if note is not None), "")
    return f"its workers {', '.join(unopened) or '(none)'} had not opened their tasks{cause}"
