"""What a Delta log holds at its newest version: read from the newest checkpoint, then version by version.

Must not know: the manifest, when the log is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files
from squall_io.spark.delta import log_names
from squall_io.spark.delta.actions import (
    AddedFile,
    DeltaAction,
    ForeignLog,
    Metadata,
    Protocol,
    Txn,
    decode_actions,
    path_of,
)
from squall_io.spark.delta.log_checkpoints import decode_checkpoint

#: What a reader and a writer have to know of a table without special columns.
FEATURES: Final = frozenset({"timestampNtz"})


@dataclass
class DeltaLog:
    """What a log holds. `refresh` reads what others have written since."""

    files: Files
    #: The newest version; -1: there is no log.
    version: int = -1
    #: The version of the newest checkpoint; -1: there is none.
    checkpoint: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    #: The data files of the table, by path.
    live: dict[str, AddedFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)

    def refresh(self, last: int | None = None) -> None:
        """Read the log up to its newest version, or up to version `last`, which must exist. Raises `ForeignLog`."""
        names = [status.name for status in self.files.list(log_names.FOLDER)]
        versions = {found for name in names if (found := log_names.version_of(name)) is not None}
        checkpoints = {found for name in names if (found := log_names.checkpoint_of(name)) is not None}
        if last is not None:
            versions = {version for version in versions if version <= last}
            checkpoints = {version for version in checkpoints if version <= last}
        self.checkpoint = max(checkpoints, default=-1)
        if self.checkpoint > self.version:
            self._begin_with(self.checkpoint)
        newest = max(versions, default=-1)
        # A version can be put during the listing, so what follows the newest listed version is looked for by name.
        missing = [version for version in range(self.version + 1, newest + 1) if version not in versions]
        if missing and not all(self.files.exists(log_names.version_path(version)) for version in missing):
            raise ForeignLog(
                f"{self.files.root}/{log_names.version_path(missing[0])} is missing, and version {newest} is there: files of "
                "the Delta log were deleted"
            )
        wanted = [log_names.version_path(version) for version in range(self.version + 1, newest + 1)]
        for path, data in zip(wanted, map_concurrently(self.files.read, wanted)):
            self.apply(decode_actions(data, f"{self.files.root}/{path}"))
        while last is None and (following := self._next()) is not None:
            where = f"{self.files.root}/{log_names.version_path(self.version + 1)}"
            self.apply(decode_actions(following, where))

    def apply(self, actions: list[DeltaAction]) -> None:
        """Add the actions of the next version. Raises `ForeignLog`, and changes nothing then."""
        where = f"{self.files.root}/{log_names.version_path(self.version + 1)}"
        protocol = next((action.protocol for action in actions if action.protocol is not None), self.protocol)
        require_known(protocol, where)
        added = {path_of(each.add.path, where): each.add for each in actions if each.add is not None}
        removed = {path_of(each.remove.path, where) for each in actions if each.remove is not None}
        self.protocol = protocol
        self.version += 1
        for action in actions:
            if action.meta_data is not None:
                self.metadata = action.meta_data
            if action.txn is not None:
                self.txns[action.txn.app_id] = action.txn
        for path in removed:
            self.live.pop(path, None)
        self.live |= added

    def _next(self) -> bytes | None:
        """Return the version that follows; None if there is none yet."""
        try:
            return self.files.read(log_names.version_path(self.version + 1))
        except AbsentFile:
            return None

    def _begin_with(self, version: int) -> None:
        """Forget everything, and read a checkpoint."""
        path = log_names.checkpoint_path(version)
        actions = decode_checkpoint(self.files.read(path), f"{self.files.root}/{path}")
        self.protocol = self.metadata = None
        self.live.clear()
        self.txns.clear()
        self.version = version - 1
        self.apply(actions)


def require_known(protocol: Protocol | None, where: str) -> None:
    """Raise `ForeignLog` if Squall does not know what a log demands of its writers."""
    if protocol is None:
        raise ForeignLog(
            f"{where} comes before any protocol: the Delta log is damaged, or its first versions were deleted"
        )
    needed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    plain = protocol.min_reader_version == 1 and protocol.min_writer_version <= 2
    if not plain and not (protocol.min_reader_version == 3 and needed and needed <= FEATURES):
        what = ", ".join(sorted(needed - FEATURES)) or (
            f"reader version {protocol.min_reader_version} and writer version {protocol.min_writer_version}"
        )
        raise ForeignLog(
            f"{where} demands {what}, which Squall does not know: another program has changed this Delta table"
        )
