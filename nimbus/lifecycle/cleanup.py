"""Reads all values of a topology in the store, or removes them, even if the record cannot be read.

If a topology cannot be read, `BadTopology` is raised, with the topology's name. To kill such a topology, `clear` deletes its
unreadable values and rebuilds the record from the facts that are still known about the topology's workers, so that Nimbus waits
for the end of these workers as usual.
Must not know: who kills a topology.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from shlex import quote
from typing import Protocol

from nimbus.lifecycle.progress import LifecycleView, workers_of
from nimbus.lifecycle.states import FAILED
from squall.cluster import paths
from squall.cluster.records import BadRecord, SupervisorRecord, TopologyRecord
from squall.cluster.registry import Registry, name_of, number_of
from squall.values import TaskRow
from topology_api.errors import InvalidConfig, NoSuchTopology, SquallError
from topology_api.names import field_problem
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
            f" with {to_type('kill', self.name)}"
        )


def to_type(command: str, name: str) -> str:
    """Return a command about a topology, as an operator types it."""
    return f"`squall {command} {'-- ' if name.startswith('-') else ''}{quote(name)}`"


class TopologyKeys(Protocol):
    """The part of `nimbus.security.keyring.KeyRing` that Nimbus uses."""

    def make(self, topology_id: str) -> None:
        """Make the keys of a new topology."""

    def seal_for(self, topology_id: str, supervisors: Iterable[SupervisorRecord]) -> None:
        """Give a topology's keys to supervisors."""

    def forget(self, topology_id: str) -> None:
        """Delete a topology's keys."""


def readable_record(registry: Registry, name: str) -> TopologyRecord | None:
    """Return the record of a topology, or None. Raises `BadTopology` if the record or the assignment cannot be read."""
    try:
        record = registry.topologies.get(name)
        if record is not None:
            registry.assignments.get(record.id)
            registry.leaving.get(record.id)
    except BadRecord as error:
        raise BadTopology(name, str(error)) from error
    if record is not None and record.name != name:
        raise BadTopology(name, f"its record is that of {record.name!r}")
    return record


def check_name(name: object) -> None:
    """Raise `InvalidConfig` for a name of a topology that is no text, and `NoSuchTopology` for a text that no topology can have
    as its name."""
    if not isinstance(name, str):
        raise InvalidConfig([f"the name of the topology {field_problem(name)}"])
    if field_problem(name):
        raise NoSuchTopology(name)


def existing_record(registry: Registry, name: str) -> TopologyRecord:
    """Return the record of a topology. Raises `NoSuchTopology` if there is none, `BadTopology` if it cannot be read, and the
    errors of `check_name`."""
    check_name(name)
    record = readable_record(registry, name)
    if record is None:
        raise NoSuchTopology(name)
    return record


def view_of(registry: Registry, record: TopologyRecord, supervisors: Collection[str]) -> LifecycleView:
    """Return all that the store holds about a topology. `supervisors`: the ids of the registered supervisors."""
    assignment, leaving = registry.assignments.get(record.id), registry.leaving.get(record.id)
    return LifecycleView(record, assignment, leaving, registry.reports(record.id), supervisors)


def remove_all_of(
    registry: Registry,
    keys: TopologyKeys | None,
    topology_id: str,
    folders: Sequence[str] = paths.OF_TOPOLOGIES,
) -> None:
    """Remove the keys of a topology and its values in these folders, which do not include its record."""
    if keys is not None:
        keys.forget(topology_id)
    registry.remove_all_of(topology_id, folders)


def clear(registry: Registry, name: str, reason: str, now: float) -> TopologyRecord | None:
    """Repair a topology that cannot be read, so that it can be killed. Return its record; None if the record had to be removed
    because no workers of the topology are known."""
    ids = sorted((key for key in registry.known_ids() if name_of(key) == name), key=number_of)
    for topology_id in ids:
        for workers in (registry.assignments, registry.leaving):
            try:
                workers.get(topology_id)
            except BadRecord:
                workers.drop(topology_id)
                _log.warning("%s: %s could not be read and is removed", name, workers.path(topology_id))
    try:
        return readable_record(registry, name)
    except BadTopology:
        placed = [topology_id for topology_id in ids if topology_id in registry.placed_ids()]
    if not placed:
        registry.topologies.drop(name)
        _log.warning("%s: its record could not be read and is removed", name)
        return None
    record = _rebuilt(registry, name, placed[-1], reason, now)
    registry.topologies.put(record)
    _log.warning(
        "%s: its record could not be read and is replaced by a new record until its workers are gone", name
    )
    return registry.topologies.get(name)


def _rebuilt(registry: Registry, name: str, topology_id: str, reason: str, now: float) -> TopologyRecord:
    assignment = registry.assignments.get(topology_id)
    tasks = sorted(task for placement in workers_of(assignment) for task in placement.tasks)
    return TopologyRecord(
        id=topology_id,
        name=name,
        state=FAILED,
        previous=None,
        conf=defaults(),
        component_confs={},
        tasks=tuple(TaskRow(task, "unknown", index) for index, task in enumerate(tasks)),
        version=0 if assignment is None else assignment.version,
        deadline=None,
        error=f"its record could not be read: {reason}",
        submitted=now,
        since=now,
    )
