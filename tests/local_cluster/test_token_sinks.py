"""Sinks whose rows are there once, whatever happens to the topology or to the answers of their database."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Rows,
    Words,
    eventually,
    expected_rows,
    rows_at,
    words_to_rows,
)
from topology_api import FailTuple, Tuple


@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_written_once_however_often_calls_fail_and_clusters_start_again(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.5}
    sink = Rows(str(tmp_path / "rows.db"), failing=0.3)
    for last in (False, False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Words(400, 100), Count(0.1), sink), conf)
            cluster.advance(40 if last else draw.uniform(0.1, 3.0))
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(400)))


class NeverAnswers(Rows):
    """Writes, and says nothing of it."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        super().write(epoch, rows, expected, token)
        raise OSError("the answer is lost")


def test_rows_whose_answers_are_lost_do_not_count_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.tasks.gathering.MOST_UNSHOWN", 100)
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(600, 100), Count(), NeverAnswers(str(tmp_path / "rows.db"))), conf)
        cluster.advance(40)
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(600)))


def test_while_committed_rows_wait_a_sink_takes_no_more_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.tasks.gathering.MOST_UNSHOWN", 100)
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.2,
        "topology.max.spout.pending": 20,
    }
    with LocalCluster(simulated_time=True) as cluster:
        sink = Rows(str(tmp_path / "rows.db"))
        cluster.submit(words_to_rows(Words(1_000, 100), Count(), sink, 1), conf)
        cluster.advance(0.01)
        (tmp_path / "away").touch()
        cluster.advance(20)
        assert 100 <= cluster.status("words").components["words"].emitted <= 200
        records = len(list((tmp_path / "state" / "words" / "log").iterdir()))
        cluster.advance(20)
        assert len(list((tmp_path / "state" / "words" / "log").iterdir())) == records, "nothing happens"
        (tmp_path / "away").unlink()
        cluster.advance(20)
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(1_000)))


def test_a_sink_may_also_run_in_the_loop(tmp_path: Path) -> None:
    """Without a spout that keeps the loop busy: one answer leads to the next."""
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    sink = Rows(str(tmp_path / "rows.db"))
    sink.threaded = False
    with LocalCluster() as cluster:
        cluster.submit(words_to_rows(Finite(100), Count(), sink), conf)
        cluster.wait("words", 60)
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(100)))


def test_rows_wait_for_a_database_that_is_away_and_a_topology_ends_after_the_last_one(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.5}
    sink = Rows(str(tmp_path / "rows.db"))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Finite(200, 100), Count(), sink), conf)
        cluster.advance(1)
        before = rows_at(tmp_path / "rows.db")
        (tmp_path / "away").touch()
        cluster.advance(20)
        status = cluster.status("words")
        assert status.state == "ACTIVE" and rows_at(tmp_path / "rows.db") == before
        assert "the database is away" in status.errors[-1].render()
        (tmp_path / "away").unlink()
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(200)))


def test_what_another_state_has_written_is_no_obstacle(tmp_path: Path) -> None:
    """Epochs begin at 1 in each state: a token belongs to one state alone."""
    sink = Rows(str(tmp_path / "rows.db"))
    for state in ("one", "two"):
        conf = {"topology.state.path": f"file://{tmp_path}/{state}", "topology.epoch.secs": 0.5}
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words_to_rows(Finite(50), Count(), sink), conf)
            cluster.advance(5)
            assert cluster.last_status("words").state == "COMPLETED"
    assert rows_at(tmp_path / "rows.db") == sorted(2 * expected_rows(list(range(50))))


class RefusesOne(Rows):
    def row(self, tup: Tuple) -> Any:
        if tup["word"] == "w3":
            raise FailTuple("w3 is no word")
        return super().row(tup)


def test_a_tuple_that_makes_no_row_is_a_dead_letter_of_the_sink(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.5}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Finite(70), Count(), RefusesOne(str(tmp_path / "rows.db"))), conf)
        cluster.advance(30)
        assert cluster.last_status("words").state == "COMPLETED"
        letters = cluster.dead_letters("words")
    assert [letter.values[0] for letter in letters] == ["w3"] * 10
    assert {letter.failure.error for letter in letters} == {"w3 is no word"}
    wanted = [row for row in expected_rows(list(range(70))) if row[0] != "w3"]
    assert rows_at(tmp_path / "rows.db") == wanted


def test_without_a_state_path_rows_are_written_in_batches(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Finite(50), Count(), Rows(str(tmp_path / "rows.db"))))
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(50)))


@pytest.mark.slow
@pytest.mark.soak
def test_rows_are_there_once_when_the_worker_is_killed_again_and_again(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    sink, path = Rows(str(tmp_path / "rows.db"), failing=0.1), tmp_path / "rows.db"
    with LocalCluster(processes=True) as cluster:
        cluster.submit(words_to_rows(Finite(3_000, 1_000), Count(0.01), sink), conf)
        for _ in range(3):
            eventually(lambda: any(worker.opened for worker in cluster.workers("words")))
            before = len(rows_at(path))
            eventually(lambda before=before: len(rows_at(path)) > before)  # type: ignore[misc]
            [worker] = cluster.workers("words")
            os.kill(worker.pid, signal.SIGKILL)
            eventually(lambda worker=worker: all(each.pid != worker.pid for each in cluster.workers("words")))  # type: ignore[misc]
        cluster.wait("words", 60)
    assert rows_at(path) == expected_rows(list(range(3_000)))
