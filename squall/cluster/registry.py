"""The records of a store, read and written by name.

A `Registry` belongs to one daemon and one thread at a time. It remembers what it read last, which serves
twice: a record that has not changed is not decoded again, and a write carries the version that was read, so
that it fails with `Conflict` (or `Exists`) when somebody else has written since.
Must not know: what the records mean, or when one has to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall.cluster import paths
from squall.cluster.records import (
    Assignment,
    BadRecord,
    NimbusRecord,
    R,
    Record,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
    decode,
    encode,
)
from squall.cluster.store import Conflict, Exists, Store, remove_tree


@dataclass(frozen=True)
class _Seen:
    data: bytes
    version: int
    record: Record


class Registry:
    """Typed access to the records of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._seen: dict[str, _Seen] = {}

    # Topologies

    def topology(self, name: str) -> TopologyRecord | None:
        """The topology that holds the name."""
        return self._read(TopologyRecord, paths.topology(name))

    def topologies(self) -> list[TopologyRecord]:
        """All topologies, the oldest submission first."""
        names = list(map(paths.unquoted, self.store.children(paths.TOPOLOGIES)))
        self._forget_topologies(names)
        records = [record for name in names if (record := self.topology(name)) is not None]
        return sorted(records, key=lambda record: (record.submitted, _number(record.id)))

    def create_topology(self, record: TopologyRecord) -> None:
        """Take the name for a new topology; `Exists` when it is taken."""
        path = paths.topology(record.name)
        data = encode(record)
        self._seen[path] = _Seen(data, self.store.create(path, data), record)

    def update_topology(self, was: TopologyRecord, now: TopologyRecord) -> None:
        """Change the record that was read as `was`; `Conflict` when it is another by now."""
        self._expect(was)
        self._write(paths.topology(was.name), now)

    def remove_topology(self, was: TopologyRecord) -> None:
        """Free the name of the topology that was read as `was`."""
        self._expect(was)
        self._delete(paths.topology(was.name))

    # Assignments, and the workers that were withdrawn

    def assignment(self, topology_id: str) -> Assignment | None:
        """The workers that a topology has."""
        return self._read(Assignment, paths.assignment(topology_id))

    def leaving(self, topology_id: str) -> Assignment | None:
        """The workers that were withdrawn from a topology and are not gone yet."""
        return self._read(Assignment, paths.leaving(topology_id))

    def save_assignment(self, assignment: Assignment) -> None:
        """Write the workers that a topology has; without any, there is no assignment."""
        self._write_or_delete(paths.assignment(assignment.topology_id), assignment)

    def save_leaving(self, leaving: Assignment) -> None:
        """Write which workers are to go; without any, the record goes."""
        self._write_or_delete(paths.leaving(leaving.topology_id), leaving)

    # Reports

    def report(self, topology_id: str, worker: str) -> WorkerReport | None:
        """The last word of a worker."""
        return self._read(WorkerReport, paths.report(topology_id, worker))

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
        """The supervisors that are there, by id."""
        ids = map(paths.unquoted, self.store.children(paths.SUPERVISORS))
        found = [self._read(SupervisorRecord, paths.supervisor(supervisor_id)) for supervisor_id in ids]
        return sorted((record for record in found if record is not None), key=lambda record: record.id)

    def save_supervisor(self, record: SupervisorRecord) -> None:
        """A supervisor says that it is there; its own last word counts, whatever stood there."""
        self.store.put(paths.supervisor(record.id), encode(record))

    def remove_supervisor(self, supervisor_id: str) -> None:
        """A supervisor goes, and its slots with it."""
        self.store.delete(paths.supervisor(supervisor_id))

    # Nimbuses

    def nimbuses(self) -> list[NimbusRecord]:
        """The Nimbuses that are there, leading or not, by id."""
        ids = map(paths.unquoted, self.store.children(paths.NIMBUSES))
        found = [self._read(NimbusRecord, paths.nimbus(nimbus_id)) for nimbus_id in ids]
        return sorted((record for record in found if record is not None), key=lambda record: record.id)

    # Numbers, keys and bundles

    def next_number(self, name: str) -> int:
        """1, 2, 3, ...: a number that no other caller of any process gets from this counter."""
        path = paths.counter(name)
        while True:
            found = self.store.get(path)
            try:
                if found is None:
                    self.store.create(path, b"1")
                    return 1
                number = int(found[0]) + 1
                self.store.put(path, str(number).encode(), found[1])
                return number
            except (Conflict, Exists):
                continue  # somebody else got that one

    def keys(self, topology_id: str) -> dict[str, str] | None:
        """The keys of a topology's links, by name. They are kept out of what is remembered here."""
        path = paths.keys(topology_id)
        found = self.store.get(path)
        if found is None:
            return None
        try:
            keys = json.loads(found[0])
        except ValueError:
            keys = None
        if not isinstance(keys, dict) or not all(isinstance(value, str) for value in keys.values()):
            raise BadRecord(f"{path} holds no keys")  # and what it holds is shown to nobody
        return keys

    def save_keys(self, topology_id: str, keys: Mapping[str, str]) -> None:
        """Write the keys of a new topology's links."""
        self.store.create(paths.keys(topology_id), json.dumps(dict(keys)).encode())

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

    def _forget_topologies(self, names: Iterable[str]) -> None:
        """Keep nothing of the topologies that somebody else has removed: their paths are never read again."""
        there = {paths.topology(name) for name in names}
        for path in list(self._seen):  # a copy: another thread may be reading
            if path.startswith(f"{paths.TOPOLOGIES}/") and path not in there:
                self._seen.pop(path, None)

    def _read(self, kind: type[R], path: str) -> R | None:
        found = self.store.get(path)
        if found is None:
            self._seen.pop(path, None)
            return None
        data, version = found
        seen = self._seen.get(path)
        # Compared by the bytes, not by the version: a value that was removed and made anew begins again.
        if seen is None or seen.data != data or not isinstance(seen.record, kind):
            record = decode(kind, data)
        else:
            record = seen.record
        self._seen[path] = _Seen(data, version, record)
        return record

    def _expect(self, was: TopologyRecord) -> None:
        path = paths.topology(was.name)
        seen = self._seen.get(path)
        if seen is None or seen.record is not was:
            raise Conflict(path, None, None if seen is None else seen.version)

    def _write(self, path: str, record: Record) -> None:
        data = encode(record)
        seen = self._seen.get(path)
        if seen is None:
            version = self.store.create(path, data)
        else:
            version = self.store.put(path, data, seen.version)
        self._seen[path] = _Seen(data, version, record)

    def _write_or_delete(self, path: str, assignment: Assignment) -> None:
        if assignment.placements:
            self._write(path, assignment)
        else:
            self._delete(path)

    def _delete(self, path: str) -> None:
        seen = self._seen.pop(path, None)
        self.store.delete(path, None if seen is None else seen.version)


def _number(topology_id: str) -> int:
    """The number of a submission, from its id "name-<number>-<time>"; of two at one instant the first has the lower."""
    parts = topology_id.rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
