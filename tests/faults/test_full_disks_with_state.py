"""The file system with a topology's state is full, and then has room again: nothing is lost, and users see why it waits.

It is a small file system of its own: mounting one needs root. `tests/local_cluster/test_epochs_stores_away.py` needs none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.running import cluster_without_leaks
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import Count, Finite, eventually, expected_rows, words_to_rows

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"needs root and mount: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write a file until there is no room."""
    with open(path, "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass


def test_a_topology_waits_while_the_disk_of_its_state_is_full_and_each_tuple_counts_once(
    small_disk: Path, tmp_path: Path
) -> None:
    conf = {
        "topology.state.path": f"file://{small_disk}",
        "topology.epoch.secs": 0.1,
        "topology.epoch.uncommitted": 100,
        "topology.workers": 2,
    }
    total, rows, log = 800, tmp_path / "rows", small_disk / "words" / "log"
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(words_to_rows(Finite(total, 400), Count(), StagedRows(str(rows))), conf)
        eventually(lambda: log.is_dir() and len(list(log.iterdir())) > 3)
        fill(small_disk / "filler")
        eventually(lambda: "No space left on device" in cluster.status("words").components["words"].idle)
        status = cluster.status("words")
        assert (status.state, status.errors) == ("ACTIVE", ())
        assert status.components["words"].idle.startswith("waits for the state store: cannot write file://")
        assert len(shown_rows(rows)) < total
        os.remove(small_disk / "filler")
        cluster.wait("words", 120)
    assert shown_rows(rows) == expected_rows(list(range(total)))
