"""Key groups move with their state: what tasks read when their number changes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import (
    Count,
    EmitsInOpen,
    Forward,
    Newest,
    Pass,
    Words,
    counts,
    eventually,
    expected,
    words,
)
from topology_api import Fields, InvalidConfig, InvalidTopology, Spout, TopologyBuilder
from worker.epochs import snapshot_files
from worker.epochs.records import CommitRecord
from worker.loop.epoch_store import EpochFiles

GROUPS = "topology.state.groups"


def conf_at(path: Path, **options: object) -> dict[str, object]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.3, **options}


def groups_at(path: Path) -> set[int]:
    """Return the numbers of groups in the commits of the topology."""
    records = EpochFiles(f"file://{path}", "words").records_after(0)
    return {each.groups for each in records if isinstance(each, CommitRecord)}


def test_each_new_task_reads_the_files_that_have_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two tasks to three: the first and the last need one file each, the one between them both."""
    monkeypatch.setattr(snapshot_files, "_AT_ONCE", 0)
    read: list[tuple[str, int]] = []
    old = EpochFiles.read_bytes

    def read_bytes(self: EpochFiles, name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        found = old(self, name, offset, length)
        read.append((Path(name).name, len(found)))
        return found

    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(600, 100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(3)
        monkeypatch.setattr(EpochFiles, "read_bytes", read_bytes)
        cluster.rebalance("words", parallelism={"count": 3})
        cluster.advance(1)
        monkeypatch.setattr(EpochFiles, "read_bytes", old)
        sizes = {path.name: path.stat().st_size for path in (tmp_path / "words/snapshots").iterdir()}
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(600)))
    read = [(name, size) for name, size in read if "-count." in name]
    files = {name for name, _ in read}
    assert {name.split("-", 3)[3] for name in files} == {"count.0", "count.1"}
    # Two tasks read a file of the old tasks each, and one reads both.
    assert sum(size for _, size in read) <= 2 * sum(sizes[name] for name in files)


def test_state_is_refused_with_another_number_of_groups_that_is_named(tmp_path: Path) -> None:
    topology = words(Words(300, 100), Pass(), Count())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path, **{GROUPS: 64}))
        cluster.advance(1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path, **{GROUPS: 1024}))
        cluster.advance(1)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        text = status.errors[-1].render()
        assert "its state has 64 key groups, and topology.state.groups is 1,024 now: leave it out" in text
        assert "rename a component" not in text
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path, **{GROUPS: 64}))
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(300)))


@pytest.mark.parametrize("inline", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_number_of_groups_is_that_of_the_state_if_none_is_named(tmp_path: Path, inline: bool) -> None:
    topology = words(Words(300, 100), Pass(), Count(), 3)
    conf = conf_at(tmp_path, **{"topology.workers": 2})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, {**conf, GROUPS: 7})
        cluster.advance(1)
    with LocalCluster(simulated_time=inline) as cluster:
        cluster.submit(topology, conf)
        if inline:
            cluster.advance(0.5)
            cluster.rebalance("words", workers=3, parallelism={"count": 5})
            cluster.advance(20)
        else:
            eventually(lambda: cluster.status("words").components["newest"].executed > 0)
        eventually(lambda: counts(cluster) == expected(list(range(300))), 1 if inline else 60)
    assert groups_at(tmp_path) == {7}


def test_a_spout_without_position_emits_once_although_its_task_is_made_twice(tmp_path: Path) -> None:
    """What `open` emitted before the number of groups was known comes again from the second object, and counts once."""
    topology = words(EmitsInOpen(300), Pass(), Count())
    for groups, times in ((7, 1), (None, 2), (7, 3)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology, conf_at(tmp_path, **{GROUPS: groups}))
            cluster.advance(5)
            assert {word: each[0] for word, each in counts(cluster).items()} == {
                word: times * each[0] for word, each in expected(list(range(300))).items()
            }
    assert groups_at(tmp_path) == {7}


def test_a_bolt_that_reads_a_spout_without_position_may_get_more_tasks(tmp_path: Path) -> None:
    """The spout goes on as the object that it is, and sends to the new tasks, too."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Forward(300))
    builder.set_bolt("count", Count(), 2).fields_grouping("words", "word")
    builder.set_bolt("newest", Newest(), 2).fields_grouping("count", "word")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path, **{"topology.max.spout.pending": 5}))
        cluster.advance(2)
        cluster.rebalance("words", parallelism={"count": 4})
        cluster.advance(60)
        assert counts(cluster) == expected(list(range(300)))
        assert not cluster.last_status("words").errors


def test_tasks_without_a_group_have_no_keys(tmp_path: Path) -> None:
    """The store alone knows of the two groups at the submission. A rebalance is refused, since workers have said so."""
    topology = words(Words(300, 100), Pass(), Count())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path, **{GROUPS: 2}))
        cluster.advance(1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(300, 100), Pass(), Count(), parallelism=3), conf_at(tmp_path))
        cluster.advance(0.5)
        with pytest.raises(
            InvalidConfig, match=r"'count' would have 5 tasks, and its keys are divided into 2 groups"
        ):
            cluster.rebalance("words", parallelism={"count": 5})
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(300)))


def test_a_copy_has_as_many_groups_as_the_original_if_none_is_named(tmp_path: Path) -> None:
    topology = words(Words(300, 100), Pass(), Count())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path / "old", **{GROUPS: 9}))
        cluster.advance(2)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path / "new"), state=f"{tmp_path}/old/words")
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(300)))
    assert groups_at(tmp_path / "new") == {9}


@pytest.mark.parametrize("groups", [1024, 5])
def test_a_copy_of_state_may_have_another_number_of_groups(tmp_path: Path, groups: int) -> None:
    topology = words(Words(300, 100), Pass(), Count())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path / "old"))
        cluster.advance(2)
    with LocalCluster(simulated_time=True) as cluster:
        conf = conf_at(tmp_path / "new", **{GROUPS: groups})
        cluster.submit(topology, conf, state=f"{tmp_path}/old/words")
        cluster.advance(1)
        cluster.rebalance("words", parallelism={"count": 4})
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(300)))


def test_more_tasks_than_groups_are_refused_by_the_builder_at_submit_and_at_a_rebalance(
    tmp_path: Path,
) -> None:
    class Nothing(Spout):
        outputs = Fields("word", "number")

        def next_tuple(self) -> float:
            return 1.0

    def built(tasks: int, **conf: object) -> TopologyBuilder:
        builder = TopologyBuilder("few", conf=conf)
        builder.set_spout("words", Nothing())
        builder.set_bolt("count", Count(), tasks).fields_grouping("words", "word")
        return builder

    problem = "bolt 'count' would have 3 tasks, and its keys are divided into 2 groups"
    with pytest.raises(InvalidTopology, match=problem):
        built(3, **conf_at(tmp_path, **{GROUPS: 2})).build()
    built(3, **{GROUPS: 2}).build()  # its state is in memory
    with LocalCluster(simulated_time=True) as cluster:
        with pytest.raises(InvalidConfig, match=problem):
            cluster.submit(built(3).build(), conf_at(tmp_path, **{GROUPS: 2}))
        cluster.submit(built(2).build(), conf_at(tmp_path, **{GROUPS: 2}))
        with pytest.raises(InvalidConfig, match=problem):
            cluster.rebalance("few", parallelism={"count": 3})
