"""Threaded calls that emit more than queues hold: they wait in `emit`, and no task ends before its call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL, Pass
from topology_api import BatchBolt, Bolt, Context, Fields, Spout, TopologyBuilder, Tuple

#: Enough for the slowest machine; a passing test never waits for it.
CAP = 60.0


class EmitsAllInOneCall(Spout):
    """Emits 3,000 numbers in one call, and says before the first that its source has ended."""

    threaded = True
    outputs = Fields("number")

    def next_tuple(self) -> None:
        self.finish()
        for number in range(3000):
            self.emit((number,), message_id=number)

    def ack(self, message_id: object) -> None:
        JOURNAL.note("ack", message_id)


class EmitsAllAtTheEnd(Bolt):
    """Emits each number once when it comes, and all once more in `end_of_input`."""

    threaded = True
    outputs = Fields("number")

    def prepare(self, context: Context) -> None:
        self.numbers: list[int] = []

    def execute(self, tup: Tuple) -> None:
        self.numbers.append(tup["number"])
        self.emit(tup.values)

    def end_of_input(self) -> None:
        for number in self.numbers:
            self.emit((number,))


class EmitsAllOfABatch(BatchBolt):
    """Emits each tuple of a batch ten times."""

    threaded = True
    batch_size = 500
    outputs = Fields("number")

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            for _ in range(10):
                self.emit(tup.values, anchors=tup)


@pytest.fixture(autouse=True)
def empty_journal() -> None:
    JOURNAL.clear()


@pytest.mark.slow
def test_calls_that_wait_in_emit_end_before_their_task_does() -> None:
    builder = TopologyBuilder("waits")
    builder.set_spout("numbers", EmitsAllInOneCall())
    builder.set_bolt("twice", EmitsAllAtTheEnd()).shuffle_grouping("numbers")
    builder.set_bolt("batches", EmitsAllOfABatch()).shuffle_grouping("twice")
    builder.set_bolt("counts", Pass(), parallelism=2).shuffle_grouping("batches")
    builder.conf = {"topology.queue.size": 16, "topology.max.spout.pending": 50, "topology.workers": 2}
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("waits", timeout=CAP)
        executed = {name: each.executed for name, each in cluster.status("waits").components.items()}
    assert executed == {"numbers": 0, "twice": 3000, "batches": 6000, "counts": 60_000}
    assert sorted(number for (number,) in JOURNAL.of("ack")) == list(range(3000))
