"""`--state [PATH][@EPOCH]`: a topology begins with an epoch that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from nimbus.submission.repeated import repetition
from squall.cluster.blobs import get_bundle
from squall_cli.options.state_start import epoch_problem
from tests.local_cluster.test_replaced_state import TRIAL, MeanCount, conf_at, replace, run
from tests.local_cluster.words_with_state import (
    Count,
    Pass,
    Rows,
    Words,
    commits_at,
    counts,
    expected,
    expected_rows,
    rows_at,
    words,
    words_to_rows,
)
from topology_api import InvalidConfig
from worker.epochs.log import LogView
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles


def kept(folder: Path) -> list[int]:
    """The epochs that are kept, the newest first."""
    return [
        each.record.epoch for each in CommittedState(EpochFiles(str(folder.parent), folder.name)).epochs()
    ]


def test_a_topology_begins_with_an_earlier_epoch_of_its_own_and_counts_exactly(tmp_path: Path) -> None:
    conf, total = conf_at(tmp_path), 300
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(0.1), Count(0.1)), conf)
        cluster.advance(8)
    epochs = kept(tmp_path / "words")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(0.1), Count(0.1)), conf, state=f"@{epochs[5]}")
        cluster.advance(1.1)
        assert sum(times for times, *_ in counts(cluster).values()) < 20 * 8  # it went back
        cluster.advance(60)
        assert counts(cluster) == expected(list(range(total)))
    assert kept(tmp_path / "words")[0] > epochs[0]


def test_it_begins_there_once_and_not_again_when_its_workers_are_started_again(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(10_000, 20), Pass(), Count()), conf)
        cluster.advance(5)
    epoch = kept(tmp_path / "words")[3]
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(10_000, 20), Pass(), Count()), conf, state=f"@{epoch}")
        cluster.advance(10)
        before = sum(times for times, *_ in counts(cluster).values())
        cluster.rebalance("words", 2)
        cluster.advance(10)
        assert sum(times for times, *_ in counts(cluster).values()) > before


def test_what_is_listed_and_looked_at_early_is_what_the_coordinator_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while files of other epochs are there, and whatever number of commits the next submission keeps."""
    topology = words(Words(10_000, 20), Pass(), Count())
    monkeypatch.setattr(EpochFiles, "sweep", lambda files, effect: None)
    for keep in (10, 3):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology, {**conf_at(tmp_path), "topology.epoch.keep": keep})
            cluster.advance(6)
    epochs = kept(tmp_path / "words")
    assert (
        epochs[:3] == list(range(epochs[0], epochs[0] - 3, -1)) and len(epochs) == 4
    )  # one of the version before
    there = {path.name.partition("-")[0] for path in (tmp_path / "words" / "snapshots").iterdir()}
    gone = epochs[2] - 1
    assert str(gone) in there
    conf = {**conf_at(tmp_path), "topology.epoch.keep": 20, "topology.state.webhdfs": None}
    text = f"these are kept: {', '.join(map(str, reversed(epochs)))}"
    assert epoch_problem(f"@{gone}", "words", conf, here=True).endswith(text)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf, state=f"@{gone}")
        cluster.advance(3)
        assert text in cluster.last_status("words").errors[-1].render()


def test_an_epoch_that_is_not_kept_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 20), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(3)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 20), Pass(), Count()), conf_at(tmp_path), state="@4711")
        cluster.advance(3)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        assert "does not keep this epoch; these are kept: 1" in status.errors[-1].render()
        with pytest.raises(InvalidConfig, match="--state needs a topology that keeps its state"):
            cluster.submit(words(Words(1), Pass(), Count()), name="other", state="@3")


def test_submit_refuses_an_epoch_that_this_host_sees_not_to_be_kept(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 20), Pass(), Count()), conf)
        cluster.advance(3)
    epochs = kept(tmp_path / "words")
    there = ", ".join(map(str, sorted(epochs)))
    folder = tmp_path / "words"
    said = f"{folder} does not keep epoch 4711; these are kept: {there}"
    assert epoch_problem("@4711", "words", conf, here=True) == f"--state @4711: {said}"
    assert epoch_problem(f"{folder}@4711", "other", {}, here=True) == f"--state {folder}@4711: {said}"
    assert epoch_problem("@4711", "words", conf, here=False) == "", "the cluster may have another folder"
    assert epoch_problem(f"@{epochs[1]}", "words", conf, here=True) == ""
    assert epoch_problem(str(folder), "other", {}, here=True) == ""
    assert epoch_problem("@4711", "elsewhere", conf, here=True) == ""
    assert not (tmp_path / "elsewhere").exists(), "looking makes no folder"


@pytest.mark.parametrize("at", ["", "@"])
def test_a_topology_begins_with_the_state_of_another_one_and_neither_touches_the_other(
    tmp_path: Path, at: str
) -> None:
    total = 200
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf_at(tmp_path / "a"))
        cluster.advance(5)
        epoch = kept(tmp_path / "a" / "words")[2]
        start = f"{tmp_path}/a/words" + (f"@{epoch}" if at else "")
        trial = words(Words(total, 20), Pass(), Count()).renamed("trial")
        cluster.submit(trial, conf_at(tmp_path / "b"), state=start)
        cluster.advance(1)
        times = cluster.state("trial", "count", "w0")["times"]
        assert times >= 10  # it went on from there
        cluster.advance(30)
        for name in ("words", "trial"):
            assert cluster.state(name, "count", "w0")["times"] == expected(list(range(total)))["w0"][0]
    assert {each[0].epoch for each in commits_at(tmp_path / "b" / "trial")}


def test_rows_of_a_token_sink_up_to_the_epoch_are_not_shown_again_and_later_ones_are(tmp_path: Path) -> None:
    total, path = 200, tmp_path / "rows.db"
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(total, 20), Count(), Rows(str(path))), conf)
        cluster.advance(5)
    epochs = kept(tmp_path / "words")
    shown = rows_at(path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(total, 20), Count(), Rows(str(path))), conf, state=f"@{epochs[2]}")
        cluster.advance(30)
    found = rows_at(path)
    again = len(found) - total
    assert sorted(set(found)) == expected_rows(list(range(total)))
    assert 0 < again <= 2 * 10 + 10  # two epochs of half a second, at 20 words a second
    assert set(shown) <= set(found)


def rolled_back(cluster: LocalCluster, first: str, state: str = "") -> None:
    """Ask for an earlier version."""
    nimbus = cluster._engine.nimbus
    version = next(
        each
        for each in map(nimbus.registry.versions.readable, nimbus.registry.versions.names())
        if each and each.id == first
    )
    submission = repetition(version, get_bundle(nimbus.registry.store, first), state)
    cluster._driver.command(lambda: nimbus.submit(submission))


def test_a_rollback_takes_the_newest_state_that_fits_or_names_the_way_to_an_older_one(tmp_path: Path) -> None:
    conf, total = conf_at(tmp_path), 1500
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf)
        first = cluster._engine.nimbus.topology("words").id
        run(cluster, 5)
        replace(cluster, words(Words(total, 20), Pass(), MeanCount()), conf)  # int -> float
        run(cluster, TRIAL + 10)
        with pytest.raises(InvalidConfig, match=f"`squall rollback words {first} --state @EPOCH`"):
            rolled_back(cluster, first)
        kept_epochs = CommittedState(EpochFiles(str(tmp_path), "words")).epochs()
        [switch] = [each.record.epoch for each in kept_epochs if each.version == first]
        rolled_back(cluster, first, f"@{switch}")
        run(cluster, TRIAL + 80)
        assert counts(cluster) == expected(list(range(total)))
        assert cluster._engine.nimbus.topology("words").repeats == first


def test_a_log_that_is_trimmed_all_the_time_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is listed, an earlier epoch, and another version that begins after it."""
    conf, total = conf_at(tmp_path), 300
    monkeypatch.setattr(LogView, "__post_init__", lambda self: setattr(self, "trim_every", 3))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(0.1), Count(0.1)), conf)
        cluster.advance(8)
    listed = CommittedState(EpochFiles(str(tmp_path), "words")).epochs()
    assert len(listed) == 10 and all(each.whole and each.version for each in listed)
    assert [each.record.epoch for each in listed] == sorted(
        (each.record.epoch for each in listed), reverse=True
    )
    now = (tmp_path / "words" / "log").stat().st_mtime + 1
    assert all(0 <= now - each.committed < 600 for each in listed)
    assert len(list((tmp_path / "words" / "log").iterdir())) <= 4
    with LocalCluster(simulated_time=True) as cluster:
        back = listed[5].record.epoch
        cluster.submit(words(Words(total, 20), Pass(0.1), Count(0.1)), conf, state=f"@{back}")
        cluster.advance(60)
        assert counts(cluster) == expected(list(range(total)))
    after = CommittedState(EpochFiles(str(tmp_path), "words")).epochs()
    assert after[0].record.epoch > listed[0].record.epoch in [each.record.epoch for each in after]
