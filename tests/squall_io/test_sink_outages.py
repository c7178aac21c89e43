"""What a batch that storage refuses means for its tuples: they wait for a person, and tuples that do not fit the schema do not.

Whole topologies on simulated time; pyarrow writes the files instead of Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.stores.files import FilesRefused
from squall_io.spark import SparkSink
from squall_io.spark.sink import sink_table
from tests.squall_io.sink_without_spark import PyarrowWriter, without_spark
from tests.table_of_the_contract import staged, visible
from topology_api import Context, Fields, Replay, Spout, Topology, TopologyBuilder

REFUSED = "cannot write it: no permission for /warehouse/counts"
#: The time of the topology, and when storage refuses to write.
CLOCK: list[Callable[[], float]] = []
REFUSES: list[tuple[float, float]] = []
#: How many calls of the writer were refused.
CALLS: Counter[str] = Counter()


class RefusedWriter(PyarrowWriter):
    """Storage that lacks a permission for a while."""

    def write(self, rows: Any, folder: str) -> None:
        if CLOCK and any(since <= CLOCK[0]() < until for since, until in REFUSES):
            CALLS["refused"] += 1
            raise FilesRefused(REFUSED)
        super().write(rows, folder)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr(sink_table, "TableWriter", RefusedWriter)
    CLOCK.clear()
    REFUSES.clear()
    CALLS.clear()


class Rows(Spout):
    """Ten rows a second; then it goes on without any. `bad`: those whose count is a text."""

    outputs = Fields("word", "count")
    replay = Replay(max_attempts=3, first_delay=1.0)

    def __init__(self, count: int, bad: set[int]) -> None:
        self.count, self.bad, self.sent = count, bad, 0

    def open(self, context: Context) -> None:
        CLOCK.append(context.now)

    def next_tuple(self) -> float:
        if self.sent < self.count:
            count: object = "many" if self.sent in self.bad else self.sent
            self.emit((f"word {self.sent}", count), message_id=self.sent)
            self.sent += 1
        return 0.1


def storing(table: Path, count: int, bad: set[int] | None = None) -> Topology:
    builder = TopologyBuilder("counts")
    builder.set_spout("rows", Rows(count, bad or set()))
    sink = SparkSink(str(table), "word string, count bigint", batch_size=20, batch_interval=0.5)
    builder.set_bolt("sink", sink).shuffle_grouping("rows")
    return builder.build()


def rows(*numbers: int) -> list[tuple[str, int]]:
    return [(f"word {number}", number) for number in numbers]


def test_a_refused_batch_waits_until_a_person_has_removed_the_cause(tmp_path: Path) -> None:
    table = tmp_path / "table"
    REFUSES.append((3.0, 500.0))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(storing(table, 60), {"topology.on.outage": "wait"})
        cluster.advance(300)
        status = cluster.status("counts")
        [down] = status.components["sink"].down
        assert REFUSED in down.error and str(table) in down.error and down.since < 10.0
        assert status.components["rows"].failed == 0 and staged(table) == 0
        before = CALLS["refused"]
        cluster.advance(190)
        assert CALLS["refused"] - before <= 4, "one tuple a minute is tried"
        cluster.advance(120)
        assert cluster.status("counts").components["rows"].acked == 60
        assert cluster.dead_letters("counts") == [] and not cluster.status("counts").components["sink"].down
    assert sorted(visible(table)) == sorted(rows(*range(60))) and staged(table) == 0


def test_where_every_failure_counts_its_tuples_are_replayed_and_given_up(tmp_path: Path) -> None:
    table = tmp_path / "table"
    REFUSES.append((3.0, 500.0))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(storing(table, 60), {"topology.on.outage": "give-up"})
        cluster.advance(60)
        letters = cluster.dead_letters("counts")
        spout = cluster.status("counts").components["rows"]
        assert spout.failed == len(letters) > 10 and spout.acked == 60 - len(letters)
        assert {each.attempts for each in letters} == {3}
        assert all(REFUSED in str(each.failure.error) for each in letters)
    kept = set(range(60)) - {int(str(each.message_id)) for each in letters}
    assert sorted(visible(table)) == sorted(rows(*kept)) and staged(table) == 0


@pytest.mark.parametrize("bad", [set(range(20)), {0, 7, 19}], ids=["all", "some"])
def test_tuples_that_do_not_fit_are_given_up_and_say_nothing_of_storage(
    tmp_path: Path, bad: set[int]
) -> None:
    table = tmp_path / "table"
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(storing(table, 20, bad), {"topology.on.outage": "wait"})
        cluster.advance(20)
        status = cluster.status("counts")
        letters = cluster.dead_letters("counts")
        assert {int(str(each.message_id)) for each in letters} == bad
        assert {each.attempts for each in letters} == {3}
        assert all("'count'" in str(each.failure.error) for each in letters)
        assert status.components["rows"].acked == 20 - len(bad)
        assert not any(each.down or each.undecided for each in status.components.values())
    assert sorted(visible(table)) == sorted(rows(*(set(range(20)) - bad)))


def test_tuples_that_do_not_fit_are_given_up_while_batches_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "table"
    REFUSES.append((2.0, 100.0))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(storing(table, 60, {30}), {"topology.on.outage": "wait"})
        cluster.advance(200)
        [letter] = cluster.dead_letters("counts")
        assert letter.message_id == "30" and letter.attempts == 3
        assert cluster.status("counts").components["rows"].acked == 59
    assert len(visible(table)) == 59
