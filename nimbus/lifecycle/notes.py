"""Decides which events of a topology are kept: the latest events, each with its time. Pure functions over values.

An event replaces an earlier one with the same subject (`squall.reports.events.subject`). A worker's "waits" event is dropped
when the worker is started or has left. Once the worker has opened its tasks, its events that announce a retry are marked as
over.
Must not know: the store, the wording and the display of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from squall.cluster.records import Note, Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.reports.event_text import sentence
from squall.reports.events import Event, subject

#: The most events that a topology's record keeps.
NOTES: Final = 5


def with_news(
    record: TopologyRecord, report: WorkerReport, last: WorkerReport | None, time: float
) -> TopologyRecord:
    """Add the finished spouts and the event of a report to a record; return the new record. `time`: seconds since 1970."""
    # Components whose number of tasks has changed since the assignment to which a late report refers.
    earlier = {component for component, since in record.renumbered.items() if 0 < report.version <= since}
    tasks = {task for task, component, _ in record.tasks if component not in earlier}
    finished = (*record.finished, *sorted(tasks.intersection(report.finished).difference(record.finished)))
    notes = record.notes
    if not report.waits:
        notes = tuple(note for note in notes if not (note.waits and note.worker == report.worker))
    event = report.fact
    if event is not None and (last is None or last.fact != event):
        notes = _added(notes, _note(event, time, report.worker, report.waits))
    if report.opened:
        notes = tuple(_over(note) if note.worker == report.worker else note for note in notes)
    return replace(record, finished=finished, notes=notes)


def with_events(record: TopologyRecord, events: Iterable[Event], time: float) -> TopologyRecord:
    """Add events of the topology itself to a record; return the new record."""
    notes = record.notes
    for event in events:
        notes = _added(notes, _note(event, time))
    return replace(record, notes=notes)


def has_event(record: TopologyRecord, event: Event) -> bool:
    """Return whether the record has an event with the same subject."""
    return any(subject(note.fact) == subject(event) for note in record.notes)


def lost_hosts(
    workers: Iterable[Placement], given_up: Callable[[str], SupervisorRecord | None], secs: float
) -> list[Event]:
    """Return an event for each host of these workers whose supervisor was given up after `secs` seconds of silence."""
    lost: dict[str, list[str]] = {}
    for placement in workers:
        supervisor = given_up(placement.supervisor)
        if supervisor is not None:
            lost.setdefault(supervisor.host, []).append(placement.worker)
    return [
        Event("host_lost", host=host, workers=tuple(names), within_secs=secs) for host, names in lost.items()
    ]


def current_events(notes: Iterable[Note], workers: Iterable[str]) -> tuple[Event, ...]:
    """Return the events, except "waits" events of workers that the topology no longer has."""
    present = set(workers)
    return tuple(note.fact for note in notes if not note.waits or note.worker in present)


def _note(event: Event, time: float, worker: str = "", waits: bool = False) -> Note:
    event = replace(event, time=time)
    return Note(sentence(event), time, worker, waits, event)


def _added(notes: tuple[Note, ...], note: Note) -> tuple[Note, ...]:
    key = subject(note.fact)
    others = (other for other in notes if other.worker != note.worker or subject(other.fact) != key)
    return (*others, note)[-NOTES:]


def _over(note: Note) -> Note:
    if note.event is None or note.event.over or note.event.retry_in_secs is None:
        return note
    event = replace(note.event, over=True)
    return replace(note, text=sentence(event), event=event)
