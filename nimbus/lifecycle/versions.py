"""Earlier versions of topologies: what is kept of them, so that one of them can be submitted again (`squall rollback`).

A version that loses its name to another version, or that is rolled back, gets a `VersionRecord` at /versions/<id>. As long as
this record exists, the version keeps its bundle in the store and its files on the disks of Nimbuses; its workers, reports and
keys are removed as those of any topology that has ended.

The record is written before the step that takes the name away, so a Nimbus that dies in between has only written it too early:
`sweep` removes the record of a version that has its name (again). The sweep also removes the records of names that no topology
has, and those beyond the limit. A record that cannot be read counts as the oldest of its topology.
Must not know: why a version ends, who asks for a rollback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from squall.cluster.records import BadRecord, HowReplaced, TopologyRecord, VersionRecord
from squall.cluster.registry import Registry, name_of, number_of

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class EarlierVersions:
    """The leader's part: it writes and removes the records."""

    registry: Registry
    #: How many versions of a topology are kept, besides the present one (`nimbus.versions.keep`).
    most: int
    #: Gives seconds since 1970.
    wall_clock: Callable[[], float]

    def keep(self, record: TopologyRecord, how: HowReplaced) -> None:
        """Keep a version that is about to lose its name. A step that is tried again writes the record again."""
        if not self.most:
            return
        try:
            self.registry.versions.put(_version_of(record, how, self.wall_clock()))
        except BadRecord as error:  # the version ends nevertheless
            _log.warning("%s: no rollback to it will be possible: %s", record.id, error)

    def ids_of(self, name: str) -> list[str]:
        """Return the ids of the earlier versions of a topology."""
        return [id for id in self.registry.versions.names() if name_of(id) == name]

    def drop(self, name: str) -> None:
        """Forget the earlier versions of a topology; the sweep removes their bundles."""
        for id in self.ids_of(name):
            self.registry.versions.drop(id)

    def sweep(self, present: Mapping[str, str], unread: Collection[str]) -> set[str]:
        """Remove the records of versions that are not kept any more; return the ids of those that are. `present`: the name of
        each topology -> the id of the version that has the name; `unread`: names whose records cannot be read, and whose
        versions therefore stay."""
        by_name: dict[str, list[str]] = {}
        for id in self.registry.versions.names():
            by_name.setdefault(name_of(id), []).append(id)
        kept: set[str] = set()
        for name, ids in by_name.items():
            stay = set(ids) if name in unread else set(self._newest(present.get(name), ids))
            for id in sorted(set(ids) - stay):
                self.registry.versions.drop(id)
                _log.info("%s: the version %s is not kept any more", name, id)
            kept |= stay
        return kept

    def _newest(self, present: str | None, ids: Collection[str]) -> list[str]:
        if present is None:
            return []
        found = {id: self.registry.versions.readable(id) for id in ids if id != present}
        ends = {id: (0.0 if each is None else each.ended, number_of(id)) for id, each in found.items()}
        return sorted(ends, key=lambda id: ends[id], reverse=True)[: self.most]


def earlier_versions(registry: Registry, name: str, present: str | None) -> list[VersionRecord]:
    """Return the versions of a topology that are kept, the one that ended last first. A version that cannot be read is left
    out. `present`: the id of the version that has the name."""
    ids = (id for id in registry.versions.names() if name_of(id) == name and id != present)
    found = [each for each in map(registry.versions.readable, ids) if each is not None]
    return sorted(found, key=lambda each: (each.ended, number_of(each.id)), reverse=True)


def files_of_versions(registry: Registry) -> tuple[dict[str, str], set[str]]:
    """Return (SHA-256 -> the name of a topology with an earlier version that needs the file, the names of the topologies with
    an earlier version that cannot be read)."""
    files: dict[str, str] = {}
    unread: set[str] = set()
    for id in registry.versions.names():
        version = registry.versions.readable(id)
        if version is not None:
            files.update(dict.fromkeys(version.files.values(), version.name))
        elif id in registry.versions.names():  # otherwise it was removed meanwhile
            unread.add(name_of(id))
    return files, unread


def _version_of(record: TopologyRecord, how: HowReplaced, time: float) -> VersionRecord:
    return VersionRecord(
        id=record.id,
        name=record.name,
        how=how,
        error=record.error,
        submitted=record.submitted,
        ended=time,
        conf=record.conf,
        component_confs=record.component_confs,
        files=record.files,
        python=record.python,
        set_options=record.set_options,
        by=record.by,
        repeats=record.repeats,
    )
