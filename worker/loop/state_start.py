"""Copies an epoch of another topology's state, for a submission that begins with it.

The snapshots get names of their own, so that nothing of the two topologies is ever mixed up: rewind number 0, which no log has,
and a part of the digest.
Must not know: coordinators, tasks.
"""

from __future__ import annotations

from squall.packages.state_paths import StateStart
from topology_api import SquallError
from worker.epochs.records import CommitRecord, SnapshotFile
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import LOG, EpochFiles

#: Digits of the digest in a name.
DIGEST_DIGITS = 16


def fetch_start(files: EpochFiles, start: StateStart) -> CommitRecord:
    """Copy the snapshots of an epoch into a topology's store; return a commit that names them. Raises SquallError."""
    folder = start.folder_for(files.folder.name, LOG)
    if folder is None:
        raise SquallError(
            f"--state {start}: there is no state of a topology at {start.path} on this host: give the topology's folder below "
            "its topology.state.path, which all hosts must see"
        )
    content = CommittedState(EpochFiles(str(folder.parent), folder.name)).read(start.epoch)
    copies: dict[str, SnapshotFile] = {}
    for task, _, snapshot in content.snapshots():
        file, data = content.files[task]
        if snapshot is None or data is None:
            raise SquallError(f"--state {start}: {'; '.join(content.damaged)}")
        name = f"{snapshot.epoch}-0-{file.digest[:DIGEST_DIGITS]}-{task.replace('/', '.')}"
        copies[task] = SnapshotFile(name, file.digest)
        files.write_snapshot(copies[task], data)
    record = content.epoch.record
    return CommitRecord(record.token, record.epoch, record.rewind, copies, record.finished)
