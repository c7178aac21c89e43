"""The context of a running task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL, Journal, Numbers, chain, run_to_the_end
from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class Looks(Bolt):
    """Records what its context says."""

    def prepare(self, context: Context) -> None:
        self.context = context
        self.seen: list[int] = []
        assert "seen" in vars(self)
        JOURNAL.note("context", context)

    def execute(self, tup: Tuple) -> None:
        self.seen.append(tup["number"])

    def cleanup(self) -> None:
        JOURNAL.note("seen", self.context.index, self.seen)


class Measures(Looks):
    """Has metrics of its own."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.even = context.counter("even")
        self.sizes = context.histogram("sizes")
        context.gauge("held", lambda: float(len(self.seen)))

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.even.add(tup["number"] % 2 == 0)
        self.sizes.add(float(tup["number"]))


class Shares(Looks):
    """Finds what the first task of its worker put into the resources."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        pool = context.resources.setdefault("pool", object())
        JOURNAL.note("pool", context.task, id(pool), pool)


class Writes(Looks):
    """Writes into its directory."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        (context.directory / "scratch").write_text(str(context.index))
        JOURNAL.note("directory", context.directory)


class Draws(Looks):
    """Draws from its random source."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        JOURNAL.note("drawn", context.component, context.index, context.random.random())


class Fed(Spout):
    """Emits what a thread hands it; sleeps for an hour unless it is woken."""

    outputs = Fields("number")

    def open(self, context: Context) -> None:
        self.context = context
        self.queue: SimpleQueue[int] = SimpleQueue()
        JOURNAL.note("feed", self.feed)

    def feed(self, number: int) -> None:
        self.queue.put(number)
        self.context.wake()

    def next_tuple(self) -> float | None:
        try:
            number = self.queue.get_nowait()
        except Empty:
            JOURNAL.note("asleep")
            return 3600.0
        if number < 0:
            self.finish()
        else:
            self.emit((number,), message_id=number)
        return None

    def ack(self, message_id: object) -> None:
        JOURNAL.note("ack", message_id)


class FedWhileAsked(Fed):
    """Is woken in the middle of the very call that asks for an hour of sleep."""

    def next_tuple(self) -> float | None:
        answer = super().next_tuple()
        if answer is not None and not JOURNAL.of("fed"):
            JOURNAL.note("fed")
            feeder = threading.Thread(target=self.feed, args=(7,))
            feeder.start()
            feeder.join()
        return answer


def contexts() -> list[Context]:
    return [context for (context,) in JOURNAL.of("context")]


def spread(bolt: Bolt, count: int = 20, workers: int = 1, finishes: bool = True, **conf: Any) -> Topology:
    builder = TopologyBuilder("spread", {"topology.workers": workers, **conf})
    builder.set_spout("numbers", Numbers(count, finishes=finishes))
    builder.set_bolt("bolt", bolt, parallelism=4, conf={"own.key": [1, 2]}).shuffle_grouping("numbers")
    return builder.build()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_task_knows_its_place(cluster: LocalCluster, workers: int) -> None:
    cluster.submit(spread(Looks(), workers=workers))
    assert sorted(context.index for context in contexts()) == [0, 1, 2, 3]
    ids = sorted(context.task for context in contexts())
    for context in contexts():
        assert (context.topology, context.component, context.parallelism) == ("spread", "bolt", 4)
        assert context.tasks("bolt") == ids
        assert context.task == ids[context.index]
        assert len(context.tasks("numbers")) == 1
        assert context.conf["own.key"] == [1, 2]
        assert context.conf["topology.max.spout.pending"] == 1000


def test_a_task_knows_its_submission_and_whether_an_older_one_is_newer(
    cluster: LocalCluster,
) -> None:
    cluster.submit(spread(Looks(), workers=2, finishes=False))
    first = {context.task: context for context in contexts()}
    assert len({context.topology_id for context in first.values()}) == 1
    assert next(iter(first.values())).topology_id.startswith("spread-1-")
    JOURNAL.clear()
    cluster.rebalance("spread", workers=3)
    cluster.advance(60.0)
    again = contexts()
    assert again
    for context in again:
        assert context.topology_id == first[context.task].topology_id
        assert context.incarnation > first[context.task].incarnation
    cluster.kill("spread")
    cluster.advance(60.0)
    JOURNAL.clear()
    cluster.submit(spread(Looks(), workers=2))
    assert {context.topology_id for context in contexts()}.isdisjoint(
        context.topology_id for context in first.values()
    )


def test_the_configuration_cannot_be_written(cluster: LocalCluster) -> None:
    cluster.submit(spread(Looks()))
    with pytest.raises(TypeError):
        contexts()[0].conf["own.key"] = 3  # type: ignore[index]


def test_each_task_is_an_instance_of_its_own(cluster: LocalCluster) -> None:
    cluster.submit(spread(Looks()))
    run_to_the_end(cluster, "spread")
    seen = JOURNAL.of("seen")
    assert sorted(index for index, _ in seen) == [0, 1, 2, 3]
    assert sorted(number for _, numbers in seen for number in numbers) == list(range(20))
    assert all(len(numbers) == 5 for _, numbers in seen)


@pytest.mark.parametrize("workers", [1, 2])
def test_counters_gauges_and_histograms_are_in_the_status(cluster: LocalCluster, workers: int) -> None:
    cluster.submit(spread(Measures(), workers=workers))
    status = run_to_the_end(cluster, "spread")
    metrics = status.components["bolt"].metrics
    assert metrics["even"] == 10
    assert metrics["held"] == 20
    assert set(metrics["sizes"]) >= {"count", "p50", "p99"}


def test_a_histogram_of_several_tasks_is_merged(cluster: LocalCluster) -> None:
    cluster.submit(spread(Measures(), workers=2))
    sizes = run_to_the_end(cluster, "spread").components["bolt"].metrics["sizes"]
    assert sizes["count"] == 20
    assert 8.0 <= sizes["p50"] <= 11.0
    assert 17.5 <= sizes["p99"] <= 20.0


def test_resources_are_shared_by_the_tasks_of_one_worker_and_by_no_others(cluster: LocalCluster) -> None:
    cluster.submit(spread(Shares(), workers=2), active=False)
    workers = cluster._host.workers()
    cluster.activate("spread")
    run_to_the_end(cluster, "spread")
    by_task = {task: pool for task, pool, _ in JOURNAL.of("pool")}
    pools = [{by_task[task.id] for task in worker.bolts} for worker in workers]
    assert [len(pool) for pool in pools] == [1, 1]
    assert pools[0] != pools[1]


def test_a_directory_is_the_tasks_own_and_is_removed_with_the_cluster() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(spread(Writes(), count=10**6))
        directories: list[Path] = [directory for (directory,) in JOURNAL.of("directory")]
        assert len(set(directories)) == 4
        assert sorted((directory / "scratch").read_text() for directory in directories) == list("0123")
    assert not any(directory.exists() for directory in directories)


def test_a_directory_is_removed_with_its_topology(cluster: LocalCluster) -> None:
    cluster.submit(spread(Writes(), count=10**6))
    directories: list[Path] = [directory for (directory,) in JOURNAL.of("directory")]
    assert all(directory.exists() for directory in directories)
    cluster.kill("spread", wait_secs=0)
    assert cluster.topologies() == []
    assert not any(directory.exists() for directory in directories)


def drawn(seed: int | None, simulated: bool = True) -> list[Any]:
    JOURNAL.clear()
    with LocalCluster(simulated_time=simulated, seed=seed) as cluster:
        cluster.submit(spread(Draws()))
        JOURNAL.wait_for("drawn", 4)
    return sorted(JOURNAL.of("drawn"))


def test_random_is_the_same_for_one_seed_and_differs_from_task_to_task() -> None:
    assert drawn(1) == drawn(1) == drawn(1, simulated=False)
    assert drawn(1) != drawn(2)
    assert drawn(None, simulated=False) != drawn(None, simulated=False)
    assert len({value for *_, value in drawn(1)}) == 4


def test_now_follows_simulated_time(cluster: LocalCluster) -> None:
    cluster.submit(chain("clock", Numbers(1, finishes=False), Looks()))
    (context,) = contexts()
    began = context.now()
    cluster.advance(123.5)
    assert context.now() - began == pytest.approx(123.5)


# wake().


@pytest.mark.parametrize("simulated", [True, False])
def test_wake_from_a_thread_ends_the_wait_of_a_spout(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("fed", Fed(), Looks()))
        JOURNAL.wait_for("asleep")
        ((feed,),) = JOURNAL.of("feed")
        for number in range(5):
            feeder = threading.Thread(target=feed, args=(number,))
            feeder.start()
            feeder.join()
            if simulated:
                cluster.advance(0.0)
            JOURNAL.wait_for("ack", number + 1)
    assert [message_id for (message_id,) in JOURNAL.of("ack")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("threaded", [True, False])
def test_a_wake_in_the_middle_of_next_tuple_is_not_lost(threaded: bool) -> None:
    spout = FedWhileAsked()
    spout.threaded = threaded
    with LocalCluster() as cluster:
        cluster.submit(chain("fed", spout, Looks()))
        JOURNAL.wait_for("ack")
    assert JOURNAL.of("ack") == [(7,)]
