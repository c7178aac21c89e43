"""Matches the rows in a snapshot with the fields that their streams have now, by name.

Another version of a topology may have other fields, or the same in another order. So a snapshot says which fields its rows
have.

| rows | whose stream has now | become |
|---|---|---|
| on their way, held, parked, to be emitted again | these fields in another order, or fewer | their values, in this order |
| the same | a field that they lack | nothing: `StateError` names component, stream and fields |
| dead letters that are not shown yet | other fields | dead letters with the fields that they had |

Snapshots of earlier releases do not say it: their rows are matched by position. So are rows of a stream that is gone: who gets
them says so.
Must not know: tasks, files, which versions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from squall.field_names import missing_fields, of_which_no, positions_by_name
from squall.unreadable import loads
from topology_api import StateError, Topology
from topology_api.packing import dumps_by_value
from worker.epochs.after_commit import LETTERS, EpochOutcome
from worker.epochs.records import component_of
from worker.epochs.snapshot_files import TaskSnapshot
from worker.tasks.fitting import ANOTHER_PATH
from worker.tasks.parked_tuples import fields_of

#: (component, stream) -> the names of its fields.
FieldsOf = Mapping[tuple[str, str], tuple[str, ...]]
Row = tuple[Any, ...]


def streams_of(topology: Topology, component: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the fields of all streams that a component reads or writes."""
    spec = topology.component(component)
    own = {(component, stream): tuple(output.fields) for stream, output in spec.outputs.items()}
    inputs = {
        (each.source, each.stream): tuple(topology.component(each.source).outputs[each.stream].fields)
        for each in spec.inputs
    }
    return inputs | own


def match_fields(snapshot: TaskSnapshot, topology: Topology) -> None:
    """Change the rows of a snapshot into those of now. Raises StateError for rows that lack a field."""
    if not snapshot.fields:
        return
    now = streams_of(topology, component_of(snapshot.task))
    before = {(component, stream): tuple(names) for component, stream, names in snapshot.fields}
    changed = {key: names for key, names in before.items() if now.get(key, names) != names}
    if changed:
        RowsOfNow(snapshot, changed, now).match()
        snapshot.fields = [(*key, list(now.get(key, names))) for key, names in before.items()]


class RowsOfNow:
    """Changes the rows of one snapshot. `changed`: the streams whose fields are others now, with those that they had."""

    def __init__(self, snapshot: TaskSnapshot, changed: FieldsOf, now: FieldsOf) -> None:
        self.snapshot, self.changed, self.now = snapshot, changed, now

    def match(self) -> None:
        """Change all of them. Raises StateError."""
        snapshot, own = self.snapshot, component_of(self.snapshot.task)
        snapshot.outboxes = [
            (target, stream, [self.packed(own, stream, rows[0])])
            for target, stream, rows in snapshot.outboxes
        ]
        snapshot.held = [self.held(each) for each in snapshot.held]
        snapshot.recorded = [(source, self.held(each)) for source, each in snapshot.recorded]
        snapshot.parked = [
            (self.parked(item), failures, seconds) for item, failures, seconds in snapshot.parked
        ]
        snapshot.again = [(message_id, self.again(own, packed)) for message_id, packed in snapshot.again]
        snapshot.outcomes = [self.outcome(each) for each in snapshot.outcomes]

    def change(self, component: str, stream: str) -> Callable[[Row], Row] | None:
        """Return what makes a row of now from one of a stream; None: it stays as it is. Raises StateError."""
        names = self.changed.get((component, stream))
        if names is None:
            return None
        wanted = self.now[component, stream]
        if missing := missing_fields(names, wanted):
            raise StateError(
                f"{self.snapshot.task} has tuples of stream {stream!r} of component {component!r} with the fields "
                f"({', '.join(names)}), and the stream has other fields now ({', '.join(wanted)}), of which these tuples have "
                f"no {of_which_no(missing)}: {ANOTHER_PATH}"
            )
        positions = positions_by_name(names, wanted)
        return lambda row: tuple(row[at] for at in positions)

    def packed(self, component: str, stream: str, packed: bytes) -> bytes:
        """Return pickled rows of a stream."""
        made = self.change(component, stream)
        return packed if made is None else dumps_by_value(list(map(made, loads(packed)[0])), 5)

    def held(self, item: list[Any]) -> list[Any]:
        """Return tuples in the hands of a task: component, task, stream, whether they are awaited, their rows."""
        *where, packed = item
        return [*where, self.packed(where[0], where[2], packed)]

    def parked(self, item: list[Any]) -> list[Any]:
        """Return a parked tuple: component, task, stream, its row."""
        component, task, stream, packed, *more = item
        made = self.change(component, stream)
        if made is None:
            return item
        return [component, task, stream, dumps_by_value(made(loads(packed)[0]), 5), *more]

    def again(self, own: str, packed: bytes) -> bytes:
        """Return what a spout emits again."""
        found = []
        for message_id, (stream, task, row) in loads(packed)[0]:
            made = self.change(own, stream)
            found.append((message_id, (stream, task, row if made is None else made(row))))
        return dumps_by_value(found, 5)

    def outcome(self, outcome: EpochOutcome) -> EpochOutcome:
        """Return an outcome: dead letters say their fields."""
        if outcome.kind != LETTERS:
            return outcome
        letters = []
        for letter in outcome.value:
            item = letter["item"]
            names = self.changed.get((item[0], item[2]))
            if names is not None and not fields_of(item):
                letter = {**letter, "item": [*item, list(names)]}
            letters.append(letter)
        return structs.replace(outcome, value=letters)
