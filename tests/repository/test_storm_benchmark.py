"""The arithmetic of `benchmarks/beside_storm.py`, without Storm."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks import beside_storm, storm_cluster
from benchmarks.storm_cluster import MARK, members

LINES = ["a b", "c", "d e f", "g"]


def test_the_later_rate_omits_the_first_third() -> None:
    slow_then_fast = [3.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert beside_storm.later_rate([slow_then_fast], 600) == pytest.approx(400 / 4)


def test_the_later_rate_is_that_of_all_spouts_together() -> None:
    assert beside_storm.later_rate([[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]], 60) == pytest.approx(40 / 4)


def test_each_spout_repeats_its_own_sentences() -> None:
    times = dict(beside_storm.emitted(LINES, 6, spouts=2))
    assert times == {"a b": 2, "c": 2, "d e f": 1, "g": 1}
    assert beside_storm.words_of(LINES, 6, spouts=2) == 2 * 2 + 2 + 3 + 1


def test_a_wrong_count_is_found() -> None:
    right = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
    beside_storm.check_counts([right, {"g": 1}], LINES, (4,), spouts=2)
    with pytest.raises(AssertionError, match="a plain loop 7"):
        beside_storm.check_counts([right, {"g": 2}], LINES, (4,), spouts=2)
    with pytest.raises(AssertionError, match="by two tasks"):
        beside_storm.check_counts([right, {"g": 1, "a": 1}], LINES, (4,), spouts=2)


def test_tasks_in_one_worker_alone_are_refused() -> None:
    here, there = {"pid": 1}, {"pid": 2}
    assert beside_storm.check_places([here, there], [there, here]) == [1, 2]
    with pytest.raises(AssertionError, match="spread"):
        beside_storm.check_places([here, there], [here, here])


def test_settings_are_quoted_as_storm_unquotes_them() -> None:
    options = {"topology.worker.childopts": "-XX:+UseParallelGC", "topology.max.spout.pending": 1000}
    assert storm_cluster.options_text(options) == (
        "topology.worker.childopts=%22-XX%3A%2BUseParallelGC%22,topology.max.spout.pending=1000"
    )


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_only_processes_with_the_mark_are_found() -> None:
    with (
        subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "/a/cluster"}) as marked,
        subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "/a/cluster-2"}) as other,
    ):
        try:
            deadline = time.monotonic() + 10
            while not members("/a/cluster") and time.monotonic() < deadline:
                time.sleep(0.01)  # its environment exists from exec on
            assert members("/a/cluster") == [marked.pid]
        finally:
            marked.kill()
            other.kill()
