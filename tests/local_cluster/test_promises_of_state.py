"""The promises 7 to 10 of the README, literally: each test is named after its promise."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.staged_words import StagedRows
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Newest,
    Pass,
    Rows,
    Words,
    counts,
    expected,
    expected_rows,
    words,
)
from topology_api import InvalidTopology, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState
from topology_api.guarantees import guarantees

#: Of each sink's folder: epoch -> what it has made visible with it.
WRITTEN: defaultdict[str, defaultdict[int, Counter[tuple[str, int]]]] = defaultdict(
    lambda: defaultdict(Counter)
)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    WRITTEN.clear()


def conf_at(folder: Path) -> dict[str, Any]:
    return {"topology.state.path": f"file://{folder}/state", "topology.epoch.secs": 0.5}


class NotedRows(Rows):
    """A token sink that notes the epoch of each row that it has written."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        written = super().write(epoch, rows, expected, token)
        if written:
            WRITTEN[self.path][epoch or 0].update((row[0], row[1]) for row in rows)
        return written


class NotedStages(StagedRows):
    """A staged sink that notes the epoch of each row of a file that it has made visible."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        staged = Path(self.folder, "staged", handle["name"])
        lines = [line.split() for line in staged.read_text().splitlines()] if staged.exists() else []
        super().commit(epoch, handle)
        WRITTEN[self.folder][epoch or 0].update((word, int(times)) for word, times in lines)


def two_sinks(folder: Path, total: int) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(total, 100))
    builder.set_bolt("count", Count(0.1), 2).fields_grouping("words", "word")
    builder.set_bolt("rows", NotedRows(str(folder / "rows.db")), 2).shuffle_grouping("count")
    builder.set_bolt("files", NotedStages(str(folder / "files")), 3).shuffle_grouping("count")
    return builder.build()


@pytest.mark.parametrize("seed", range(2))
def test_state_counts_each_tuple_once(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for last in (False, False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words(Words(300, 100), Pass(0.1), Count(0.1)), conf_at(tmp_path))
            cluster.advance(40 if last else draw.uniform(0.2, 2.0))
            if last:
                assert counts(cluster) == expected(list(range(300)))


@pytest.mark.parametrize("seed", range(2))
def test_committing_sinks_show_each_tuple_once_and_all_sinks_the_same_cut(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for last in (False, False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(two_sinks(tmp_path, 300), conf_at(tmp_path))
            cluster.advance(40 if last else draw.uniform(0.6, 2.0))
    rows, files = WRITTEN[str(tmp_path / "rows.db")], WRITTEN[str(tmp_path / "files")]
    assert sorted(sum(rows.values(), Counter()).elements()) == expected_rows(list(range(300)))
    assert len(rows) > 3
    assert rows == files, "epoch by epoch, the same cut"


class RaisesLate(StatefulBolt):
    """Changes its state, emits, sets a timer, and raises: for one word always, in its timer once for each other."""

    key = ("word",)
    outputs = Count.outputs
    times = ValueState(int, default=0)
    total = ValueState(int, default=0)
    fired = ValueState(int, default=0)

    def prepare(self, context: Any) -> None:
        self.tried: set[str] = set()

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.total.value += tup["number"]
        self.timer_after(0.5)
        self.emit((tup["word"], self.times.value, self.total.value))
        if tup["word"] == "w3":
            raise ValueError("w3 is no word")

    def on_timer(self, name: str, time: float) -> None:
        self.fired.value += 1
        if self.current_key not in self.tried:
            self.tried.add(self.current_key)
            raise ValueError("the first try of a timer")


def test_a_call_is_all_or_nothing(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(70, 100))
    builder.set_bolt("count", RaisesLate()).fields_grouping("words", "word")
    builder.set_bolt("newest", Newest()).fields_grouping("count", "word")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path))
        cluster.advance(40)
        for word, (times, total, *_) in expected(list(range(70))).items():
            count, newest = (cluster.state("words", each, word) for each in ("count", "newest"))
            if word == "w3":
                assert (count["times"], count["fired"], newest["seen"]) == (0, 0, 0)
            else:
                assert (count["times"], count["total"]) == (times, total), "the other tuples go on"
                assert (newest["seen"], newest["most"]) == (times, times), "emitted once"
                assert count["fired"] == 1, "the first try has not happened"
        letters = cluster.dead_letters("words")
        assert [letter.values[0] for letter in letters] == ["w3"] * 10, "once each"
        assert {letter.component for letter in letters} == {"count"}, "where they failed"


def test_nothing_is_silently_weaker(tmp_path: Path) -> None:
    def built(require: str | None) -> Topology:
        conf = {**conf_at(tmp_path), **({"topology.require": require} if require else {})}
        builder = TopologyBuilder("words", conf)
        builder.set_spout("words", Finite(10))
        builder.set_bolt("count", Count()).fields_grouping("words", "word")
        builder.set_bolt("writes", Pass()).shuffle_grouping("count")
        return builder.build()

    topology = built(None)
    [pair] = guarantees(topology, topology.conf).pairs
    assert (pair.spout, pair.through, pair.sink, pair.level) == (
        "words",
        ("count",),
        "writes",
        "at-least-once",
    )
    [obstacle] = pair.obstacles
    assert obstacle.component == "writes", "which component lowers it"
    with pytest.raises(InvalidTopology) as refused:
        built("exactly-once")
    assert obstacle.text in str(refused.value), "with that sentence"
