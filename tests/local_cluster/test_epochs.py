"""Topologies whose state is at a path: what a cluster that starts again goes on from, and what is counted once."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import (
    Count,
    CountTexts,
    EmitsInOpen,
    EmitsInPrepare,
    Files,
    Finite,
    Forward,
    Needs,
    Newest,
    OneWord,
    Partitions,
    Pass,
    Refuses,
    SlowCount,
    Words,
    Writes,
    counts,
    eventually,
    expected,
    read_all,
    snapshots_at,
    words,
)
from topology_api import Bolt, InvalidConfig, Replay, TopologyBuilder


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2))])
def test_each_tuple_counts_once_however_often_the_cluster_starts_again(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 0.5,
        "topology.queue.size": draw.choice([16, 64, 4096]),
        "topology.max.spout.pending": draw.choice([5, 1000]),
        "topology.workers": 1 + seed,
    }
    total = 500
    for _ in range(4):
        topology = words(Words(total, 100), Pass(0.1), Count(0.1))
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(draw.uniform(0.1, 3.0))
    with LocalCluster(simulated_time=True, seed=seed) as cluster:
        cluster.submit(words(Words(total, 100), Pass(0.1), Count(0.1)), conf)
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(total)))
        assert cluster.dead_letters("words") == []


def test_a_tuple_that_always_fails_is_one_dead_letter_of_the_bolt_and_the_rest_counts(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    spout = Words(100)
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    poison = frozenset({3, 50})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, Pass(poison=poison), Count()), conf)
        cluster.advance(5)
        assert counts(cluster) == expected([number for number in range(100) if number not in poison])
        letters = cluster.dead_letters("words")
        assert sorted(letter.values[1] for letter in letters) == [3, 50]
        assert {(letter.failure.component, letter.failure.attempts) for letter in letters} == {("pass", 3)}
        status = cluster.status("words").components["words"]
        assert (status.acked, status.failed, status.pending) == (100, 0, 0)


def test_while_a_bolt_works_for_no_tuple_no_failure_counts(tmp_path: Path) -> None:
    """`topology.on.outage: wait`: a store that is away for longer than all attempts take costs no tuple."""
    gate = tmp_path / "store"
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.2,
        "topology.on.outage": "wait",
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(30), Needs(str(gate)), Count()), conf)
        cluster.advance(10)  # 100 tries for each tuple, of which 30 may fail
        assert counts(cluster) == expected([])
        gate.touch()
        cluster.advance(10)
        assert counts(cluster) == expected(list(range(30)))
        assert cluster.dead_letters("words") == []


def test_fail_tuple_counts_at_once(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.on.outage": "wait"}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(20), Refuses(), Count()), conf)
        cluster.advance(30)
        assert len(cluster.dead_letters("words")) == 20


@pytest.mark.parametrize("workers", [1, 3])
def test_a_topology_completes_once_its_last_epoch_is_committed_and_has_nothing_to_do_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 60,
        "topology.workers": workers,
    }
    for started in (1, 2):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words(Finite(50), OneWord(), Writes(str(tmp_path / "written")), 1), conf)
            cluster.advance(5)  # much less than an epoch
            assert cluster.last_status("words").state == "COMPLETED", started
        assert ("the topology has nothing to do" in caplog.text) == (started == 2)
    assert (tmp_path / "written").read_text().splitlines() == ["50"]


def test_a_source_that_has_ended_holds_up_no_epoch_of_another_one_after_a_restart(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    builder = TopologyBuilder("words")
    builder.set_spout("short", Finite(30))
    builder.set_spout("words", Words(500, 100))
    builder.set_bolt("count", Count(), 2).fields_grouping("short", "word").fields_grouping("words", "word")
    builder.set_bolt("newest", Newest()).fields_grouping("count", "word")
    numbers = [*range(30), *range(500)]
    for secs in (1.1, 1.1, 10):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(secs)
            acked = cluster.status("words").components["words"].acked
            found = counts(cluster)
        assert acked, "no epoch was committed"
    assert found == expected(numbers)


def test_a_spout_that_cannot_go_back_is_acked_with_the_commits(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Forward(100), Pass(0.1), Count(0.1)), conf)
        cluster.advance(0.1)
        assert cluster.status("words").components["words"].acked == 0
        cluster.advance(10)
        assert counts(cluster) == expected(list(range(100)))
        assert cluster.status("words").components["words"].acked == 100


def test_what_was_emitted_before_a_restore_counts_once(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(EmitsInOpen(100), Pass(), Count()), conf)
        cluster.advance(5)
        assert counts(cluster) == expected(list(range(100)))
        spout = cluster.status("words").components["words"]
        assert (spout.acked, spout.pending) == (100, 0)


def test_what_prepare_emits_is_not_emitted(tmp_path: Path) -> None:
    """It would be emitted at each start."""
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), EmitsInPrepare(), Count()), conf)
        cluster.advance(5)
        assert counts(cluster) == expected(list(range(100)))


def test_nothing_is_committed_while_nothing_happens(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf)
        cluster.advance(5)
        records = len(list((tmp_path / "words" / "log").iterdir()))
        cluster.advance(100)
        assert len(list((tmp_path / "words" / "log").iterdir())) == records
        assert cluster.status("words").components["words"].acked == 100


def test_threads_and_real_time_count_the_same(tmp_path: Path) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 0.1,
        "topology.queue.size": 16,
    }
    spout, between, count = Words(2_000), Pass(0.01), Count(0.01)
    for component in (spout, between, count):
        component.threaded = True
    for _ in range(3):
        with LocalCluster() as cluster:
            cluster.submit(words(spout, between, count), conf)
            time.sleep(0.4)
    spout.count = 3_000  # those before may all be committed
    with LocalCluster() as cluster:
        cluster.submit(words(spout, between, count), conf)
        eventually(lambda: cluster.status("words").components["words"].acked > 0)
        eventually(lambda: counts(cluster) == expected(list(range(3_000))))


def test_barriers_pass_outboxes_that_are_full(tmp_path: Path) -> None:
    """Here epochs end while tuples wait in every outbox: they are part of the snapshots."""
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 0.05,
        "topology.queue.size": 16,
        "topology.max.spout.pending": None,
    }
    with_rows = 0
    for start in range(4):
        with LocalCluster() as cluster:  # each start has words that none before it can have committed
            cluster.submit(words(Words(1_000 + 100 * start), Pass(), SlowCount()), conf)
            eventually(lambda: cluster.status("words").components["words"].acked > 0)
            time.sleep(0.2)
        with_rows += sum(bool(snapshot.outboxes) for snapshot in snapshots_at(tmp_path / "words"))
    assert with_rows, "no outbox held anything"
    with LocalCluster() as cluster:
        cluster.submit(words(Words(1_400), Pass(), SlowCount()), conf)
        eventually(lambda: cluster.status("words").components["words"].acked > 0)
        eventually(lambda: counts(cluster) == expected(list(range(1_400))))


@pytest.mark.parametrize(
    ("bolt", "conf", "text"),
    [
        (Pass(), {"topology.acking": False}, "topology.acking is false"),
        (
            Pass(),
            {"topology.state.path": "state"},
            "'state': give a folder as file:///path or hdfs://host:port/path, or auto for a folder of the cluster",
        ),
    ],
)
def test_what_is_not_possible_yet_is_refused_with_its_reason(
    tmp_path: Path, bolt: Bolt, conf: dict[str, Any], text: str
) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", **conf}
    with LocalCluster(simulated_time=True) as cluster, pytest.raises(InvalidConfig) as caught:
        cluster.submit(words(Words(1), bolt, Count()), conf)
    assert text in str(caught.value)


def test_of_two_clusters_with_one_path_the_later_one_goes_on_and_the_other_ends(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as first, LocalCluster(simulated_time=True) as second:
        first.submit(words(Words(300, 100), Pass(), Count()), conf)
        first.advance(1)
        second.submit(words(Words(300, 100), Pass(), Count()), conf)
        for _ in range(20):
            first.advance(0.2)
            second.advance(0.2)
        status = first.last_status("words")
        assert status.state == "FAILED"
        assert "another topology uses the state in" in status.errors[-1].render()
        assert counts(second) == expected(list(range(300)))


@pytest.mark.parametrize("tasks", [1, 3])
def test_positions_of_another_number_of_spout_tasks_are_refused(tmp_path: Path, tasks: int) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    for number in (2, tasks):
        builder = TopologyBuilder("words")
        builder.set_spout("words", Words(100), number)
        builder.set_bolt("count", Count()).fields_grouping("words", "word")
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(1)
            status = cluster.last_status("words")
    assert status.state == "FAILED"
    assert (
        f"spout 'words' has {tasks} tasks and had 2, and has no merge_positions" in status.errors[-1].render()
    )


@pytest.mark.parametrize("follow", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_spout_that_merges_its_positions_may_have_another_number_of_tasks(
    tmp_path: Path, follow: bool
) -> None:
    """At each start, and by rebalances; with `follow=False` also while some of its tasks have finished."""
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.3,
        "topology.workers": 2,
    }
    total = 1_600
    (tmp_path / "files").mkdir()
    for tasks, then in ((2, 5), (1, 3), (4, 2)):
        builder = TopologyBuilder("words")
        builder.set_spout("words", Partitions(total, 40, follow=follow), tasks)
        builder.set_bolt("pass", Pass(0.05), 2).shuffle_grouping("words")
        builder.set_bolt("count", Count(0.05), 2).fields_grouping("pass", "word")
        builder.set_bolt("newest", Files(str(tmp_path / "files"))).fields_grouping("count", "word")
        with LocalCluster(simulated_time=True, seed=tasks) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(1.7)
            cluster.rebalance("words", parallelism={"words": then})
            cluster.advance(3.3 if tasks != 4 else 40.0)
            status = cluster.last_status("words")
    assert status.state == ("ACTIVE" if follow else "COMPLETED")
    wanted = {word: f"{times} {times}" for word, (times, *_) in expected(list(range(total))).items()}
    assert read_all(tmp_path / "files") == wanted


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 30))])
def test_bolts_may_have_other_numbers_of_tasks_at_each_start(tmp_path: Path, seed: int) -> None:
    """Each start finds tuples on their way, and parked ones."""
    draw = random.Random(seed)
    for start in range(5):
        conf = {
            "topology.state.path": f"file://{tmp_path}",
            "topology.epoch.secs": 0.3,
            "topology.queue.size": draw.choice([16, 4096]),
            "topology.workers": draw.choice([1, 2, 3]),
        }
        topology = words(Words(600, 150), Pass(0.1), Count(0.1), draw.choice([1, 2, 3, 5]))
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(30 if start == 4 else draw.uniform(0.3, 2.0))
            if start == 4:
                assert counts(cluster) == expected(list(range(600)))
                assert cluster.dead_letters("words") == []


def test_a_rebalance_may_change_the_numbers_of_tasks_of_bolts(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.5, "topology.workers": 2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(2_000, 100), Pass(0.05), Count(0.05)), conf)
        for change in ({"count": 5}, {"count": 1, "pass": 3}, {"newest": 1, "count": 3}):
            cluster.advance(3)
            cluster.rebalance("words", parallelism=change)
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(2_000)))
        status = cluster.status("words").components
        assert [status[name].tasks for name in ("pass", "count", "newest")] == [3, 3, 1]


def test_another_cluster_goes_on_whatever_number_its_submission_has(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        for _ in range(3):
            cluster.submit(words(Words(50), Pass(), Count()), conf)
            cluster.advance(1)
            cluster.kill("words")
            cluster.advance(40)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf)
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(100)))


def test_a_path_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name, why in (
        ("file", "a file lies where a folder must be"),
        ("link", f"{tmp_path}/link is a link to {tmp_path}/gone, which is not there: make this folder"),
    ):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(
                words(Words(1), Pass(), Count()), {"topology.state.path": f"file://{tmp_path}/{name}"}
            )
            cluster.advance(1)
            status = cluster.last_status("words")
        assert status.state == "FAILED"
        text = status.errors[-1].render()
        assert f"cannot keep the state of the topology in {tmp_path}/{name}/words" in text
        assert why in text


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Keys and rows are pickled there: who may write it can run code in the worker."""
    (tmp_path / "words").mkdir()
    (tmp_path / "words").chmod(0o777)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(1), Pass(), Count()), {"topology.state.path": f"file://{tmp_path}"})
        cluster.advance(1)
        status = cluster.last_status("words")
    assert status.state == "FAILED"
    assert f"other users have access to {tmp_path}/words (mode 0777)" in status.errors[-1].render()


def test_a_state_with_another_type_is_refused_by_name(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), Count()), conf)
        cluster.advance(1.1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100), Pass(), CountTexts()), conf)
        cluster.advance(1)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        assert "saved as ValueState(int) and is declared as ValueState(str) now" in status.errors[-1].render()


@pytest.mark.parametrize(
    "workers",
    [
        *(pytest.param(some, marks=pytest.mark.soak) for some in ((1, None), (3, 1), (1, 3))),
        (3, 2),
    ],
)
def test_a_rebalance_and_a_kill_go_on_from_a_last_commit(
    tmp_path: Path, workers: tuple[int, int | None]
) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 5,
        "topology.workers": workers[0],
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(2_000, 100), Pass(), Count()), conf)
        cluster.advance(3)
        cluster.rebalance("words", workers[1])  # it drains, and commits what was drained
        cluster.advance(1)
        before = sum(times for times, *_ in counts(cluster).values())
        assert before >= 300, "the commit before the rebalance holds what the spout had emitted"
        cluster.deactivate("words")
        cluster.advance(6)
        cluster.activate("words")
        cluster.kill("words")
        cluster.advance(60)
        cluster.submit(words(Words(2_000, 100), Pass(), Count()), conf)
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(2_000)))


def test_what_a_cluster_cannot_change_yet_is_refused(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}"}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(10), Pass(), Count()), conf)
        with pytest.raises(InvalidConfig, match="spout 'words' has 1 tasks, and would have 3"):
            cluster.rebalance("words", parallelism={"words": 3})
        cluster.rebalance("words", parallelism={"count": 2})
        cluster.advance(40)
        assert counts(cluster) == expected(list(range(10)))


@pytest.mark.slow
@pytest.mark.soak  # the accounts of examples/ and tests/faults/test_kills_with_state.py lose each of their workers in every run
def test_whichever_of_three_workers_is_killed_each_tuple_counts_once(tmp_path: Path) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.2,
        "topology.workers": 3,
    }
    began = time.time()
    total = 4_000
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(total, 1_000))
    poison = frozenset({700, 2_100, 3_500})
    builder.set_bolt("pass", Pass(0.01, poison), 2).shuffle_grouping("words")
    builder.set_bolt("count", Count(0.01), 2).fields_grouping("pass", "word")
    (tmp_path / "files").mkdir()
    builder.set_bolt("newest", Files(str(tmp_path / "files"))).fields_grouping("count", "word")
    numbers = [number for number in range(total) if number not in poison]
    wanted = {word: f"{times} {times}" for word, (times, *_) in expected(numbers).items()}
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build(), conf)
        for turn in range(5):
            eventually(lambda: len([each for each in cluster.workers("words") if each.pid]) == 3)
            before = read_all(tmp_path / "files")
            eventually(lambda before=before: read_all(tmp_path / "files") != before)  # type: ignore[misc]
            worker = sorted(cluster.workers("words"), key=lambda each: each.worker)[turn % 3]
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            eventually(lambda worker=worker: all(each.pid != worker.pid for each in cluster.workers("words")))  # type: ignore[misc]
        eventually(lambda: read_all(tmp_path / "files") == wanted)
        eventually(lambda: cluster.status("words").components["words"].pending == 0)
        eventually(lambda: len(cluster.dead_letters("words")) == len(poison))
        time.sleep(0.5)  # a tuple that counted twice would still come
        assert read_all(tmp_path / "files") == wanted
        eventually(lambda: cluster.status("words").components["count"].keys == len(wanted))
        status = cluster.status("words")
        letters = cluster.dead_letters("words")
    epoch = status.epoch
    assert epoch is not None and epoch.number > 5 and epoch.age is not None
    assert epoch.bytes and epoch.duration and epoch.slowest and epoch.slowest.component in status.components
    assert epoch.rewinds >= 5 and epoch.rewound is not None
    assert epoch.age <= time.time() - began + 1 and began <= epoch.rewound <= time.time() + 1
    assert re.search("worker w|placed again|can never arrive", epoch.rewind_reason), epoch.rewind_reason
    assert [wait for wait in epoch.waits if wait.what == "store"] == []
    assert sorted(letter.values[1] for letter in letters) == sorted(poison)
    assert {(letter.component, letter.fields) for letter in letters} == {("pass", ("word", "number"))}
