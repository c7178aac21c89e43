"""A SparkSink's tasks on a real HDFS are killed, frozen and superseded at every step; acked batches are there, complete."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from squall.stores.files import FilesUnavailable
from squall.stores.java.hadoop import Jvm
from squall_io.kit.waiting import DoublingWait
from squall_io.spark import read_committed
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.sink import sink_table as sink_life
from squall_io.spark.sink.errors import NotCommitted
from tests.hdfs.sink_tasks import ROWS, Killed, Task, check, watched
from tests.hdfs_servers import HdfsServer
from tests.soak import soak_of
from tests.squall_io.lost_answers import first_of_each
from tests.zookeeper_servers import eventually
from topology_api import FailTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: Longest time for a batch in seconds, on a machine under load, and with daemons that start meanwhile.
CAP = 200.0
#: The steps of a start, and those of a batch, in order.
START = ["open", "table", "claim", "sweep", "warm"]
BATCH = ["write", "list", "check", "move", "publish", "look", "ack", "clear"]
#: Steps whose remains differ: nothing, a claim, files in staging, files that do not count, and a batch that is not acked.
SOME_STEPS = ["open", "sweep", "check", "publish", "look"]
every_step = pytest.mark.parametrize(
    "steps", [SOME_STEPS, pytest.param([*START, *BATCH], marks=pytest.mark.soak)], ids=["some", "each"]
)


@pytest.fixture(autouse=True)
def steps_are_watched() -> Iterator[None]:
    with watched():
        yield


def kill_at(task: Task, step: str) -> None:
    """Have the task killed before this step."""

    def at(name: str) -> None:
        if name == step:
            raise Killed

    task.at = at


def calls_until(killed: int, rounds: random.Random) -> Callable[[str], None]:
    """Kills at this call of the file system; to some earlier calls it appears unavailable."""
    calls = itertools.count()

    def on_call(call: str) -> None:
        if next(calls) >= killed:
            raise Killed
        if rounds.random() < 0.05:
            raise FilesUnavailable(f"cannot {call}: as the test has it")

    return on_call


class Writing:
    """Writes a batch in a thread of its own, and is frozen before a step of it until it is thawed; "": before none."""

    def __init__(self, task: Task, batch: int, step: str) -> None:
        self.outcome: BaseException | None = None
        self._task, self._batch, self._step = task, batch, step
        self._frozen, self._thawed = threading.Event(), threading.Event()
        if step:
            task.at = self._at
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        assert not step or self._frozen.wait(CAP)

    def thaw(self) -> BaseException | None:
        """Let it continue to the end; return its exception, or None if it was acked."""
        self._thawed.set()
        self._thread.join(CAP)
        assert not self._thread.is_alive()
        return self.outcome

    def _at(self, step: str) -> None:
        if step == self._step:
            self._frozen.set()
            assert self._thawed.wait(CAP)

    def _write(self) -> None:
        try:
            self._task.write(self._batch)
        except BaseException as error:
            self.outcome = error


@every_step
def test_a_task_killed_at_any_step_loses_nothing_and_leaves_nothing(
    spark: SparkSession, hdfs_path: str, steps: list[str]
) -> None:
    acked: set[int] = set()
    again: list[int] = []
    batch = 0
    for restart, step in enumerate(steps):
        task = Task(hdfs_path, restart=restart)
        if step in START:
            kill_at(task, step)
        try:
            task.prepare()
            while again:  # batches without an ack come again from the spouts
                task.write(again[-1])
                acked.add(again.pop())
            kill_at(task, step)
            task.write(batch := batch + 1)
            pytest.fail(f"there is no step {step!r}")
        except Killed:
            if step in BATCH:
                again.append(batch)
    last = Task(hdfs_path, restart=100).prepare()
    last.write(again.pop())
    counts = check(spark, hdfs_path, acked, set(range(1, batch + 1)))
    # A batch is there twice if its task died between its publication and the acks of its tuples, and only then.
    unacked = {"look", "ack", "clear"}.intersection(steps)
    assert sorted(counts.values()).count(2) == len(unacked) and max(counts.values()) == 2


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other without a wait, and a start may take as many as it needs."""
    monkeypatch.setattr(DoublingWait, "first", 0.0)
    monkeypatch.setattr(sink_life, "START_SECONDS", 300.0)


def test_each_batch_is_there_once_when_the_first_answer_of_each_kind_of_call_is_lost(
    spark: SparkSession, hdfs_path: str, at_once: None
) -> None:
    died = Task(hdfs_path).prepare()
    died.write(1)
    kill_at(died, "publish")
    with pytest.raises(Killed):
        died.write(2)
    task = Task(hdfs_path, restart=1)  # it has something to fence and to sweep
    task.loses = first_of_each()
    task.prepare()
    steps: list[str] = []
    task.at = steps.append
    for batch in (2, 3):
        task.write(batch)
    assert set(task.lost) == {
        *("list", "walk", "exists", "read", "digest", "put_if_absent", "move_if_absent", "delete"),
    }
    assert steps.count("write") == 2 < steps.count("list"), (
        "lost calls are repeated, and no row is written again"
    )
    Task(hdfs_path, restart=2).prepare()
    assert check(spark, hdfs_path, {1, 2, 3}, {1, 2, 3}) == {1: 1, 2: 1, 3: 1}


def test_kills_and_lost_answers_at_any_call_of_the_file_system_lose_nothing(
    spark: SparkSession, hdfs_path: str, at_once: None, request: pytest.FixtureRequest
) -> None:
    rounds = random.Random(1)
    acked: set[int] = set()
    again: list[int] = []
    for restart in range(round(5 * soak_of(request.config))):
        task = Task(hdfs_path, restart=restart)
        task.on_call = calls_until(rounds.randrange(60), rounds)
        task.loses = lambda call, path, number: rounds.random() < 0.05
        try:
            task.prepare()
            while True:
                again = again or [len(acked) + 1]
                task.write(again[0])
                acked.add(again.pop())
        except Killed:
            continue
    last = Task(hdfs_path, restart=10**6).prepare()
    for batch in (*again, 1000):
        last.write(batch)
        acked.add(batch)
    check(spark, hdfs_path, acked, acked)


@every_step
def test_a_frozen_owner_that_continues_after_a_new_one_took_over_is_not_acked_and_does_not_count(
    spark: SparkSession, hdfs_path: str, steps: list[str]
) -> None:
    acked: set[int] = set()
    in_doubt: set[int] = set()
    owner = Task(hdfs_path).prepare()
    steps = [step for step in steps if step in BATCH and step not in ("ack", "clear")]
    for restart, step in enumerate(steps, 1):
        zombie = Writing(owner, 10 * restart, step)
        in_doubt.add(10 * restart)
        successor = Task(hdfs_path, restart=restart).prepare()
        successor.write(10 * restart + 1)
        acked.add(10 * restart + 1)
        outcome = zombie.thaw()
        assert isinstance(outcome, NotCommitted) and "was taken over by" in str(outcome), (step, outcome)
        with pytest.raises(FailTuple, match="was taken over by"):
            owner.write(10 * restart + 2)  # nor any of its later batches
        owner = successor
    Task(hdfs_path, restart=100).prepare()
    counts = check(spark, hdfs_path, acked, acked | in_doubt)
    published = {batch for batch in in_doubt if counts[batch]}
    assert published == {10 * (1 + steps.index("look"))}, "only batches published before the claim count"


def test_a_reader_at_every_step_sees_only_complete_batches(spark: SparkSession, hdfs_path: str) -> None:
    seen: list[tuple[str, dict[int, int]]] = []
    task = Task(hdfs_path).prepare()
    task.write(1)

    def at(step: str) -> None:
        rows = read_committed(spark, hdfs_path).groupBy("batch").count().collect()
        seen.append((step, dict(rows)))

    task.at = at
    task.write(2)
    published = BATCH.index("look")
    assert seen == [
        (step, {1: ROWS} if number < published else {1: ROWS, 2: ROWS}) for number, step in enumerate(BATCH)
    ]


def test_two_topologies_with_two_tasks_each_write_to_one_table_and_a_removed_task_is_swept(
    spark: SparkSession, hdfs_path: str
) -> None:
    tasks = [
        Task(hdfs_path, topology=topology, index=index, parallelism=2).prepare()
        for topology in ("words", "letters")
        for index in range(2)
    ]
    failures: list[BaseException] = []

    def write(task: Task, first: int) -> None:
        try:
            for batch in range(first, first + 2):
                task.write(batch)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(task, 10 * n)) for n, task in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP)
    assert not failures
    acked = {10 * n + batch for n in range(4) for batch in range(2)}
    # "words" is rebalanced to one task, while its second one is about to publish a batch
    kill_at(tasks[1], "publish")
    with pytest.raises(Killed):
        tasks[1].write(90)
    tasks[3].write(91)
    Task(hdfs_path, topology="words", index=0, parallelism=1, restart=1).prepare().write(92)
    assert set(check(spark, hdfs_path, acked | {91, 92}, acked | {91, 92}).values()) == {1}


def test_open_files_of_a_dead_writer_are_swept_by_its_successor(
    spark: SparkSession, hdfs: HdfsServer, hdfs_path: str
) -> None:
    """The lease of a dead writer holds for an hour; our code never opens such a file again."""
    Task(hdfs_path).prepare().write(1)
    jvm = Jvm.own({"spark.hadoop.dfs.replication": "2"})
    paths = jvm.java.org.apache.hadoop.fs
    name = BatchName(WriterId.of("words-1", "store", 0), 1, 2)
    path = paths.Path(f"{hdfs_path}/{name.attempt(1)}/part=a/part-00000.parquet")
    stream = path.getFileSystem(jvm.configuration).create(path, True)
    stream.write(b"half a fil")
    stream.hflush()
    os.kill(jvm.gateway.proc.pid, signal.SIGKILL)
    jvm.close()
    Task(hdfs_path, restart=1).prepare().write(2)
    assert check(spark, hdfs_path, {1, 2}, {1, 2}) == {1: 1, 2: 1}


def test_a_full_disk_is_waited_for(spark: SparkSession, troubled_hdfs: HdfsServer, hdfs_path: str) -> None:
    task = Task(hdfs_path).prepare()
    task.write(1)
    full, away = troubled_hdfs.datanodes
    away.kill()  # as full as the other one for a writer, and cheaper to make so
    full.settings["dfs.datanode.du.reserved"] = str(10**15)
    full.restart()
    troubled_hdfs.wait_ready()
    steps: list[str] = []
    task.at = steps.append
    writing = Writing(task, 2, "")
    try:
        eventually(lambda: steps.count("write") >= 2, CAP)
        assert "publish" not in steps and writing.outcome is None
    finally:
        del full.settings["dfs.datanode.du.reserved"]
        full.restart()
        away.start()
    troubled_hdfs.wait_ready()
    assert writing.thaw() is None
    assert task.progressed, "it reports progress all the time"
    Task(hdfs_path, restart=1).prepare()
    assert check(spark, hdfs_path, {1, 2}, {1, 2}) == {1: 1, 2: 1}
