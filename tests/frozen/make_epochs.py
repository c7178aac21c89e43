"""Makes the fixtures of the state of topologies: `python -m tests.frozen.make_epochs`. Must not know: tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster
from tests.frozen import frozen_data, topology_with_state
from tests.frozen.frozen_data import EPOCHS
from tests.frozen.plain_values import plain
from worker.epochs.after_commit import HANDLE, LETTERS, ROWS, EpochOutcome
from worker.epochs.parking import ParkedLetter
from worker.epochs.records import (
    COMPLETED,
    KILLED,
    CommitRecord,
    EndRecord,
    LeadRecord,
    LogRecord,
    RewindRecord,
    SnapshotFile,
    encode_record,
)
from worker.epochs.snapshot_files import TaskSnapshot, decode_snapshot, encode_snapshot

RECORDS: dict[str, LogRecord] = {
    "lead": LeadRecord("token-1", "words-7/worker-1/3.0/9f", 7 * 2**32 + 3),
    "commit: full": CommitRecord("token-2", 4, 1, {"count/0": SnapshotFile("4-1-0-count.0", "ab")}, ("w/0",)),
    "commit: minimal": CommitRecord("t", 1, 1, {}),
    "rewind": RewindRecord("token-3", 7 * 2**32 + 3),
    "end: completed": EndRecord("token-4", 4, COMPLETED),
    "end: killed, without a commit": EndRecord("token-4", 0, KILLED),
}
ITEM = ["words", 1, "default", b"pickle"]
SNAPSHOTS = {
    "minimal": TaskSnapshot("count/0", 1, 1, 0),
    "full": TaskSnapshot(
        "count/0", 4, 3, 2,
        state={"states": {}, "timers": b"t", "retried": b"r", "ended": False, "end_called": False},
        outboxes=[("next/1", "default", [b"rows"])],
        recorded=[("before/0", [b"rows"])],
        held=[b"held"],
        parked=[(ITEM, 2, 0.5)],
        position=b"\x81\xa2at\x05",
        again=[(None, b"again")],
        finished=True,
        ended=["words/0"],
        ends_sent=["next/0"],
        outcomes=[
            EpochOutcome(3, 0, LETTERS, [ParkedLetter("count/0/3/0", ITEM, "ValueError: no", 3)]),
            EpochOutcome(4, 1, HANDLE, {"files": ["a"]}),
            EpochOutcome(4, 0, ROWS, [["a", 1]]),
        ],
    ),
}  # fmt: skip


def text(data: bytes) -> str:
    return data.decode("latin-1")


def folder() -> dict[str, str]:
    """The files of a topology that ran for a while, with a tuple that is parked and a timer that is tried again."""
    with tempfile.TemporaryDirectory() as at:
        conf = {"topology.state.path": f"file://{at}", "topology.epoch.secs": 1.5, "topology.epoch.keep": 1}
        for _ in range(2):
            with LocalCluster(simulated_time=True, seed=1) as cluster:
                poison = frozenset({5})
                cluster.submit(topology_with_state.topology(topology_with_state.FIRST, poison), conf)
                cluster.advance(4)
        paths = [path for path in sorted(Path(at).rglob("*")) if path.is_file()]
        return {str(path.relative_to(at)): text(path.read_bytes()) for path in paths}


def main() -> None:
    records = {
        name: {"data": text(encode_record(record)), "value": plain(record)}
        for name, record in RECORDS.items()
    }
    snapshots: dict[str, Any] = {}
    for name, snapshot in SNAPSHOTS.items():
        file, data = encode_snapshot(snapshot)
        snapshots[name] = {
            "name": file.name, "digest": file.digest, "data": text(data), "value": plain(decode_snapshot(file, data)),
        }  # fmt: skip
    values = {"records": records, "snapshots": snapshots, "folder": folder()}
    print(frozen_data.save("epochs", values, EPOCHS))


if __name__ == "__main__":
    main()
