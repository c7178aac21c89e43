"""Makes the fixtures of states with key groups: `python -m tests.frozen.make_groups`. Must not know: tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from local_cluster import LocalCluster
from tests.frozen import frozen_data, topology_with_state
from tests.frozen.frozen_data import GROUPS
from tests.frozen.plain_values import plain
from tests.frozen.topology_with_state import newest_files, shares_of
from worker.epochs.log import LogView
from worker.epochs.records import (
    CommitFacts,
    CommitRecord,
    DropRecord,
    EndRecord,
    FloorRecord,
    LeadRecord,
    LogRecord,
    SnapshotFile,
    StartPoint,
    encode_record,
)
from worker.routing.key_groups import GroupRange

FILE = SnapshotFile("4-1-0-count.0", "ab", 2, 700, GroupRange(0, 32, 64), True)
COMMIT = CommitRecord("token-2", 4, 1, {"count/0": FILE}, ("w/0",), 64)
START = StartPoint(COMMIT, True)
RECORDS: dict[str, LogRecord] = {
    "lead: with a start": LeadRecord("token-1", "words-7/worker-1/3.0/9f", 2**32 + 3, "words-7+1", START, 10),
    "commit: with groups": COMMIT,
    "drop": DropRecord("token-3", {FILE.name: None, "3-1-0-count.1": FILE.renamed("3-1-0-count.1.new")}),
    "floor": FloorRecord(
        number=120, lineage="token-1", leader="b", leaders=["a", "b"], rewind=100, assignment=2**32 + 4,
        submission="words-7+1", rewinds=2, bases={"words-6": 0, "words-7+1": 2**32}, next_epoch=90,
        commits=[COMMIT], switches=[CommitRecord("t", 3, 1, {}, (), 64)], led_by="words-7", committed_by="words-6",
        start=START, next_lineage="token-110", edits={"3-1-0-count.1": None},
        end=EndRecord("token-119", 4, "killed"),
        facts={3: CommitFacts(8, "words-6", None, 1764326000.5), 4: CommitFacts(9, "words-6", "killed")}, keep=10,
    ),
}  # fmt: skip


def text(data: bytes) -> str:
    return data.decode("latin-1")


def folder(at: Path) -> None:
    """What a topology leaves that ran for a while, in two submissions: chains of snapshots with an index of key groups, and a
    log that was trimmed."""
    conf = {
        "topology.state.path": f"file://{at}", "topology.epoch.secs": 0.5, "topology.epoch.keep": 1, "topology.state.groups": 4,
    }  # fmt: skip
    with patch.object(LogView, "__post_init__", lambda self: setattr(self, "trim_every", 3)):
        for _ in range(2):
            with LocalCluster(simulated_time=True, seed=1) as cluster:
                poison = frozenset({5})
                cluster.submit(topology_with_state.topology(topology_with_state.FIRST, poison), conf)
                cluster.advance(1.7)


def main() -> None:
    records = {
        name: {"data": text(encode_record(each)), "value": plain(each)} for name, each in RECORDS.items()
    }
    with tempfile.TemporaryDirectory() as made:
        at = Path(made)
        folder(at)
        files = newest_files(at)
        shares: dict[str, Any] = {
            f"{task} {share}": plain(value)
            for task in files
            for share, value in shares_of(at, files[task]).items()
        }
        paths = [path for path in sorted(at.rglob("*")) if path.is_file()]
        contents = {str(path.relative_to(at)): text(path.read_bytes()) for path in paths}
    print(frozen_data.save("groups", {"records": records, "shares": shares, "folder": contents}, GROUPS))


if __name__ == "__main__":
    main()
