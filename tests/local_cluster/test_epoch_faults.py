"""Faults that a topology with state meets from its machine and its input: clocks, disks, damaged files, huge keys."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Pass,
    Words,
    counts,
    eventually,
    expected,
    snapshots_at,
    words,
)
from topology_api import Bolt, ListState, MapState, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState
from worker.state.saved_rows import whole_state
from worker.tasks.epoch_bolt import EpochSetup


def conf_at(folder: Path, secs: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{folder}/state", "topology.epoch.secs": secs, **more}


def one_bolt(spout: Words, bolt: Bolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("bolt", bolt).fields_grouping("words", "word")
    return builder.build()


class Remembers(StatefulBolt):
    """Counts for ever, and for half an hour; a minute after the first tuple it fires once."""

    key = ("word",)
    seen = ValueState(int, default=0)
    lately = ValueState(int, default=0, ttl=1800)
    fired = ListState(float)

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        self.lately.value += 1
        if self.seen.value == 1:
            self.timer_after(60, name="once")

    def on_timer(self, name: str, time: float) -> None:
        self.fired.append(time)


class WallClock:
    """The time of day of all workers: that of their own clocks, and `ahead`, which a step changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 1_000_000.0
        setup: Any = EpochSetup

        def with_clock(**given: Any) -> Any:
            clocks = {
                "to_wall": lambda moment: moment + self.ahead,
                "from_wall": lambda moment: moment - self.ahead,
            }
            return setup(**{**given, **clocks})

        monkeypatch.setattr("worker.loop.epoch_tasks.EpochSetup", with_clock)


def remembered(cluster: LocalCluster) -> tuple[int, int, int]:
    found = cluster.state("words", "bolt", "w0")
    return found["seen"], found.get("lately", 0), len(found.get("fired", []))


def test_steps_of_the_wall_clock_change_nothing_in_a_worker_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(70, 100), Remembers()), conf_at(tmp_path))
        for step in (7_200, -20_000, 86_400, -90_000):
            cluster.advance(0.5)
            clock.ahead += step
        cluster.advance(50)
        assert remembered(cluster) == (10, 10, 0)
        cluster.advance(20)
        assert remembered(cluster) == (10, 10, 1)
        assert not cluster.status("words").errors


@pytest.mark.parametrize(
    ("ahead", "soon", "at_last"),
    [
        (3_600, (10, 0, 1), (10, 0, 1)),  # the half hour and the minute are over
        (0, (10, 10, 0), (10, 10, 1)),
        (-100, (10, 10, 0), (10, 10, 0)),  # both last as much longer
    ],
)
def test_times_are_those_of_the_wall_clock_where_a_topology_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, soon: Any, at_last: Any
) -> None:
    clock = WallClock(monkeypatch)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(70, 100), Remembers()), conf_at(tmp_path))
        cluster.advance(5)
    clock.ahead += 5 + ahead
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(70, 100), Remembers()), conf_at(tmp_path))
        cluster.advance(1)
        assert remembered(cluster) == soon
        cluster.advance(70)
        assert remembered(cluster) == at_last
        if ahead < 0:
            cluster.advance(100)
            assert remembered(cluster) == (10, 10, 1)


class HugeWords(Pass):
    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"] + "x" * 1_000_000, tup["number"]))


def test_a_key_of_a_megabyte_counts_as_any_other(tmp_path: Path) -> None:
    for count in (14, 28):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words(Words(count), HugeWords(), Count()), conf_at(tmp_path))
            cluster.advance(3)
            state = cluster.state("words", "count", "w0" + "x" * 1_000_000)
            assert state["times"] == count // 7


class ManyItems(StatefulBolt):
    key = ("word",)
    items = MapState(int, int)

    def __init__(self, count: int) -> None:
        self.count = count

    def execute(self, tup: Tuple) -> None:
        start = len(self.items)
        for number in range(start, start + self.count):
            self.items[number] = number


@pytest.mark.parametrize(
    "count",
    [2_000, pytest.param(500_000, marks=[pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1_200)])],
)
def test_a_map_of_very_many_items_under_one_key_goes_on(tmp_path: Path, count: int) -> None:
    for tuples in (1, 2):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(one_bolt(Words(tuples), ManyItems(count)), conf_at(tmp_path))
            cluster.advance(3)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(2), ManyItems(count)), conf_at(tmp_path))
        cluster.advance(1)
        for number in (0, 1):
            assert cluster.state("words", "bolt", f"w{number}")["items"] == {
                each: each for each in range(count)
            }


class OwnKeys(Pass):
    def execute(self, tup: Tuple) -> None:
        self.emit((f"key {tup['number']}", tup["number"]))


@pytest.mark.parametrize(
    "count",
    [3_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1_200)])],
)
def test_very_many_keys_may_change_in_one_epoch(tmp_path: Path, count: int) -> None:
    def topology() -> Topology:
        builder = TopologyBuilder("words")
        builder.set_spout("words", Finite(count))
        builder.set_bolt("pass", OwnKeys()).shuffle_grouping("words")
        builder.set_bolt("count", Count(), 2).fields_grouping("pass", "word")
        return builder.build()

    # The epoch ends with the input.
    conf = conf_at(tmp_path, 3_600.0, **{"topology.epoch.uncommitted": count + 1})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(), conf)
        cluster.advance(10)
        assert cluster.last_status("words").state == "COMPLETED"
    kept = [
        snapshot
        for snapshot in snapshots_at(tmp_path / "state" / "words")
        if snapshot.task.startswith("count")
    ]
    states = [whole_state(snapshot.state, snapshot.parts)["states"] for snapshot in kept]
    assert sum(len(each["times"]["values"]) for each in states) == count


def damage_flip(newest: Path, folder: Path) -> None:
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)


def damage_empty(newest: Path, folder: Path) -> None:
    newest.write_bytes(b"")


def damage_swap(newest: Path, folder: Path) -> None:
    """The snapshot of another task of the same epoch."""
    shutil.copy(newest.with_name(newest.name.replace("count.0", "count.1")), newest)


def damage_other(newest: Path, folder: Path) -> None:
    """The snapshot of the same task of another topology, of the same epoch."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(50), Pass(), Count()), conf_at(folder / "another"))
        cluster.advance(1.1)
    others = (folder / "another" / "state" / "words" / "snapshots").glob("*-count.0")
    shutil.copy(max(others, key=lambda path: int(path.name.split("-")[0])), newest)


@pytest.mark.parametrize("damage", [damage_flip, damage_empty, damage_swap, damage_other])
def test_a_snapshot_that_is_not_what_was_committed_is_named_and_nothing_runs(
    tmp_path: Path, damage: Any
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1.1)
    newest = max(
        (tmp_path / "state" / "words" / "snapshots").glob("*-count.0"),
        key=lambda path: int(path.name.split("-")[0]),
    )
    damage(newest, tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        assert f"snapshot {newest.name} is damaged" in status.errors[-1].render()


def test_snapshots_of_a_newer_release_are_named_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster(simulated_time=True) as cluster, monkeypatch.context() as patch:
        patch.setattr("worker.epochs.snapshot_files._HEAD", b"SQEP99\n")
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1.1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(1)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        text = status.errors[-1].render()
        assert "begins with b'SQEP99\\n'" in text and "another version of Squall has written it" in text


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_epochs_wait_while_the_disk_is_full_and_each_tuple_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("worker.loop.store_calls.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("worker.loop.store_calls.LONGEST_PAUSE", 0.05)
    log = tmp_path / "state" / "words" / "log"
    with LocalCluster() as cluster:
        cluster.submit(words(Words(600, 300), Pass(), Count()), conf_at(tmp_path))
        eventually(lambda: log.is_dir() and len(list(log.iterdir())) > 3)
        failed = []
        with monkeypatch.context() as patch:
            real = getattr(os, call)

            def full(*given: Any, **more: Any) -> Any:
                failed.append(call)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patch.setattr(f"squall.stores.local.os.{call}", full)
            eventually(lambda: len(failed) > 5)
            patch.setattr(f"squall.stores.local.os.{call}", real)
        eventually(lambda: cluster.status("words").components["words"].acked == 600)
        assert counts(cluster) == expected(list(range(600)))
