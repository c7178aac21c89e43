"""A topology whose snapshot, or an earlier one upon which it builds, is damaged names the file, and calls no bolt."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from local_cluster import LocalCluster
from squall_cli.main import squall
from tests.chained_snapshots import chained_snapshots
from tests.local_cluster.words_with_state import Count, Pass, Words, counts, expected, words


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
        assert text.startswith(
            "words[1] of topology 'words': cannot go on from the topology's state: SquallError: "
        )
        folder = tmp_path / "words"
        assert f"(in {folder}/snapshots)" in text
        advice = f"Begin with an earlier epoch, --state @N: `squall state list {folder}` shows them"
        assert advice in text
        assert ("No such file" if damage.endswith("gone") else f"snapshot {path.name} is damaged") in text


def test_with_an_earlier_epoch_a_topology_goes_on_behind_a_damaged_one(tmp_path: Path) -> None:
    conf, total = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}, 100
    folder = tmp_path / "words"
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf)
        cluster.advance(2.1)
    newest = max((folder / "snapshots").glob("*-count.0"), key=lambda path: int(path.name.split("-")[0]))
    newest.write_bytes(newest.read_bytes()[:-1])
    epoch = int(newest.name.split("-")[0])
    listed = CliRunner().invoke(squall, ["state", "list", str(folder)])
    assert newest.name in listed.stderr and f"\n{epoch - 1:>5}  " in listed.stdout
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf, state=f"@{epoch - 1}")
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(total)))
