"""Gathers the topologies of a cluster into a backup: records, bundles and files.

The records of a topology are of one moment. Its bundles and files never change, but go when no version needs them any more; if
one is gone meanwhile, the topology is read again. So the backup has either the state before a change or the one after it.
Must not know: the form of a backup, how progress is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec import structs

from squall import __version__
from squall.api.backups import BundleAnswer, TopologyBackup
from squall.cluster.records import FORMAT as RECORDS
from squall.http.client import Refused, at
from squall_cli.backups.layout import FORMAT, BackedUp, Head, as_bytes
from squall_cli.backups.writing import BackupWriter
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.cluster.waiting import patiently
from topology_api.errors import SquallError

#: How many times a topology is read at most.
ATTEMPTS: Final = 3
_KILLED: Final = "KILLED"
#: The errors of a topology that no backup can contain.
_UNREADABLE: Final = ("BadTopology", "BadRecord")

Say = Callable[[str], object]
T = TypeVar("T")


class Missing(SquallError):
    """A part of a version that the cluster does not have (any more). `version`: the id."""

    def __init__(self, version: str, what: str) -> None:
        super().__init__(version, what)
        self.version = version
        self.what = what

    def __str__(self) -> str:
        return f"the cluster does not have {self.what} of {self.version}"


@dataclass
class GatheredTopologies:
    """What a backup has, and why it lacks topologies or earlier versions."""

    topologies: list[TopologyBackup] = field(default_factory=list)
    #: The name of a topology, or the id of an earlier version -> why it is not in the backup.
    left_out: dict[str, str] = field(default_factory=dict)


def head_of(client: NimbusClient, time: float) -> Head:
    """Return the head of a backup of this cluster. `time`: seconds since 1970."""
    cluster = patiently(client.cluster, lambda text: None)
    drained = [each.id for each in client.supervisors() if each.drained]
    return Head(FORMAT, __version__, RECORDS, cluster.id or "", time, drained)


@dataclass(eq=False, repr=False)
class Gatherer:
    """Reads topologies into a backup. `now` shows the current step, `say` a line that stays."""

    client: NimbusClient
    writer: BackupWriter
    now: Say
    say: Say

    def gather(self) -> GatheredTopologies:
        """Add all topologies of the cluster."""
        gathered = GatheredTopologies()
        names = [each.name for each in self._ask(self.client.topologies)]
        for number, name in enumerate(names, 1):
            self.now(f"reading {name} ({number} of {len(names)})")
            try:
                self._add(name, gathered)
            except Missing as error:
                gathered.left_out[name] = str(error)
            except Refused as refused:
                if refused.kind in _UNREADABLE:
                    gathered.left_out[name] = str(refused)
                elif refused.kind != "NoSuchTopology":  # it is gone meanwhile
                    raise
        return gathered

    def _add(self, name: str, gathered: GatheredTopologies) -> None:
        """Add a topology, without earlier versions that the cluster has in part only."""
        left_out: dict[str, str] = {}
        attempts = 0
        while True:
            backup = self._ask(lambda: self.client.read(TopologyBackup, "topologies", name, "backup"))
            if backup.topology.get("state") == _KILLED:
                self.say(f"{name} is being killed: it is not in the backup")
                return
            earlier = [each for each in backup.versions if each.get("id") not in left_out]
            backup = structs.replace(backup, versions=earlier)
            versions = backup.files_by_version().items()
            try:
                bundles = {id: self._add_version(name, id, files) for id, files in versions}
                break
            except Missing as error:
                attempts += 1
                if attempts < ATTEMPTS:
                    continue
                if error.version in {each.get("id") for each in backup.submitted()}:
                    raise
                left_out[error.version] = str(error)
                attempts = 0
        gathered.left_out |= left_out
        self.writer.add_topology(BackedUp(backup, bundles))
        gathered.topologies.append(backup)

    def _add_version(self, name: str, id: str, files: dict[str, str]) -> str:
        """Add the bundle and the files of a version; return the SHA-256 of its bundle."""
        for purpose, sha256 in files.items():
            with_what = f"its {purpose!r} file ({sha256})"
            self.now(f"reading {with_what} of {id}")
            self._found(id, with_what, lambda sha256=sha256: self._add_file(sha256))  # type: ignore[misc]
        place = "topologies", name, "bundles", id
        bundle = self._found(id, "the bundle", lambda: self.client.read(BundleAnswer, *place))
        return self.writer.add_bytes(as_bytes(bundle))

    def _add_file(self, sha256: str) -> None:
        self.writer.add_file(sha256, lambda target: self.client.get_file(at("files", sha256), target))

    def _found(self, id: str, what: str, ask: Callable[[], T]) -> T:
        try:
            return self._ask(ask)
        except Refused as refused:
            if refused.status == 404:
                raise Missing(id, what) from refused
            raise

    def _ask(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self.say)
