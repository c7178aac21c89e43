"""Every later release goes on from the state that a topology has kept: records of the log, snapshots, and a whole folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from local_cluster import LocalCluster
from squall.security.private_files import make_private_folder
from tests.frozen import topology_with_state
from tests.frozen.frozen_checks import check_read
from tests.frozen.frozen_data import EPOCHS, as_bytes, load
from tests.frozen.topology_with_state import state_of
from worker.epochs.records import DropRecord, FloorRecord, LogRecord, SnapshotFile, decode_record
from worker.epochs.snapshot_files import decode_snapshot

#: Kinds that were added since, so that no frozen log has them.
LATER = {DropRecord, FloorRecord}
FROZEN: dict[str, dict[str, Any]] = load("epochs", EPOCHS)


@pytest.mark.parametrize("name", FROZEN["records"])
def test_a_frozen_record_of_the_log_is_read_unchanged(name: str) -> None:
    frozen = FROZEN["records"][name]
    data = as_bytes(frozen["data"])
    check_read(lambda each: decode_record(1, each), data, frozen["value"])


def test_every_kind_of_record_is_frozen() -> None:
    found = {type(decode_record(1, as_bytes(frozen["data"]))) for frozen in FROZEN["records"].values()}
    assert found == set(get_args(LogRecord)) - LATER


@pytest.mark.parametrize("name", FROZEN["snapshots"])
def test_a_frozen_snapshot_is_read_unchanged(name: str) -> None:
    frozen = FROZEN["snapshots"][name]
    file, data = SnapshotFile(frozen["name"], frozen["digest"]), as_bytes(frozen["data"])
    check_read(lambda each: decode_snapshot(file, each), data, frozen["value"])


def test_a_topology_goes_on_from_a_frozen_folder_with_every_kind_of_state(tmp_path: Path) -> None:
    """The folder has a tuple that waits for its next try, a timer that is tried again, and timers that are not due."""
    for name, data in FROZEN["folder"].items():
        make_private_folder((tmp_path / name).parent)
        (tmp_path / name).write_bytes(as_bytes(data))
    with LocalCluster(simulated_time=True) as cluster:
        topology = topology_with_state.topology(topology_with_state.ALL, frozenset())
        cluster.submit(topology, {"topology.state.path": f"file://{tmp_path}"})
        cluster.advance(10)
        for key, numbers in {
            "k0": [0, 3, 6, 9, 12, 15, 18, 21, 24, 27],
            "k1": [1, 4, 7, 10, 13, 16, 19, 22, 25, 28],
            "k2": [2, 8, 11, 14, 17, 20, 23, 5, 26, 29],  # 5 had failed, and waited for half a second more
        }.items():
            assert cluster.state("everything", "bolt", key) == state_of(numbers)
        assert not cluster.last_status("everything").errors
