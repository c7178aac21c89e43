"""A topology from a backup as a value: read, checked, and adapted to this cluster. Pure functions; nothing is unpickled.

The versions of a restored topology keep their ids, so that what is kept outside of the store by these ids (writer ids of Spark
sinks, positions of readers, dead letters) stays theirs. This is safe because a worker here has a higher incarnation
than any worker that the topology had before: the numbers of assignments continue above `assignments_above`. So a task here
supersedes the task of the other cluster that has the same writer id, and the other one cannot supersede it.
Must not know: the store, requests, how a backup is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from nimbus.lifecycle.states import ACTIVE, INACTIVE, KILLED
from nimbus.lifecycle.transition import message_timeout
from nimbus.submission.parse import BadRequest, checked_confs, problems_of_files, read
from squall.api.backups import RestoreRequest, TopologyBackup
from squall.cluster.records import BadRecord, EndedVersion, TopologyRecord, VersionRecord, decode
from squall.cluster.registry import number_of
from topology_api.names import name_problem
from topology_api.topology import Topology
from topology_api.wording import shown

Version = TopologyRecord | VersionRecord
R = TypeVar("R", TopologyRecord, VersionRecord, EndedVersion)

#: The highest number of an assignment that is accepted. Messages between workers have 32 bits for it.
MOST_ASSIGNMENTS: Final = 4_000_000_000
#: The highest number that comes from a clock (the year 2065): a clock that is wrong must not use up the numbers.
MOST_OF_A_CLOCK: Final = 3_000_000_000
#: The end of an id, after the name.
_END_OF_ID: Final = re.compile("-[0-9]{1,12}-[0-9]{1,12}")


class Restoration(msgspec.Struct, frozen=True):
    """A topology to restore. `bundles`: version -> the file with its bundle; the `ended` have none."""

    key: str
    inactive: bool
    topology: TopologyRecord
    waiting: TopologyRecord | None
    replaced: TopologyRecord | None
    versions: tuple[VersionRecord, ...]
    ended: tuple[EndedVersion, ...]
    bundles: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the topology."""
        return self.topology.name

    @property
    def submitted(self) -> tuple[TopologyRecord, ...]:
        """The versions that run or may run again by themselves."""
        return tuple(each for each in (self.topology, self.waiting, self.replaced) if each is not None)

    def with_bundles(self) -> dict[str, Version]:
        """Return all versions that have a bundle, by id."""
        found: tuple[Version, ...] = (*self.versions, *self.submitted)
        return {each.id: each for each in found}


def read_restoration(body: object) -> Restoration:
    """Return the topology in a JSON value. Raises `BadRequest` with all problems."""
    request = read(RestoreRequest, body, "the backup of a topology")
    what = f"the backup of topology {shown(request.backup.name)}"
    problems: list[str] = []

    def decoded(kind: type[R], values: dict[str, Any] | None) -> R | None:
        try:
            return None if values is None else decode(kind, json.dumps(values).encode())
        except BadRecord as error:
            problems.append(str(error))
            return None

    backup = request.backup
    topology = decoded(TopologyRecord, backup.topology)
    waiting, replaced = (decoded(TopologyRecord, each) for each in (backup.waiting, backup.replaced))
    versions = [decoded(VersionRecord, each) for each in backup.versions]
    ended = [decoded(EndedVersion, each) for each in backup.ended]
    if topology is None or problems:
        raise BadRequest(problems, what)
    restoration = Restoration(
        request.submission, request.inactive, topology, waiting, replaced,
        tuple(each for each in versions if each is not None), tuple(each for each in ended if each is not None),
        request.bundles,
    )  # fmt: skip
    if problems := list(_problems_of(restoration, backup)):
        raise BadRequest(problems, what)
    return restoration


def _problems_of(restoration: Restoration, backup: TopologyBackup) -> Iterator[str]:
    name, versions = backup.name, restoration.with_bundles()
    if problem := name_problem(name):
        yield f"its name {problem}"
    if restoration.topology.state == KILLED:
        yield "it was being killed"
    records = [(each.id, each.name) for each in (*versions.values(), *restoration.ended)]
    for id, its_name in records:
        own = id.startswith(name) and _END_OF_ID.fullmatch(id[len(name) :])
        if its_name != name or not own:
            yield f"it has a version {shown(id)} with the name {shown(its_name)}"
    for record in restoration.submitted:
        if not 0 <= record.version <= MOST_ASSIGNMENTS:
            yield f"{record.id} has an assignment {record.version}"
    for id, version in versions.items():
        yield from (f"{id}: {problem}" for problem in problems_of_files(version.files))
        if id not in restoration.bundles:
            yield f"the bundle of {id} is missing"
    for id, sha256 in restoration.bundles.items():
        if id not in versions:
            yield f"it has a bundle of {shown(id)}, but no such version"
        yield from problems_of_files({"code": sha256})


def check_bundle(version: Version, topology: Topology) -> None:
    """Check that a bundle is that of a version. Raises `BadRequest` or `InvalidConfig`."""
    what = f"the bundle of {version.id}"
    if topology.name != version.name:
        raise BadRequest([f"its topology is {shown(topology.name)}"], what)
    known = {component.id for component in topology.components}
    named = {row.component for row in version.tasks} if isinstance(version, TopologyRecord) else set()
    if unknown := sorted(named - known):
        raise BadRequest([f"it has no component {', '.join(map(shown, unknown))}"], what)
    own = {id: conf for id, conf in version.component_confs.items() if id in known}
    checked_confs(topology, version.conf, own)


def assignments_above(restoration: Restoration, time: float) -> int:
    """Return the number above which the assignments of this cluster have to continue. `time`: seconds since 1970.

    The cluster from which a backup comes may have made assignments since, and so may another cluster that was restored from the
    same backup. No cluster makes one each second, so the present time is above their numbers.
    """
    return max(min(int(time), MOST_OF_A_CLOCK), *(record.version for record in restoration.submitted))


def submissions_above(restoration: Restoration) -> int:
    """Return the number above which the submissions of this cluster have to continue, so that later versions sort last."""
    return max(number_of(id) for id in restoration.with_bundles())


def as_restored(restoration: Restoration, now: float, time: float) -> Restoration:
    """Return the records as they are written: deadlines begin again, `inactive` is obeyed, and the key is found again.
    `now`: the time on the leader's clock; `time`: seconds since 1970."""

    def adapted(record: TopologyRecord) -> TopologyRecord:
        if restoration.inactive:
            was = INACTIVE if record.previous == ACTIVE else record.previous
            record = structs.replace(
                record, state=INACTIVE if record.state == ACTIVE else record.state, previous=was
            )
        if record.deadline is None:
            return record
        wait = message_timeout(record) if record.wait is None else record.wait
        return structs.replace(record, deadline=now + wait, until=time + wait)

    others = (None if each is None else adapted(each) for each in (restoration.waiting, restoration.replaced))
    waiting, replaced = others
    topology = structs.replace(adapted(restoration.topology), submission=restoration.key)
    return structs.replace(restoration, topology=topology, waiting=waiting, replaced=replaced)
