"""Message timeouts: lost or kept tuples fail between T and 1.1 T, waiting ones do not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import (
    JOURNAL,
    Journal,
    Keep,
    Numbers,
    Pass,
    ResetsTimeout,
    advance_until,
    chain,
    message_ids,
    run_to_the_end,
)
from topology_api import BatchBolt, Bolt, Context, Failure, Fields, Replay, TopologyBuilder, Tuple

T10 = {"topology.message.timeout.secs": 10}


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class SlowCalls(Bolt):
    """Each call takes `seconds`, one at a time (more: `max_concurrency`)."""

    outputs = Fields("number")

    def __init__(self, seconds: float, at_once: int = 1) -> None:
        self.seconds = seconds
        self.max_concurrency = at_once

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.seconds)
        JOURNAL.note("slow", tup["number"])
        self.emit((tup["number"],))


class Gathers(BatchBolt):
    """Holds its batches for longer than the timeout."""

    batch_size = 100
    batch_interval = 45.0

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        JOURNAL.note("batch", [tup["number"] for tup in tups])


class RichSlow(Bolt):
    """A rich bolt that acks one tuple at each tick, late, and keeps the others alive."""

    auto_ack = False
    auto_anchor = False
    tick_interval = 4.0

    def prepare(self, context: Context) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)

    def tick(self) -> None:
        if self.kept:
            self.ack(self.kept.pop(0))
        for tup in self.kept:
            self.reset_timeout(tup)


def failures() -> list[Failure]:
    return [failure for _, _, failure in JOURNAL.of("fail")]


# Lost or kept tuples.


def test_a_kept_tuple_is_not_failed_at_9_s_and_is_failed_by_11_1_s(cluster: LocalCluster) -> None:
    cluster.submit(chain("kept", Numbers(1), Keep(), conf=T10))
    cluster.advance(9.0)
    assert failures() == []
    assert cluster.status("kept").components["numbers"].pending == 1
    cluster.advance(2.1)
    assert [failure.reason for failure in failures()] == ["timeout"]
    (_, emitted), (_, failed, _) = JOURNAL.of("emit")[0], JOURNAL.of("fail")[0]
    assert 10.0 <= failed - emitted <= 11.0


@pytest.mark.parametrize("start", [0.0, 0.13, 0.49, 3.3, 7.77])
def test_the_moment_of_emission_within_a_tick_of_the_timing_wheel_does_not_matter(
    cluster: LocalCluster, start: float
) -> None:
    cluster.advance(start)
    cluster.submit(chain("kept", Numbers(3), Keep(), conf=T10))
    cluster.advance(15.0)
    emitted = dict(JOURNAL.of("emit"))
    assert len(JOURNAL.of("fail")) == 3
    for number, failed, _ in JOURNAL.of("fail"):
        assert 10.0 <= failed - emitted[number] <= 11.0


@pytest.mark.parametrize("workers", [1, 2])
def test_reset_timeout_extends_the_time_of_a_tuple_which_fails_after_the_last_reset(
    cluster: LocalCluster, workers: int
) -> None:
    conf = {**T10, "topology.workers": workers}
    cluster.submit(chain("reset", Numbers(2), ResetsTimeout(ticks=6), conf=conf))
    cluster.advance(39.5)  # the last reset is at 30 s
    assert failures() == []
    cluster.advance(2.0)
    assert message_ids(JOURNAL.of("fail")) == [0, 1]
    for _, failed, failure in JOURNAL.of("fail"):
        assert failure.reason == "timeout"
        assert 40.0 <= failed <= 41.0


def test_without_timeouts_nothing_ever_times_out(cluster: LocalCluster) -> None:
    conf = {**T10, "topology.enable.message.timeouts": False}
    cluster.submit(chain("never", Numbers(2), Keep(), conf=conf))
    cluster.advance(100_000.0)
    assert failures() == []
    assert cluster.status("never").components["numbers"].pending == 2


def test_a_timed_out_tuple_is_emitted_again_and_its_attempts_are_counted(cluster: LocalCluster) -> None:
    replay = Replay(max_attempts=3, first_delay=2.0)
    cluster.submit(chain("again", Numbers(1, replay), Keep(), conf=T10))
    cluster.advance(60.0)
    ((number, failed, failure),) = JOURNAL.of("fail")
    assert (number, failure.reason, failure.attempts) == (0, "timeout", 3)
    assert 36.0 <= failed <= 39.0  # three timeouts, delays of 2 and 4 seconds
    kept = [time for _, time in JOURNAL.of("keep")]
    assert len(kept) == 3
    assert 12.0 <= kept[1] - kept[0] <= 13.0
    assert 14.0 <= kept[2] - kept[1] <= 15.0
    totals = cluster.status("again").components["numbers"]
    assert (totals.emitted, totals.replayed, totals.failed, totals.pending) == (1, 2, 1, 0)


def test_an_ack_after_the_timeout_changes_nothing(cluster: LocalCluster) -> None:
    cluster.submit(chain("late", Numbers(1), LateAck(), conf=T10))
    status = run_to_the_end(cluster, "late")
    assert [failure.reason for failure in failures()] == ["timeout"]
    assert JOURNAL.of("ack") == []
    assert (status.components["numbers"].acked, status.components["numbers"].failed) == (0, 1)


class LateAck(Keep):
    """Acks its tuples at 20 seconds."""

    tick_interval = 20.0

    def tick(self) -> None:
        while self.kept:
            self.ack(self.kept.pop())


# Tuples that merely wait.


@pytest.mark.parametrize("workers", [1, 3, pytest.param(2, marks=pytest.mark.soak)])
def test_tuples_behind_slow_calls_do_not_time_out(cluster: LocalCluster, workers: int) -> None:
    conf = {**T10, "topology.workers": workers, "topology.queue.size": 16}
    cluster.submit(chain("slow", Numbers(40), Pass(), SlowCalls(3.0), Pass(), conf=conf))
    run_to_the_end(cluster, "slow")
    assert failures() == []
    assert message_ids(JOURNAL.of("ack")) == list(range(40))
    assert max(time for _, time in JOURNAL.of("ack")) >= 120.0  # the last one waited for two minutes


@pytest.mark.parametrize("workers", [1, 2])
def test_tuples_in_a_batch_do_not_time_out(cluster: LocalCluster, workers: int) -> None:
    # The spout neither finishes nor reaches its limit: nothing hurries the batch, only its interval ends it.
    conf = {**T10, "topology.workers": workers}
    cluster.submit(chain("batch", Numbers(5, finishes=False), Gathers(), conf=conf))
    cluster.advance(44.0)
    assert (failures(), JOURNAL.of("batch")) == ([], [])
    cluster.advance(2.0)
    assert JOURNAL.of("batch") == [([0, 1, 2, 3, 4],)]
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2, 3, 4]
    assert failures() == []


def test_tuples_in_the_outbox_of_a_blocked_spout_do_not_time_out(cluster: LocalCluster) -> None:
    conf = {**T10, "topology.queue.size": 16}
    cluster.submit(chain("outbox", Numbers(80, per_call=80), SlowCalls(2.0), conf=conf))
    run_to_the_end(cluster, "outbox")
    assert failures() == []
    assert message_ids(JOURNAL.of("ack")) == list(range(80))


def test_a_deep_backlog_behind_a_slow_rich_bolt_does_not_time_out(cluster: LocalCluster) -> None:
    cluster.submit(chain("rich", Numbers(12), RichSlow(), conf=T10))
    run_to_the_end(cluster, "rich")
    assert failures() == []
    assert message_ids(JOURNAL.of("ack")) == list(range(12))


def test_a_tuple_kept_by_a_bolt_times_out_while_its_neighbours_wait(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("both", {**T10, "topology.queue.size": 16})
    spout = builder.set_spout("numbers", Numbers(40))
    builder.set_bolt("slow", SlowCalls(2.0)).shuffle_grouping(spout)
    builder.set_bolt("keep", KeepsOne()).shuffle_grouping(spout)
    cluster.submit(builder.build())
    run_to_the_end(cluster, "both")
    assert message_ids(JOURNAL.of("fail")) == [7]
    assert message_ids(JOURNAL.of("ack")) == [number for number in range(40) if number != 7]


class KeepsOne(Keep):
    """Keeps number 7 and acks the others."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 7:
            self.kept.append(tup)
        else:
            self.ack(tup)


def test_a_call_that_hangs_fails_its_tuple_and_is_named(cluster: LocalCluster) -> None:
    conf = {**T10, "topology.bolt.hang.secs": 20}
    cluster.submit(chain("hang", Numbers(1), SlowCalls(10_000.0), conf=conf))
    cluster.advance(27.0)
    assert failures() == []
    advance_until(cluster, lambda: bool(failures()), 8.0)
    ((_, failed, failure),) = JOURNAL.of("fail")
    assert (failure.reason, failure.component, failure.task) == ("timeout", "bolt1", 2)
    assert 20.0 + 10.0 - 2.5 <= failed <= 20.0 + 11.0  # keep-alives come every quarter of the timeout


# Real time: a user call that blocks the loop for longer than the timeout.


class Blocks(Bolt):
    """Each call blocks for `seconds`."""

    def __init__(self, seconds: float, threaded: bool) -> None:
        self.seconds = seconds
        self.threaded = threaded

    def prepare(self, context: Context) -> None:
        self.never = threading.Event()

    def execute(self, tup: Tuple) -> None:
        self.never.wait(self.seconds)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("bolt_first", [False, True])
def test_tuples_behind_a_call_that_blocks_in_real_time_do_not_time_out(
    threaded: bool, workers: int, bolt_first: bool
) -> None:
    conf = {"topology.message.timeout.secs": 0.3, "topology.workers": workers}
    builder = TopologyBuilder("blocking", conf)
    if bolt_first:  # the worker that hosts the bolt has its turn before the one that hosts the spout
        builder.set_bolt("blocks", Blocks(0.06, threaded)).shuffle_grouping("numbers")
        builder.set_spout("numbers", Numbers(20))
    else:
        builder.set_spout("numbers", Numbers(20))
        builder.set_bolt("blocks", Blocks(0.06, threaded)).shuffle_grouping("numbers")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("blocking", timeout=60)
    assert failures() == []
    assert message_ids(JOURNAL.of("ack")) == list(range(20))


def test_a_threaded_call_that_hangs_does_not_keep_its_tuples_alive() -> None:
    conf = {"topology.message.timeout.secs": 0.3, "topology.bolt.hang.secs": 0.5}
    hanging = Hangs()
    with LocalCluster() as cluster:
        cluster.submit(chain("hanging", Numbers(3, finishes=False), hanging, conf=conf))
        try:
            JOURNAL.wait_for("fail", 3)
        finally:
            RELEASE.set()
    assert {failure.reason for failure in failures()} == {"timeout"}
    assert {failure.component for failure in failures()} == {"bolt1"}


class WorksLong(Bolt):
    """Its one call takes 1.5 s, and reports progress repeatedly."""

    threaded = True

    def prepare(self, context: Context) -> None:
        self.context = context
        self.never = threading.Event()

    def execute(self, tup: Tuple) -> None:
        for _ in range(30):
            self.never.wait(0.05)
            self.context.progress()


def test_a_long_call_that_reports_progress_keeps_its_tuples_alive() -> None:
    conf = {"topology.message.timeout.secs": 0.3, "topology.bolt.hang.secs": 0.4}
    with LocalCluster() as cluster:
        cluster.submit(chain("working", Numbers(1), WorksLong(), conf=conf))
        cluster.wait("working", timeout=60)
    assert failures() == []
    assert message_ids(JOURNAL.of("ack")) == [0]


RELEASE = threading.Event()


class Hangs(Bolt):
    """Its calls do not return until the test lets them."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        RELEASE.wait(60)
