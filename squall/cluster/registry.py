"""The records of a store as typed sets, and operations on several sets.

A `Registry` belongs to one daemon and one thread at a time. `squall.cluster.record_sets` says how records are read and written.

An invalid record affects only the topology, supervisor, Nimbus or worker that it describes. A topology whose record (or
assignment) cannot be read is left out of `all_topologies` and named in `bad`, and `last_workers` says where its workers were.
For a supervisor, the last record that could be read is used; a supervisor whose record was never read is named in
`unread_supervisors`. A Nimbus whose record cannot be read is absent until it registers again. A report that cannot be read is
ignored, and the worker's next report overwrites it.
Must not know: what the records mean, or when a record has to change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from squall.cluster import paths, records
from squall.cluster.numbering import next_number
from squall.cluster.record_sets import KnownRecords, RecordSet
from squall.cluster.store import Store, below, remove_tree


class Registry:
    """Typed access to the records of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known = known = KnownRecords(store)
        #: Topologies, by the name that they hold.
        self.topologies = RecordSet(
            known, records.TopologyRecord, paths.TOPOLOGIES, "name", format=self._format
        )
        #: By topology name: the new version, which waits until the running version has drained and its workers have stopped.
        self.replacements = RecordSet(
            known, records.TopologyRecord, paths.REPLACEMENTS, "name", format=self._format
        )
        #: By topology name: the previous version, kept as long as a rollback is possible.
        self.replaced = RecordSet(known, records.TopologyRecord, paths.REPLACED, "name", format=self._format)
        #: By topology id: the assigned workers (`assignments`), the withdrawn workers that have not ended yet (`leaving`), and
        #: the workers that were withdrawn last (`former`).
        of_topology = "topology_id"
        self.assignments = RecordSet(
            known, records.Assignment, paths.ASSIGNMENTS, of_topology, _has_no_worker
        )
        self.leaving = RecordSet(known, records.Assignment, paths.LEAVING, of_topology, _has_no_worker)
        self.former = RecordSet(known, records.Assignment, paths.FORMER, of_topology)
        #: By topology id: earlier versions of topologies, for a rollback (see `nimbus.lifecycle.versions`).
        self.versions = RecordSet(known, records.VersionRecord, paths.VERSIONS, "id", format=self._format)
        #: By topology id: what is kept of versions that have ended (see `nimbus.counters.ended`).
        self.ended = RecordSet(known, records.EndedVersion, paths.ENDED, "id")
        #: A supervisor writes its own record, over any other value. The record is removed when the supervisor leaves for good,
        #: or is given up as silent.
        self.supervisors = RecordSet(known, records.SupervisorRecord, paths.SUPERVISORS, "id")
        #: A Nimbus's record is ephemeral, so it ends with the session of the Nimbus. `leadership.Presence` writes it.
        self.nimbuses = RecordSet(known, records.NimbusRecord, paths.NIMBUSES, "id")
        #: By supervisor id: a record that outlives its supervisor, so that a host that is away is named. It is removed when no
        #: letter is left, or all must have expired.
        self.letters = RecordSet(known, records.HeldLetters, paths.LETTERS, "supervisor")
        self._ids: set[str] = set()  # the ids of the topologies that `all_topologies` returned last
        #: Name -> why, of the topologies that `all_topologies` left out when it was last called.
        self.bad: Mapping[str, str] = {}
        #: Ids of the supervisors that `all_supervisors` left out when it was last called.
        self.unread_supervisors: frozenset[str] = frozenset()

    # Topologies

    def all_topologies(self) -> list[records.TopologyRecord]:
        """Return all topologies that can be read, the oldest submission first; `bad` says why the others cannot be read."""
        names = self.topologies.names()
        self.topologies.forget_others(names)
        found: list[records.TopologyRecord] = []
        bad: dict[str, str] = {}
        for name in names:
            try:
                record = self.topologies.get(name)
                if record is None:
                    continue
                if record.name != name:
                    raise records.BadRecord(
                        f"{self.topologies.path(name)} holds the record of {record.name!r}"
                    )
                self.assignments.get(record.id)  # a topology whose workers cannot be read is bad, too
                self.leaving.get(record.id)
                found.append(record)
            except records.BadRecord as error:
                bad[name] = str(error)
        self.bad = bad
        self._forget_other_topologies({record.id for record in found})
        return sorted(found, key=lambda record: (record.submitted, number_of(record.id)))

    def known_ids(self, folders: Collection[str] = paths.OF_TOPOLOGIES) -> set[str]:
        """Return the ids of all topologies for which the store holds anything besides the record, in any of these folders."""
        names_of = (self.store.children(folder) for folder in folders)
        return {paths.unquoted(name) for names in names_of for name in names} - {paths.OPERATOR}

    def placed_ids(self) -> set[str]:
        """Return the ids of all topologies that have workers, or workers that are leaving."""
        return {*self.assignments.names(), *self.leaving.names()}

    def remove_all_of(self, topology_id: str, folders: Sequence[str] = paths.OF_TOPOLOGIES) -> None:
        """Remove everything of a topology in these folders, which does not include its record; the assignment is removed
        last."""
        for folder in reversed(folders):
            top = paths.below(folder, topology_id)
            self._known.forget(partial(below, top))
            remove_tree(self.store, top)

    def last_workers(self, topology_id: str) -> tuple[records.Placement, ...]:
        """Return the workers of a topology, leaving or not; if they cannot be read, return the last known workers."""
        assignments = (self.assignments.last_readable(topology_id), self.leaving.last_readable(topology_id))
        return tuple(place for known in assignments if known is not None for place in known.placements)

    def _forget_other_topologies(self, ids: set[str]) -> None:
        """Forget the records of topologies whose ids are not in `ids`, except where the topology's record is unreadable."""
        if ids == self._ids:
            return
        self._ids = ids

        def is_gone(path: str) -> bool:
            _, folder, *names = path.split("/")
            if f"/{folder}" not in paths.OF_TOPOLOGIES:
                return False
            topology_id = paths.unquoted(names[0])
            return topology_id not in ids and name_of(topology_id) not in self.bad

        self._known.forget(is_gone)

    # Reports of workers

    def report(self, topology_id: str, worker: str) -> records.WorkerReport | None:
        """Return the last report of a worker, or None if there is none or it cannot be read (the next report replaces it)."""
        return self._reports(topology_id).readable(worker)

    def reports(self, topology_id: str) -> dict[str, records.WorkerReport]:
        """Return the last report of each worker of a topology."""
        reports = self._reports(topology_id)
        return {name: report for name in reports.names() if (report := reports.readable(name)) is not None}

    def save_report(self, topology_id: str, report: records.WorkerReport) -> None:
        """Write the report of a worker."""
        self._reports(topology_id).write(report)

    def remove_report(self, topology_id: str, worker: str) -> None:
        """Remove the report of a worker."""
        self._reports(topology_id).delete(worker)

    def _reports(self, topology_id: str) -> RecordSet[records.WorkerReport]:
        return RecordSet(self._known, records.WorkerReport, paths.reports(topology_id), "worker")

    # Daemons

    def all_supervisors(self) -> list[records.SupervisorRecord]:
        """Return the registered supervisors, by id. For a damaged record the last known value is returned, so that no worker
        moves."""
        ids = self.supervisors.names()
        self.supervisors.forget_others(ids)
        found = {id: self.supervisors.last_readable(id) for id in ids}
        known = self._known.by_path
        unread = (id for id, record in found.items() if record is None)
        self.unread_supervisors = frozenset(id for id in unread if self.supervisors.path(id) in known)
        return sorted((record for record in found.values() if record is not None), key=lambda each: each.id)

    def drained_supervisors(self) -> set[str]:
        """Return the ids of drained supervisors, registered or not."""
        return set(map(paths.unquoted, self.store.children(paths.DRAINED)))

    def save_drained(self, supervisor_id: str) -> None:
        """Record that a supervisor gets no more work."""
        self.store.put(paths.drained(supervisor_id), b"drained")

    def remove_drained(self, supervisor_id: str) -> None:
        """Record that a supervisor may get work again."""
        self.store.delete(paths.drained(supervisor_id))

    def all_nimbuses(self) -> list[records.NimbusRecord]:
        """Return the registered Nimbuses, leading or not, by id."""
        found = map(self.nimbuses.readable, self.nimbuses.names())
        return sorted((record for record in found if record is not None), key=lambda record: record.id)

    def all_letters(self, now: float) -> list[records.HeldLetters]:
        """Return which hosts hold dead letters, by supervisor. `now`: the wall clock."""
        names = self.letters.names()
        self.letters.forget_others(names)
        found = (self.letters.readable(name) for name in names)
        return [each for each in found if each is not None and (each.until is None or each.until > now)]

    def daemons_behind(self) -> list[str]:
        """Return the registered daemons that read only records in which components repeat the topology's settings. There are
        some during a rolling upgrade; until it is done, records are written as these daemons read them."""
        supervisors = ((f"supervisor {each.id}", each.reads) for each in self.all_supervisors())
        nimbuses = ((f"Nimbus {each.id}", each.reads) for each in self.all_nimbuses())
        return [daemon for daemon, reads in (*supervisors, *nimbuses) if reads < records.FORMAT]

    def _format(self) -> int:
        return records.REPEATING if self.daemons_behind() else records.FORMAT

    # Numbers, keys and bundles

    def next_number(self, name: str, above: int = 0) -> int:
        """Return a number higher than `above` that no other caller in any process gets from this counter (see `numbering`)."""
        return next_number(self.store, name, above)

    def sealed_keys(self, topology_id: str, recipient: str) -> bytes | None:
        """Return the copy of a topology's keys that is sealed to this Nimbus or supervisor, without opening it."""
        found = self.store.get(paths.sealed_keys(topology_id, recipient))
        return None if found is None else found[0]

    def save_sealed_keys(self, topology_id: str, recipient: str, sealed: bytes) -> None:
        """Write a sealed copy over any earlier copy."""
        self.store.put(paths.sealed_keys(topology_id, recipient), sealed)

    def remove_keys(self, topology_id: str) -> None:
        """Remove every copy of a topology's keys, if there is any."""
        remove_tree(self.store, paths.keys(topology_id))


def _has_no_worker(assignment: records.Assignment) -> bool:
    return not assignment.placements


def number_of(topology_id: str) -> int:
    """Return the number of a submission, from its id "name-<number>-<stamp>". Of two topologies with the same stamp, the one
    that was submitted first has the lower number."""
    parts = topology_id.rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def is_version(wanted: str, topology_id: str) -> bool:
    """Return whether an operator means this submission: by its id, or by the number in it."""
    return wanted in (topology_id, str(number_of(topology_id)))


def name_of(topology_id: str) -> str:
    """Return the name of a submission, from its id."""
    return topology_id.rsplit("-", 2)[0]
