"""Copies an epoch of another topology's state, for a submission that begins with it.

The snapshots get names of their own, so that nothing of the two topologies is ever mixed up: rewind number 0, which no log has,
and a part of the digest.
Must not know: coordinators, tasks.
"""

from __future__ import annotations

from msgspec.structs import replace as replaced

from squall.cluster.registry import name_of
from squall.packages.state_paths import StateStart
from squall.stores.opening import default_webhdfs, open_state
from squall.stores.paths import authority_of, check_path
from topology_api import SquallError
from worker.epochs.records import CommitRecord, SnapshotFile, short_lineage
from worker.epochs.snapshot_files import encode_snapshot
from worker.epochs.trimming import LOG
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles

#: Digits of the digest in a name.
DIGEST_DIGITS = 16


def fetch_start(files: EpochFiles, start: StateStart, groups: int | None) -> CommitRecord:
    """Copy the snapshots of an epoch into a topology's store; return a commit that names them. Raises SquallError.

    `groups`: into how many groups the topology divides keys; None: into as many as the other one. If the other one has another
    number, the copies are as if they had none: each task then finds its keys among all.

    The copies hold what the other topology was about to show of this epoch, or has shown: they say whose it is, so that it is
    visible once.
    """
    source = source_of(files, start)
    if source is None:
        raise SquallError(
            f"--state {start}: this host finds no state of a topology at {start.path}: give the topology's folder below "
            "its topology.state.path, which all hosts must see"
        )
    state = CommittedState(source)
    content = state.read(start.epoch)
    record, version = content.epoch.record, content.epoch.version
    topology = name_of(version) if version else source.folder.rpartition("/")[2]
    origin = f"{topology}/{short_lineage(state.view().lineage)}"
    same = groups in (None, record.groups)
    copies: dict[str, SnapshotFile] = {}
    for task, (there, _) in content.files.items():
        snapshot = content.snapshot(task, labelled=same)
        if snapshot is None:
            raise SquallError(f"--state {start}: {'; '.join(content.damaged)}")
        snapshot.outcomes = [
            each if each.origin else replaced(each, origin=origin) for each in snapshot.outcomes
        ]
        # A whole one, also if it was several files.
        file, data = encode_snapshot(snapshot, there.groups if same else None)
        name = f"{snapshot.epoch}-0-{file.digest[:DIGEST_DIGITS]}-{task.replace('/', '.')}"
        copies[task] = file.renamed(name)
        files.write_snapshot(copies[task], data)
    divided = record.groups if same else 0
    return CommitRecord(record.token, record.epoch, record.rewind, copies, record.finished, divided)


def source_of(files: EpochFiles, start: StateStart) -> EpochFiles | None:
    """Return the state at the path of a start: in the path itself, or in a folder below it that is named like the topology;
    None: there is none. Another path on HDFS is reached as the topology's own; if that is by WebHDFS on another host, at the
    default port."""
    name = files.folder.rpartition("/")[2]
    path = check_path(start.path)
    same = not files.is_local and authority_of(files.folder) == authority_of(path)
    webhdfs = files.webhdfs if same or files.webhdfs is None else default_webhdfs(path)
    for place in (path, f"{path}/{name}"):
        with open_state(place, webhdfs) as there:
            if there.exists(LOG):
                above, _, last = place.rpartition("/")
                return EpochFiles(above, last, webhdfs)
    return None
