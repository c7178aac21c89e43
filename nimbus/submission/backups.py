"""Backups of the store: reads all lasting records of a topology, and writes them into the store of another cluster.

What only coordinates the cluster (assignments, reports, heartbeats, keys) is neither read nor written: the records that are
written say the same as those of a cluster whose hosts are all gone, and Nimbus continues from there. A topology exists when its
own record is written; everything before that is an orphan, which the sweep removes if the rest does not follow.
Must not know: how a record is checked (`restoration`), where a backup is stored, the further life of a topology.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from nimbus.lifecycle.cleanup import TopologyKeys, existing_record, readable_record, remove_all_of
from nimbus.lifecycle.states import KILLED
from nimbus.submission.restoration import (
    Restoration,
    as_restored,
    assignments_above,
    check_bundle,
    submissions_above,
)
from squall.api.backups import RecordJson, TopologyBackup
from squall.cluster.blobs import put_bundle
from squall.cluster.numbering import ASSIGNMENTS, SUBMISSIONS, raise_to
from squall.cluster.record_sets import RecordSet
from squall.cluster.records import R, Record, TopologyRecord, encode
from squall.cluster.registry import Registry, name_of
from squall.cluster.store import Exists
from topology_api.errors import NameTaken
from topology_api.topology import Topology

_log = logging.getLogger(__name__)


def backup_of(registry: Registry, name: str) -> TopologyBackup:
    """Return all lasting records of a topology. The leader calls this between two steps, so that they belong together. Raises
    `NoSuchTopology`, or `BadTopology` or `BadRecord` if one of them cannot be read."""
    record = existing_record(registry, name)
    waiting, replaced = registry.replacements.get(name), registry.replaced.get(name)
    return TopologyBackup(
        name=name,
        topology=_as_json(record),
        waiting=None if waiting is None else _as_json(waiting),
        replaced=None if replaced is None else _as_json(replaced),
        versions=_of_name(registry.versions, name),
        ended=_of_name(registry.ended, name),
    )


def _of_name(records: RecordSet[R], name: str) -> list[RecordJson]:
    found = map(records.readable, (id for id in records.names() if name_of(id) == name))
    return [_as_json(record) for record in found if record is not None]


def _as_json(record: Record) -> RecordJson:
    values: RecordJson = json.loads(encode(record))
    return values


@dataclass(eq=False, repr=False)
class Restorer:
    """The leader's part: it writes topologies that come from a backup."""

    registry: Registry
    keys: TopologyKeys | None

    def check(self, restoration: Restoration, bundles: Mapping[str, Topology]) -> None:
        """Raise what `restore` raises. `bundles`: those that are there, by version. Writes nothing."""
        there = readable_record(self.registry, restoration.name)
        if there is not None:
            raise NameTaken(restoration.name, being_killed=there.state == KILLED)
        for id, version in restoration.with_bundles().items():
            if id in bundles:
                check_bundle(version, bundles[id])

    def restore(
        self, restoration: Restoration, bundles: Mapping[str, Topology], now: float, time: float
    ) -> TopologyRecord:
        """Write a topology with all its versions, its own record last. `now`: the time on the leader's clock; `time`: seconds
        since 1970. Raises `NameTaken`, `BadTopology`, `BadRequest` or `InvalidConfig`."""
        self.check(restoration, bundles)
        registry, ready = self.registry, as_restored(restoration, now, time)
        for id in ready.with_bundles():
            remove_all_of(registry, self.keys, id)  # left over from a restore that was cut off
        raise_to(registry.store, ASSIGNMENTS, assignments_above(restoration, time))
        raise_to(registry.store, SUBMISSIONS, submissions_above(restoration))
        for id in ready.with_bundles():
            put_bundle(registry.store, id, bundles[id])
        for record in ready.submitted:
            if self.keys is not None:
                self.keys.make(record.id)
        for version in ready.versions:
            registry.versions.put(version)
        for ended in ready.ended:
            registry.ended.put(ended)
        for records, other in ((registry.replacements, ready.waiting), (registry.replaced, ready.replaced)):
            if other is not None:
                records.put(other)
        try:
            registry.topologies.create(ready.topology)
        except Exists as error:  # by this call, if an answer of the store was lost
            there = readable_record(registry, ready.name)
            if there is None or there.submission != ready.key:
                raise NameTaken(ready.name) from error
        _log.info("%s: restored as %s, %s", ready.name, ready.topology.id, ready.topology.state)
        return ready.topology
