"""Bounded queues: each holds at most its limit plus the emissions of one user call, and none causes a deadlock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL, Journal, chain, run_to_the_end
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)
from worker.loop.worker import Worker
from worker.tasks.task import Task


class QueueWatch:
    """The greatest length of any task's queues, taken after every run of a task and before anything was sent."""

    def __init__(self) -> None:
        self.outbox = 0
        self.inbox = 0
        self.pending = 0
        self.looks = 0

    def look(self, task: Task) -> None:
        self.looks += 1
        self.outbox = max([self.outbox, *(len(box.rows) for box in task.emitter.boxes())])
        self.pending = max(self.pending, getattr(task, "pending", 0))
        from_worker: Counter[str] = Counter()
        for batch in list(task.inbox):
            if batch.frame:
                from_worker[batch.sender] += len(batch) - batch.position
        self.inbox = max([self.inbox, *from_worker.values()])


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> QueueWatch:
    watch = QueueWatch()
    ran: Callable[..., None] = Worker.ran

    def watched(worker: Worker, task: Task, now: float) -> None:
        watch.look(task)
        ran(worker, task, now)

    monkeypatch.setattr(Worker, "ran", watched)
    return watch


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class Fast(Spout):
    """Emits `count` numbers as fast as it may, `per_call` in a call."""

    outputs: Any = Fields("number")
    replay: Replay | None = None

    def __init__(self, count: int, per_call: int = 1, tracked: bool = False) -> None:
        self.count = count
        self.per_call = per_call
        self.tracked = tracked

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        for _ in range(self.per_call):
            if self.next >= self.count:
                return self.finish()
            self.next += 1
            self.emit((self.next,), message_id=self.next if self.tracked else None)
        return None


class Slow(Bolt):
    """Takes `seconds` for each tuple, one at a time."""

    max_concurrency = 1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.seconds)


class FansOut(Bolt):
    """Emits `fan_out` tuples for each."""

    outputs = Fields("number")

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def execute(self, tup: Tuple) -> None:
        for _ in range(self.fan_out):
            self.emit((tup["number"],))


class Counts(Bolt):
    """Only counts."""

    def execute(self, tup: Tuple) -> None:
        pass


class Bursts(BatchBolt):
    """Emits its whole batch in one call, and more at ticks and at the end."""

    outputs = Fields("number")
    tick_interval = 5.0
    batch_size = 50
    batch_interval = 0.3

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup["number"],))

    def tick(self) -> None:
        for number in range(40):
            self.emit((number,))

    def end_of_input(self) -> None:
        for number in range(60):
            self.emit((number,))


class TicksAndCoroutines(Bolt):
    """An asynchronous bolt that emits in bursts and at ticks."""

    outputs = Fields("number")
    tick_interval = 5.0

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.2)
        for number in range(10):
            self.emit((number,))

    def tick(self) -> None:
        for number in range(40):
            self.emit((number,))


class TicksTooMuch(Bolt):
    """Its ticks alone emit more than the next bolt can take."""

    outputs = Fields("number")
    tick_interval = 0.5

    def execute(self, tup: Tuple) -> None:
        pass

    def tick(self) -> None:
        for number in range(40):
            self.emit((number,))


class TicksTooMuchAsync(TicksTooMuch):
    """The same with coroutines."""

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.01)


class EmitsInAck(Fast):
    """Emits one more tuple, to a slow bolt, for each that a fast bolt has acked."""

    outputs = {"fast": Fields("number"), "slow": Fields("number")}

    def next_tuple(self) -> None:
        if self.next >= self.count:
            return self.finish()
        self.next += 1
        return self.emit((self.next,), message_id=self.next, stream="fast")

    def ack(self, message_id: object) -> None:
        self.emit((message_id,), stream="slow")


# Bounds.


@pytest.mark.parametrize("queue", [16, *(pytest.param(size, marks=pytest.mark.soak) for size in (64, 300))])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "acking", ["tracked", "acking off", pytest.param("untracked", marks=pytest.mark.soak)]
)
def test_queues_before_a_slow_bolt_stay_below_their_limit(
    cluster: LocalCluster, queues: QueueWatch, queue: int, workers: int, acking: str
) -> None:
    conf = {
        "topology.queue.size": queue,
        "topology.workers": workers,
        "topology.max.spout.pending": None,  # so that only the queues limit anything
        "topology.acking": acking != "acking off",
    }
    spout = Fast(900, per_call=3, tracked=acking != "untracked")
    cluster.submit(chain("bounded", spout, FansOut(2), Slow(0.01), conf=conf))
    status = run_to_the_end(cluster, "bounded")
    assert queues.looks > 500
    assert queue // 2 <= queues.outbox <= queue + 3
    assert queue // 2 <= queues.inbox <= queue
    assert status.components["bolt2"].executed == 1800
    assert status.components["numbers"].failed == 0


@pytest.mark.parametrize("bolt", [Bursts(), TicksAndCoroutines()], ids=["batch", "async"])
def test_ticks_batches_and_ends_keep_to_one_user_call_above_the_limit(
    cluster: LocalCluster, queues: QueueWatch, bolt: Bolt
) -> None:
    conf = {"topology.queue.size": 16}
    cluster.submit(chain("bursts", Fast(500), bolt, Slow(0.02), conf=conf))
    assert run_to_the_end(cluster, "bursts").state == "COMPLETED"
    assert queues.outbox <= 16 + 60


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_emissions_of_a_spout_in_ack_are_bounded_too(
    cluster: LocalCluster, queues: QueueWatch, workers: int
) -> None:
    conf = {"topology.queue.size": 16, "topology.max.spout.pending": 500, "topology.workers": workers}
    builder = TopologyBuilder("acks", conf)
    spout = builder.set_spout("numbers", EmitsInAck(2000))
    builder.set_bolt("fast", Gathers(), conf={"topology.queue.size": 4096}).shuffle_grouping(
        spout, stream="fast"
    )
    builder.set_bolt("slow", Slow(0.01)).shuffle_grouping(spout, stream="slow")
    cluster.submit(builder.build())
    status = run_to_the_end(cluster, "acks")
    assert status.components["slow"].executed == 2000
    assert status.components["numbers"].acked == 2000
    assert queues.outbox <= 16 + 1


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_simultaneous_replays_and_dead_letters_are_bounded_too(
    cluster: LocalCluster, queues: QueueWatch, workers: int
) -> None:
    conf = {"topology.queue.size": 16, "topology.max.spout.pending": 500, "topology.workers": workers}
    builder = TopologyBuilder("letters", conf)
    numbers = Fast(1000, tracked=True)
    numbers.replay = Replay(max_attempts=2)
    spout = builder.set_spout("numbers", numbers)
    builder.set_bolt("refuses", Refuses(), conf={"topology.queue.size": 4096}).shuffle_grouping(spout)
    builder.set_bolt("slow", Slow(0.01)).dead_letters(spout)
    cluster.submit(builder.build())
    status = run_to_the_end(cluster, "letters")
    assert status.components["slow"].executed == 1000
    totals = status.components["numbers"]
    assert (totals.emitted, totals.replayed, totals.failed) == (1000, 1000, 1000)
    assert queues.outbox <= 16 + 1


class Refuses(BatchBolt):
    """Fails many at once."""

    batch_size = 400
    batch_interval = 0.2

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        raise FailTuple("refused")


class Gathers(BatchBolt):
    """Acks many at once."""

    batch_size = 400
    batch_interval = 0.2

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        pass


@pytest.mark.parametrize("bolt", [TicksTooMuch(), TicksTooMuchAsync()], ids=["plain", "async"])
def test_ticks_that_emit_more_than_their_reader_takes_do_not_starve_the_input(
    cluster: LocalCluster, bolt: Bolt
) -> None:
    conf = {"topology.queue.size": 16}
    cluster.submit(chain("starved", Fast(50), bolt, Slow(0.05), conf=conf))
    status = run_to_the_end(cluster, "starved", seconds=600.0)
    assert status.components["bolt1"].executed == 50


def test_the_calls_of_a_spout_slow_down_to_the_pace_of_a_slow_bolt(cluster: LocalCluster) -> None:
    conf = {"topology.queue.size": 64}
    cluster.submit(chain("pace", Fast(1_000_000), Slow(1.0), conf=conf))
    cluster.advance(20.0)
    before = cluster.status("pace").components
    assert before["numbers"].emitted <= 20 + 2 * 64 + 64
    assert before["numbers"].idle == "backpressure"
    cluster.advance(200.0)
    after = cluster.status("pace").components
    assert after["bolt1"].executed - before["bolt1"].executed == 200
    # it emits as many as the bolt takes, within a frame
    assert abs(after["numbers"].emitted - before["numbers"].emitted - 200) <= 64


@pytest.mark.parametrize("pending", [1, 7, 100])
@pytest.mark.parametrize("per_call", [1, 10])
def test_open_trees_stay_below_max_spout_pending_plus_one_call(
    cluster: LocalCluster, queues: QueueWatch, pending: int, per_call: int
) -> None:
    conf = {"topology.max.spout.pending": pending}
    cluster.submit(chain("pending", Fast(500, per_call, tracked=True), FansOut(1), Slow(0.001), conf=conf))
    run_to_the_end(cluster, "pending")
    assert pending <= queues.pending <= pending + per_call - 1


def test_a_component_may_have_its_own_queue_size(cluster: LocalCluster, queues: QueueWatch) -> None:
    builder = TopologyBuilder("own", {"topology.queue.size": 4096})
    spout = builder.set_spout("numbers", Fast(2000), conf={"topology.queue.size": 32})
    builder.set_bolt("slow", Slow(0.01), conf={"topology.queue.size": 16}).shuffle_grouping(spout)
    cluster.submit(builder.build())
    run_to_the_end(cluster, "own")
    assert queues.outbox <= 32
    assert queues.inbox <= 16


@pytest.mark.parametrize("tracked", [False, True])
def test_many_fast_tuples_pass_through_short_queues_in_real_time(queues: QueueWatch, tracked: bool) -> None:
    conf = {"topology.queue.size": 1024, "topology.workers": 2}
    with LocalCluster() as cluster:
        cluster.submit(chain("fast", Fast(100_000, 10, tracked), FansOut(1), Counts(), conf=conf))
        cluster.wait("fast", timeout=100)
        assert cluster.status("fast").components["bolt2"].executed == 100_000
    assert queues.outbox <= 1024 + 10
    assert queues.inbox <= 1024


# Cycles.


class Hops(Bolt):
    """Sends a tuple on `fan_out` times until its hops are used up."""

    outputs = Fields("number", "hops")

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def execute(self, tup: Tuple) -> None:
        if tup["hops"] > 0:
            for _ in range(self.fan_out):
                self.emit((tup["number"], tup["hops"] - 1))


class Starts(Fast):
    """Emits numbers with a number of hops."""

    outputs = Fields("number", "hops")

    def __init__(self, count: int, hops: int, tracked: bool) -> None:
        super().__init__(count, tracked=tracked)
        self.hops = hops

    def next_tuple(self) -> None:
        if self.next >= self.count:
            return self.finish()
        self.next += 1
        return self.emit((self.next, self.hops), message_id=self.next if self.tracked else None)


def loop(hops: int, fan_out: int, count: int, tracked: bool, conf: Mapping[str, object]) -> Topology:
    """start -> there <-> back."""
    builder = TopologyBuilder("loop", conf)
    builder.set_spout("start", Starts(count, hops, tracked))
    builder.set_bolt("there", Hops(fan_out)).shuffle_grouping("start").shuffle_grouping("back")
    builder.set_bolt("back", Hops(1)).shuffle_grouping("there")
    return builder.build()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_cycle_drops_untracked_tuples_and_counts_them(cluster: LocalCluster, workers: int) -> None:
    conf = {"topology.queue.size": 16, "topology.cycle.buffer": 100, "topology.workers": workers}
    cluster.submit(loop(hops=30, fan_out=2, count=10, tracked=False, conf=conf))
    status = run_to_the_end(cluster, "loop")
    assert status.state == "COMPLETED"
    start, there, back = (status.components[name] for name in ("start", "there", "back"))
    assert there.dropped > 0
    assert there.executed == start.emitted + back.emitted - there.dropped
    assert back.executed == there.emitted
    assert (back.dropped, start.dropped) == (0, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_cycle_drops_no_tracked_tuple(cluster: LocalCluster, workers: int) -> None:
    conf = {
        "topology.queue.size": 16,
        "topology.cycle.buffer": 1,
        "topology.max.spout.pending": 2,
        "topology.workers": workers,
    }
    cluster.submit(loop(hops=12, fan_out=2, count=20, tracked=True, conf=conf))
    status = run_to_the_end(cluster, "loop")
    assert status.components["there"].dropped == 0
    assert status.components["start"].acked == 20
    there = sum(2**level for level in range(7))
    assert status.components["there"].executed == 20 * there


# No deadlock.


@pytest.mark.parametrize("encode", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_a_chain_that_alternates_between_two_workers_does_not_deadlock(encode: bool, tracked: bool) -> None:
    conf = {"topology.queue.size": 16, "topology.workers": 2}
    bolts: list[Any] = [FansOut(2), FansOut(3), FansOut(1), FansOut(2), FansOut(1), Counts()]
    with LocalCluster(simulated_time=True, encode=encode) as cluster:
        cluster.submit(chain("zigzag", Fast(300, 5, tracked), *bolts, conf=conf), active=False)
        hosts = {task: worker.name for worker in cluster._host.workers() for task in worker.plan.tasks_here}
        cluster.activate("zigzag")
        status = run_to_the_end(cluster, "zigzag")
    assert [hosts[task] for task in sorted(hosts)] in (["w1", "w2"] * 3 + ["w1"], ["w2", "w1"] * 3 + ["w2"])
    executed = [status.components[f"bolt{number}"].executed for number in range(1, 7)]
    assert executed == [300, 600, 1800, 1800, 3600, 3600]
