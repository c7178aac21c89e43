"""Every later release goes on from the state that a topology has kept: records of the log, snapshots, and a whole folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from local_cluster import LocalCluster
from squall.security.private_files import make_private_folder
from tests.frozen import topology_with_state
from tests.frozen.frozen_checks import check_read
from tests.frozen.frozen_data import EPOCHS, GROUPS, as_bytes, load
from tests.frozen.plain_values import lacking, plain
from tests.frozen.topology_with_state import newest_files, shares_of, state_of
from worker.epochs.records import LogRecord, SnapshotFile, decode_record
from worker.epochs.snapshot_files import decode_snapshot

FROZEN: dict[str, dict[str, Any]] = load("epochs", EPOCHS)
#: Snapshots with an index of key groups, and a log that was trimmed.
GROUPED: dict[str, dict[str, Any]] = load("groups", GROUPS)
RECORDS = {**FROZEN["records"], **GROUPED["records"]}


@pytest.mark.parametrize("name", RECORDS)
def test_a_frozen_record_of_the_log_is_read_unchanged(name: str) -> None:
    frozen = RECORDS[name]
    data = as_bytes(frozen["data"])
    check_read(lambda each: decode_record(1, each), data, frozen["value"])


def test_every_kind_of_record_is_frozen() -> None:
    found = {type(decode_record(1, as_bytes(frozen["data"]))) for frozen in RECORDS.values()}
    assert found == set(get_args(LogRecord))


@pytest.mark.parametrize("name", FROZEN["snapshots"])
def test_a_frozen_snapshot_is_read_unchanged(name: str) -> None:
    frozen = FROZEN["snapshots"][name]
    file, data = SnapshotFile(frozen["name"], frozen["digest"]), as_bytes(frozen["data"])
    check_read(lambda each: decode_snapshot(file, each), data, frozen["value"])


def thaw(folder: dict[str, str], at: Path) -> None:
    for name, data in folder.items():
        make_private_folder((at / name).parent)
        (at / name).write_bytes(as_bytes(data))


def test_frozen_snapshots_with_key_groups_are_read_unchanged_whole_and_in_parts(tmp_path: Path) -> None:
    thaw(GROUPED["folder"], tmp_path)
    files = newest_files(tmp_path)
    found = {
        f"{task} {share}": value
        for task, file in files.items()
        for share, value in shares_of(tmp_path, file).items()
    }
    assert found.keys() == GROUPED["shares"].keys()
    assert any(file.since for file in files.values()) and len({file.groups for file in files.values()}) == 3
    for name, value in found.items():
        assert lacking(plain(value), GROUPED["shares"][name]) == [], name


def test_a_topology_goes_on_from_a_frozen_folder_with_key_groups_and_a_trimmed_log(tmp_path: Path) -> None:
    """It names no number of groups, and has another number of tasks soon."""
    thaw(GROUPED["folder"], tmp_path)
    assert any("/floors/" in name for name in GROUPED["folder"])
    with LocalCluster(simulated_time=True) as cluster:
        topology = topology_with_state.topology(topology_with_state.ALL, frozenset())
        cluster.submit(topology, {"topology.state.path": f"file://{tmp_path}"})
        cluster.advance(0.1)
        cluster.rebalance("everything", parallelism={"bolt": 3})
        cluster.advance(10)
        for key, first in {"k0": 0, "k1": 1, "k2": 2}.items():
            state = cluster.state("everything", "bolt", key)
            assert (state["count"], sorted(state["numbers"])) == (10, list(range(first, 30, 3)))
            assert sorted(state["recent"]) == sorted(state["kept"]) == sorted(state["by_number"])
        assert not cluster.last_status("everything").errors


def test_a_topology_goes_on_from_a_frozen_folder_with_every_kind_of_state(tmp_path: Path) -> None:
    """The folder has a tuple that waits for its next try, a timer that is tried again, and timers that are not due."""
    thaw(FROZEN["folder"], tmp_path)
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
