"""What stands in the store and should not: orphans, and records that cannot be read.

An orphan belongs to a topology that has no record: its submission was never finished, or it went. Of a topology whose record
cannot be read nothing is an orphan, since nobody knows what it is; `kill` clears it away: what cannot be read goes, and a
record of what is still known of its workers takes the place of the one that was, so that they are waited for as ever.
Must not know: when to look.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from shlex import quote

from nimbus.assigning import Keys, workers_of
from nimbus.lifecycle import FAILED
from squall.cluster import paths
from squall.cluster.records import BadRecord, TopologyRecord
from squall.cluster.registry import Registry, name_of, number_of
from topology_api.errors import SquallError
from topology_api.options import defaults

_log = logging.getLogger(__name__)


class BadTopology(SquallError):
    """A topology whose record, or assignment, in the store cannot be read."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"topology {self.name!r} cannot be read ({self.reason}): repair that value, or remove the topology"
            f" with `squall kill {'-- ' if self.name.startswith('-') else ''}{quote(self.name)}`"
        )


def sweep_orphans(registry: Registry, keys: Keys | None, known: set[str], unread: Collection[str]) -> None:
    """Remove what belongs to topologies of other ids than those known, but for those of names of which something cannot be
    read."""
    for topology_id in sorted(registry.known_ids() - known):
        if name_of(topology_id) in unread:
            continue
        if keys is not None:
            keys.forget(topology_id)
        registry.remove_all_of(topology_id)
        _log.info("%s: removed what was left of it", topology_id)


def whole(registry: Registry, name: str) -> TopologyRecord | None:
    """The record of a topology, None when there is none; `BadTopology` when it, or its assignment, cannot be read."""
    try:
        record = registry.topology(name)
        if record is not None:
            registry.assignment(record.id)
            registry.leaving(record.id)
    except BadRecord as error:
        raise BadTopology(name, str(error)) from error
    if record is not None and record.name != name:
        raise BadTopology(name, f"its record is that of {record.name!r}")
    return record


def clear(registry: Registry, name: str, reason: str, now: float) -> TopologyRecord | None:
    """Make a topology that cannot be read one that can be killed; None when nothing is left that could be."""
    ids = sorted((each for each in registry.known_ids() if name_of(each) == name), key=number_of)
    for topology_id in ids:
        for read, path in (
            (registry.assignment, paths.assignment(topology_id)),
            (registry.leaving, paths.leaving(topology_id)),
        ):
            try:
                read(topology_id)
            except BadRecord:
                registry.store.delete(path)
                _log.warning("%s: %s could not be read and is removed", name, path)
    try:
        return whole(registry, name)
    except BadTopology:
        placed = [topology_id for topology_id in ids if topology_id in registry.placed_ids()]
    if not placed:
        registry.drop_unreadable_topology(name)
        _log.warning("%s: its record could not be read and is removed", name)
        return None
    record = _rebuilt(registry, name, placed[-1], reason, now)
    registry.rebuild_topology(record)
    _log.warning("%s: its record could not be read, another takes its place until its workers are gone", name)
    return registry.topology(name)


def _rebuilt(registry: Registry, name: str, topology_id: str, reason: str, now: float) -> TopologyRecord:
    assignment = registry.assignment(topology_id)
    tasks = sorted(task for placement in workers_of(assignment) for task in placement.tasks)
    return TopologyRecord(
        id=topology_id,
        name=name,
        state=FAILED,
        previous=None,
        conf=defaults(),
        component_confs={},
        tasks=tuple((task, "unknown", index) for index, task in enumerate(tasks)),
        version=0 if assignment is None else assignment.version,
        deadline=None,
        error=f"its record could not be read: {reason}",
        submitted=now,
        since=now,
    )
