"""A topology whose snapshot, or an earlier one upon which it builds, is damaged names the file, and calls no bolt."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.chained_snapshots import chained_snapshots
from tests.local_cluster.words_with_state import Count, Pass, Words, words


@pytest.mark.parametrize("damage", ["newest is cut", "earlier is cut", "earlier is gone"])
def test_a_damaged_snapshot_is_named_and_nothing_runs(tmp_path: Path, damage: str) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster, chained_snapshots(100):
        cluster.submit(words(Words(100, 60), Pass(), Count()), conf)
        cluster.advance(1.1)
    paths = sorted(
        (tmp_path / "words" / "snapshots").glob("*-count.0"), key=lambda path: int(path.name.split("-")[0])
    )
    path = paths[-1 if damage.startswith("newest") else 1]
    if damage.endswith("gone"):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf)
        cluster.advance(1)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        text = status.errors[-1].render()
        assert path.name in text
        assert ("No such file" if damage.endswith("gone") else f"snapshot {path.name} is damaged") in text
