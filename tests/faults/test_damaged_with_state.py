"""Worker processes find a snapshot that is not what was committed: the topology ends with an error that names it, and calls no
bolt. So it does where the spout is of another class. `tests/local_cluster/test_epoch_faults.py` plays the same in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.faults.every_kind_with_state import conf_at
from tests.faults.running import cluster_without_leaks
from tests.local_cluster.test_epoch_faults import damage_empty, damage_flip, damage_other, damage_swap
from tests.local_cluster.words_with_state import Count, Finite, Pass, Words, eventually, words
from topology_api import Tuple

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def damage_cut(newest: Path, folder: Path) -> None:
    newest.write_bytes(newest.read_bytes()[:-1])


def damage_newer(newest: Path, folder: Path) -> None:
    """A later release has written it."""
    newest.write_bytes(b"SQEP99\n" + newest.read_bytes()[7:])


def failed(cluster: LocalCluster) -> str:
    """Wait until the topology has failed; return its error."""
    eventually(lambda: cluster.last_status("words").state == "FAILED")
    return cluster.last_status("words").errors[-1].render()


class Marks(Pass):
    """Leaves a file when it is called."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = str(mark)

    def execute(self, tup: Tuple) -> None:
        Path(self.mark).touch()
        super().execute(tup)


others = (damage_cut, damage_empty, damage_swap, damage_newer, damage_other)


@pytest.mark.parametrize(
    "damage", [damage_flip, *(pytest.param(each, marks=pytest.mark.soak) for each in others)]
)
def test_workers_that_find_a_snapshot_damaged_name_it_and_call_no_bolt(
    tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1.1)
    snapshots = (tmp_path / "state" / "words" / "snapshots").glob("*-count.0")
    newest = max(snapshots, key=lambda path: int(path.name.split("-")[0]))
    damage(newest, tmp_path)
    mark = tmp_path / "called"
    with cluster_without_leaks(tmp_path) as cluster:
        conf = conf_at(tmp_path, **{"topology.workers": 2})
        cluster.submit(words(Words(200), Marks(mark), Count()), conf)
        text = failed(cluster)
    wrong = "another version of Squall has written it" if damage is damage_newer else "is damaged"
    assert f"snapshot {newest.name} " in text and wrong in text
    assert not mark.exists()


def test_workers_with_a_spout_of_another_class_end_the_topology_instead_of_starting_for_ever(
    tmp_path: Path,
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1.1)
    mark = tmp_path / "called"
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(words(Finite(200), Marks(mark), Count()), conf_at(tmp_path))
        text = failed(cluster)
    assert "component 'words': its position is that of a Words, and it is a Finite now" in text
    assert not mark.exists()
