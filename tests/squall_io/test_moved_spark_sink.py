"""A table has each row once when the topology of its sink moves to another `topology.state.path` (`--state PATH`).

Whole topologies on simulated time; pyarrow writes the files instead of Spark.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local_cluster import LocalCluster
from squall.stores.files import FilesRefused
from squall_io.spark import SparkSink
from squall_io.spark.manifest import epochs
from squall_io.spark.sink import epoch_writer
from tests.local_cluster.words_with_state import Count, Words, commits_at, expected_rows, words_to_rows
from tests.squall_io.sink_without_spark import without_spark
from tests.table_of_the_contract import staged, visible
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles

TOTAL = 120


@pytest.fixture(autouse=True)
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """While it is not empty, no task can show what is committed."""
    why: list[str] = []
    shows = epochs.show_epoch

    def show(*args: Any, **more: Any) -> epochs.Shown:
        if why:
            raise FilesRefused(why[0])
        return shows(*args, **more)

    without_spark(monkeypatch)
    monkeypatch.setattr(epoch_writer, "show_epoch", show)
    yield why


def begun(cluster: LocalCluster, table: Path, state: Path, start: str = "") -> None:
    sink = SparkSink(str(table), "word string, times bigint")
    conf = {"topology.state.path": f"file://{state}", "topology.epoch.secs": 0.5}
    cluster.submit(words_to_rows(Words(TOTAL, 20), Count(), sink), conf, state=start)


def killed(cluster: LocalCluster) -> None:
    cluster.kill("words", 5)
    cluster.advance(60)
    assert not cluster.topologies()


@pytest.mark.parametrize("way", ["killed", "not shown", "renamed", "twice"])
def test_a_table_has_each_row_once_over_a_move(tmp_path: Path, away: list[str], way: str) -> None:
    table, state = tmp_path / "table", tmp_path / "old" / "words"
    with LocalCluster(simulated_time=True) as cluster:
        begun(cluster, table, state.parent)
        cluster.advance(2.2)
        if way == "not shown":
            away.append("cannot write it: no permission")
            cluster.advance(1)
        killed(cluster)
    shown, left = len(visible(table)), staged(table)
    assert 20 < shown < TOTAL - 20 and (left > 0) == (way == "not shown")
    away.clear()
    if way == "renamed":
        state = state.rename(tmp_path / "backup")
    if way == "twice":
        with LocalCluster(simulated_time=True) as cluster:
            begun(cluster, table, tmp_path / "between", str(state))
            cluster.advance(1.2)
            killed(cluster)
        assert shown < len(visible(table)) < TOTAL
        state = tmp_path / "between" / "words"
    with LocalCluster(simulated_time=True) as cluster:
        begun(cluster, table, tmp_path / "new", str(state))
        cluster.advance(60)
    assert sorted(visible(table)) == expected_rows(list(range(TOTAL)))
    assert staged(table) == 0


@pytest.mark.parametrize("way", ["running", "earlier epoch"])
def test_only_rows_after_the_epoch_that_is_gone_back_to_are_there_twice(
    tmp_path: Path, away: list[str], way: str
) -> None:
    """The old topology still runs and shows, like the new one, what both have committed; or the new one begins earlier."""
    table, state = tmp_path / "table", tmp_path / "old" / "words"
    with LocalCluster(simulated_time=True) as cluster:
        begun(cluster, table, state.parent)
        cluster.advance(2.2)
        away.append("cannot write it: no permission")
        cluster.advance(1)
        shutil.copytree(state, tmp_path / "copy" / "words")
        away.clear()
        cluster.advance(2)
        killed(cluster)
    before = visible(table)
    kept = CommittedState(EpochFiles(str(tmp_path / "copy"), "words")).epochs()
    last = max(each.record.epoch for each in kept)
    start = tmp_path / "copy" / "words" if way == "running" else f"{state}@{last}"
    with LocalCluster(simulated_time=True) as cluster:
        begun(cluster, table, tmp_path / "new", str(start))
        cluster.advance(60)
    positions = [each for each in commits_at(tmp_path / "copy" / "words")[-1] if each.task == "words/0"]
    copied = expected_rows(list(range(msgspec.msgpack.decode(positions[0].position))))
    expected, found = expected_rows(list(range(TOTAL))), Counter(visible(table))
    assert sorted(found) == expected
    assert sorted((found - Counter(expected)).elements()) == sorted({*before} - {*copied}) != []
