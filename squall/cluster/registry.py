"""The records of a store, read and written by name.

A `Registry` belongs to one daemon and one thread at a time. It remembers what it read last, which serves
twice: a record that has not changed is not decoded again, and a write carries the version that was read, so
that it fails with `Conflict` (or `Exists`) when somebody else has written since. After a write that failed, whyever,
what was read there is forgotten: nobody knows what stands there before it is read again.

A value that is no record concerns one thing only. A topology whose record (or assignment) cannot be read is left out of
`topologies` and named in `bad`, and `last_workers` says where its workers were; a supervisor stays what it was last known
as, and one that was never read is named in `unread_supervisors`; a Nimbus whose record cannot be read is not there until it
says again that it is; a report that cannot be read was never made, and the next one is written over it.
Must not know: what the records mean, or when one has to change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall.cluster import paths
from squall.cluster.numbering import next_number
from squall.cluster.records import (
    Assignment,
    BadRecord,
    NimbusRecord,
    Placement,
    R,
    Record,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
    decode,
    encode,
)
from squall.cluster.store import Conflict, Store, remove_tree

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    data: bytes
    version: int
    record: Record | None
    """None: the bytes are no record."""
    last: Record | None
    """The record, or the one that was read here last, while there are bytes that are none."""


class Registry:
    """Typed access to the records of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._seen: dict[str, _Seen] = {}
        self._told: set[str] = set()  # paths whose unreadable values were told of
        self._ids: set[str] = set()  # of the topologies that were there when last asked
        #: Name -> why, of the topologies that `topologies` left out when it was last called.
        self.bad: Mapping[str, str] = {}
        #: Ids of the supervisors that `supervisors` left out when it was last called.
        self.unread_supervisors: frozenset[str] = frozenset()

    # Topologies

    def topology(self, name: str) -> TopologyRecord | None:
        """The topology that holds the name."""
        return self._read(TopologyRecord, paths.topology(name))

    def topologies(self) -> list[TopologyRecord]:
        """All topologies that can be read, the oldest submission first; `bad` says what is wrong with the others."""
        names = list(map(paths.unquoted, self.store.children(paths.TOPOLOGIES)))
        self._forget_others(paths.TOPOLOGIES, map(paths.topology, names))
        records: list[TopologyRecord] = []
        bad: dict[str, str] = {}
        for name in names:
            try:
                record = self._whole_topology(name)
            except BadRecord as error:
                bad[name] = str(error)
                continue
            if record is not None:
                records.append(record)
        self.bad = bad
        self._forget_what_belonged({record.id for record in records})
        return sorted(records, key=lambda record: (record.submitted, number_of(record.id)))

    def _whole_topology(self, name: str) -> TopologyRecord | None:
        """A topology's record, when what belongs to it can be read as well."""
        record = self.topology(name)
        if record is not None:
            if record.name != name:
                raise BadRecord(f"{paths.topology(name)} holds the record of {record.name!r}")
            self.assignment(record.id)
            self.leaving(record.id)
        return record

    def create_topology(self, record: TopologyRecord) -> None:
        """Take the name for a new topology; `Exists` when it is taken."""
        path = paths.topology(record.name)
        self._seen.pop(path, None)
        self._write(path, record)

    def update_topology(self, was: TopologyRecord, now: TopologyRecord) -> None:
        """Change the record that was read as `was`; `Conflict` when it is another by now."""
        self._expect(was)
        self._write(paths.topology(was.name), now)

    def remove_topology(self, was: TopologyRecord) -> None:
        """Free the name of the topology that was read as `was`."""
        self._expect(was)
        self._delete(paths.topology(was.name))

    def rebuild_topology(self, record: TopologyRecord) -> None:
        """Write a record over whatever stands at its name: for one that cannot be read."""
        path = paths.topology(record.name)
        self._seen.pop(path, None)
        self.store.put(path, encode(record))

    def drop_unreadable_topology(self, name: str) -> None:
        """Free a name whose record cannot be read."""
        self._seen.pop(paths.topology(name), None)
        self.store.delete(paths.topology(name))

    # Versions that take a name over, or have had it

    def replacement(self, name: str) -> TopologyRecord | None:
        """The version that waits for the drain of the one that has the name."""
        return self._read(TopologyRecord, paths.replacement(name))

    def replacements(self) -> list[str]:
        """The names for which a version waits."""
        return list(map(paths.unquoted, self.store.children(paths.REPLACEMENTS)))

    def create_replacement(self, record: TopologyRecord) -> None:
        """Have a version wait for a name; `Exists` when another one does."""
        path = paths.replacement(record.name)
        self._seen.pop(path, None)
        self._write(path, record)

    def remove_replacement(self, name: str) -> None:
        """No version waits for the name any more, also none that cannot be read."""
        self._seen.pop(paths.replacement(name), None)
        self.store.delete(paths.replacement(name))

    def replaced(self, name: str) -> TopologyRecord | None:
        """The version that had the name before, while it may come back."""
        return self._read(TopologyRecord, paths.replaced(name))

    def all_replaced(self) -> list[str]:
        """The names whose version before may come back."""
        return list(map(paths.unquoted, self.store.children(paths.REPLACED)))

    def save_replaced(self, record: TopologyRecord) -> None:
        """Keep a version for the case that it has to come back."""
        self._seen.pop(paths.replaced(record.name), None)
        self.store.put(paths.replaced(record.name), encode(record))

    def remove_replaced(self, name: str) -> None:
        """The version before does not come back any more."""
        self._seen.pop(paths.replaced(name), None)
        self.store.delete(paths.replaced(name))

    # Everything that belongs to a topology

    def known_ids(self) -> set[str]:
        """The ids of all topologies of which anything but the record stands in the store."""
        return {
            paths.unquoted(name) for above in paths.OF_TOPOLOGIES for name in self.store.children(above)
        } - {paths.OPERATOR}

    def placed_ids(self) -> set[str]:
        """The ids of all topologies that have workers, or such that are to go."""
        found = (*self.store.children(paths.ASSIGNMENTS), *self.store.children(paths.LEAVING))
        return set(map(paths.unquoted, found))

    def remove_all_of(self, topology_id: str) -> None:
        """Drop everything of a topology but its record. What says where its workers are goes last."""
        for above in reversed(paths.OF_TOPOLOGIES):
            top = f"{above}/{paths.quoted(topology_id)}"
            for path in [path for path in self._seen if path == top or path.startswith(top + "/")]:
                self._seen.pop(path, None)
            remove_tree(self.store, top)

    # Assignments, and the workers that were withdrawn

    def assignment(self, topology_id: str) -> Assignment | None:
        """The workers that a topology has."""
        return self._read(Assignment, paths.assignment(topology_id))

    def leaving(self, topology_id: str) -> Assignment | None:
        """The workers that were withdrawn from a topology and are not gone yet."""
        return self._read(Assignment, paths.leaving(topology_id))

    def last_workers(self, topology_id: str) -> tuple[Placement, ...]:
        """The workers of a topology, leaving or not: what cannot be read counts as what it was when it last could be."""
        found = (
            self._last_readable(Assignment, paths.assignment(topology_id)),
            self._last_readable(Assignment, paths.leaving(topology_id)),
        )
        return tuple(placement for each in found if each is not None for placement in each.placements)

    def save_assignment(self, assignment: Assignment) -> None:
        """Write the workers that a topology has; without any, there is no assignment."""
        self._write_or_delete(paths.assignment(assignment.topology_id), assignment)

    def save_leaving(self, leaving: Assignment) -> None:
        """Write which workers are to go; without any, the record goes."""
        self._write_or_delete(paths.leaving(leaving.topology_id), leaving)

    def former(self, topology_id: str) -> Assignment | None:
        """The workers that were withdrawn from a topology last; None too when that cannot be read."""
        return self._readable(Assignment, paths.former(topology_id))

    def save_former(self, former: Assignment) -> None:
        """Write which workers a topology had; the last ones count."""
        self.store.put(paths.former(former.topology_id), encode(former))

    # Reports

    def report(self, topology_id: str, worker: str) -> WorkerReport | None:
        """The last word of a worker; None too when it cannot be read: it will be said again."""
        return self._readable(WorkerReport, paths.report(topology_id, worker))

    def reports(self, topology_id: str) -> dict[str, WorkerReport]:
        """The last word of each worker of a topology."""
        workers = map(paths.unquoted, self.store.children(paths.reports(topology_id)))
        found = {worker: self.report(topology_id, worker) for worker in workers}
        return {worker: report for worker, report in found.items() if report is not None}

    def save_report(self, topology_id: str, report: WorkerReport) -> None:
        """Write what a worker says."""
        self._write(paths.report(topology_id, report.worker), report)

    def remove_report(self, topology_id: str, worker: str) -> None:
        """Forget what a worker said."""
        self._delete(paths.report(topology_id, worker))

    # Supervisors

    def supervisors(self) -> list[SupervisorRecord]:
        """The supervisors that are there, by id. One whose value is damaged is as it was, so that no worker moves for that."""
        ids = list(map(paths.unquoted, self.store.children(paths.SUPERVISORS)))
        self._forget_others(paths.SUPERVISORS, map(paths.supervisor, ids))
        found = {each: self._last_readable(SupervisorRecord, paths.supervisor(each)) for each in ids}
        unread = (each for each, record in found.items() if record is None)
        self.unread_supervisors = frozenset(each for each in unread if paths.supervisor(each) in self._seen)
        return sorted(
            (record for record in found.values() if record is not None), key=lambda record: record.id
        )

    def save_supervisor(self, record: SupervisorRecord) -> None:
        """A supervisor says that it is there; its own last word counts, whatever stood there."""
        self.store.put(paths.supervisor(record.id), encode(record))

    def remove_supervisor(self, supervisor_id: str) -> None:
        """A supervisor goes, and its slots with it."""
        self.store.delete(paths.supervisor(supervisor_id))

    def drained_supervisors(self) -> set[str]:
        """The supervisors that are to get no work, there or not."""
        return set(map(paths.unquoted, self.store.children(paths.DRAINED)))

    def save_drained(self, supervisor_id: str) -> None:
        """A supervisor is to get no work."""
        self.store.put(paths.drained(supervisor_id), b"drained")

    def remove_drained(self, supervisor_id: str) -> None:
        """A supervisor may get work again."""
        self.store.delete(paths.drained(supervisor_id))

    # Nimbuses

    def nimbuses(self) -> list[NimbusRecord]:
        """The Nimbuses that are there, leading or not, by id."""
        ids = map(paths.unquoted, self.store.children(paths.NIMBUSES))
        found = [self._readable(NimbusRecord, paths.nimbus(nimbus_id)) for nimbus_id in ids]
        return sorted((record for record in found if record is not None), key=lambda record: record.id)

    def save_nimbus(self, record: NimbusRecord) -> None:
        """A Nimbus says that it is there. Where its record is to go with its session, `leadership.Presence` keeps it."""
        self.store.put(paths.nimbus(record.id), encode(record))

    # Numbers, keys and bundles

    def next_number(self, name: str, above: int = 0) -> int:
        """A number that no other caller of any process gets from this counter, higher than `above` (`numbering`)."""
        return next_number(self.store, name, above)

    def sealed_keys(self, topology_id: str, recipient: str) -> bytes | None:
        """The copy of a topology's keys that is sealed to a Nimbus or a supervisor, as it was sealed."""
        found = self.store.get(paths.sealed_keys(topology_id, recipient))
        return None if found is None else found[0]

    def save_sealed_keys(self, topology_id: str, recipient: str, sealed: bytes) -> None:
        """Write a sealed copy; the last one counts."""
        self.store.put(paths.sealed_keys(topology_id, recipient), sealed)

    def remove_keys(self, topology_id: str) -> None:
        """Drop every copy of a topology's keys, if there is any."""
        remove_tree(self.store, paths.keys(topology_id))

    def remove_bundle(self, topology_id: str) -> None:
        """Drop what was shipped for a topology."""
        remove_tree(self.store, paths.bundle(topology_id))

    # What was read last

    def _forget_others(self, above: str, there: Iterable[str]) -> None:
        """Keep nothing of what somebody else has removed below a path: it is never read again."""
        kept = set(there)
        for path in list(self._seen):  # a copy: another thread may be reading
            if path.startswith(f"{above}/") and path not in kept:
                self._seen.pop(path, None)

    def _forget_what_belonged(self, ids: set[str]) -> None:
        """Keep nothing either of what belonged to topologies of other ids than these, unless theirs cannot be read."""
        if ids == self._ids:
            return
        self._ids = ids
        for path in list(self._seen):
            _, above, *names = path.split("/")
            if f"/{above}" in paths.OF_TOPOLOGIES:
                topology_id = paths.unquoted(names[0])
                if topology_id not in ids and name_of(topology_id) not in self.bad:
                    self._seen.pop(path, None)

    def _read(self, kind: type[R], path: str) -> R | None:
        found = self.store.get(path)
        if found is None:
            self._seen.pop(path, None)
            return None
        data, version = found
        seen = self._seen.get(path)
        # Compared by the bytes, not by the version: a value that was removed and made anew begins again.
        if seen is not None and seen.data == data and isinstance(seen.record, kind):
            if seen.version != version:
                self._seen[path] = _Seen(data, version, seen.record, seen.record)
            return seen.record
        last = None if seen is None else seen.last
        self._seen[path] = _Seen(data, version, None, last)  # so that it can be written over, whatever it is
        try:
            record = decode(kind, data)
        except BadRecord as error:
            raise BadRecord(f"{path}: {error}") from error
        self._seen[path] = _Seen(data, version, record, record)
        return record

    def _readable(self, kind: type[R], path: str) -> R | None:
        """As `_read`, but what cannot be read is none, of which the log tells once."""
        try:
            record = self._read(kind, path)
        except BadRecord as error:
            self._tell(path, f"a value of the store is left out: {error}")
            return None
        self._told.discard(path)
        return record

    def _last_readable(self, kind: type[R], path: str) -> R | None:
        """As `_read`, but what cannot be read is what could be read there last, of which the log tells once."""
        try:
            record = self._read(kind, path)
        except BadRecord as error:
            seen = self._seen.get(path)
            if seen is None or not isinstance(seen.last, kind):
                self._tell(path, f"a value of the store is left out: {error}")
                return None
            self._tell(path, f"a value of the store counts as what it was before: {error}")
            return seen.last
        self._told.discard(path)
        return record

    def _tell(self, path: str, text: str) -> None:
        if path not in self._told:
            self._told.add(path)
            _log.warning("%s", text)

    def _expect(self, was: TopologyRecord) -> None:
        path = paths.topology(was.name)
        seen = self._seen.get(path)
        if seen is None or seen.record is not was:
            raise Conflict(path, None, None if seen is None else seen.version)

    def _write(self, path: str, record: Record) -> None:
        data = encode(record)
        seen = self._seen.pop(path, None)
        if seen is None:
            version = self.store.create(path, data)
        else:
            version = self.store.put(path, data, seen.version)
        self._seen[path] = _Seen(data, version, record, record)

    def _write_or_delete(self, path: str, assignment: Assignment) -> None:
        if assignment.placements:
            self._write(path, assignment)
        else:
            self._delete(path)

    def _delete(self, path: str) -> None:
        seen = self._seen.pop(path, None)
        self.store.delete(path, None if seen is None else seen.version)


def number_of(topology_id: str) -> int:
    """The number of a submission, from its id "name-<number>-<stamp>"; of two at one instant the first has the lower."""
    parts = topology_id.rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def name_of(topology_id: str) -> str:
    """The name of a submission, from its id."""
    return topology_id.rsplit("-", 2)[0]
