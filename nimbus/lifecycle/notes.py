"""What is kept of what was said about a topology: the latest notes, each with its time; values in, values out.

A note that says again what an earlier one of the same worker said takes its place. What a worker waits for is forgotten when
it is started; once it has opened its tasks, none of its notes promises a start any more.
Must not know: the store, who shows notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from squall.cluster.records import Note, Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.said import said_key, when_over

NOTES: Final = 5
"""How many of the latest notes about it a topology's record keeps."""


def with_news(
    record: TopologyRecord, report: WorkerReport, last: WorkerReport | None, time: float
) -> TopologyRecord:
    """The record with what a report adds to what is known of the topology: finished spouts, a note. `time`: of the calendar."""
    earlier = _renumbered_since(record, report)
    tasks = {task for task, component, _ in record.tasks if component not in earlier}
    finished = (*record.finished, *sorted(tasks.intersection(report.finished).difference(record.finished)))
    notes = record.notes
    if not report.waits:
        notes = tuple(note for note in notes if not (note.waits and note.worker == report.worker))
    if report.note is not None and (last is None or last.note != report.note):
        notes = _added(notes, Note(report.note, time, report.worker, report.waits))
    if report.opened:
        notes = tuple(_over(note) if note.worker == report.worker else note for note in notes)
    return replace(record, finished=finished, notes=notes)


def _renumbered_since(record: TopologyRecord, report: WorkerReport) -> set[str]:
    """Components whose number of tasks has changed since what a late report speaks of."""
    return {component for component, last in record.renumbered.items() if 0 < report.version <= last}


def with_notes(record: TopologyRecord, texts: Iterable[str], time: float) -> TopologyRecord:
    """The record with what is said about the topology itself."""
    notes = record.notes
    for text in texts:
        notes = _added(notes, Note(text, time))
    return replace(record, notes=notes)


def notes_on_lost_hosts(
    workers: Iterable[Placement], given_up: Callable[[str], SupervisorRecord | None], secs: float
) -> list[str]:
    """What is said of the workers of hosts that were given up after so many seconds of silence, a note for each host."""
    lost: dict[str, list[str]] = {}
    for placement in workers:
        supervisor = given_up(placement.supervisor)
        if supervisor is not None:
            lost.setdefault(supervisor.host, []).append(placement.worker)
    return [
        f"{host} was given up: no sign of life for {secs:g} s; what ran there ({', '.join(names)}) is placed anew"
        for host, names in lost.items()
    ]


def standing(notes: Iterable[Note], workers: Iterable[str]) -> tuple[Note, ...]:
    """The notes without those of what workers wait for that the topology does not have any more."""
    there = set(workers)
    return tuple(note for note in notes if not note.waits or note.worker in there)


def _added(notes: tuple[Note, ...], note: Note) -> tuple[Note, ...]:
    key = said_key(note.text)
    others = (each for each in notes if each.worker != note.worker or said_key(each.text) != key)
    return (*others, note)[-NOTES:]


def _over(note: Note) -> Note:
    text = when_over(note.text)
    return note if text == note.text else replace(note, text=text)
