"""What user code may do in a topology whose state is at a path: acks of its own, timers, errors, calls that take long."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local_cluster import LocalCluster
from squall.transport.frames import Batch
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Forward,
    Pass,
    Words,
    commits_at,
    counts,
    eventually,
    expected,
    snapshots_at,
    words,
)
from topology_api import (
    Bolt,
    Context,
    Fields,
    Replay,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from topology_api.tuples import Source
from worker.epochs.messages import Barrier, SnapshotMarker
from worker.epochs.parking import ParkedLetter
from worker.loop.epoch_worker import EpochWorker
from worker.state.saved_rows import whole_state
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.special_batches import MarkerBatch


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


def one_bolt(spout: Any, bolt: Bolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("bolt", bolt).fields_grouping("words", "word")
    return builder.build()


class Acks(Pass):
    """Acks the tuple itself, although the runtime would."""

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"]))
        self.ack(tup)


class FailsOnce(Pass):
    """Fails each tuple the first time, after it has emitted."""

    def prepare(self, context: Context) -> None:
        self.seen: set[int] = set()

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"]))
        if tup["number"] not in self.seen:
            self.seen.add(tup["number"])
            self.fail(tup, "the first time")


class AcksAndRaises(FailsOnce):
    def execute(self, tup: Tuple) -> None:
        self.ack(tup)
        if tup["number"] not in self.seen:
            self.seen.add(tup["number"])
            raise ValueError("after the ack")

    def end_of_input(self) -> None:
        pass


class CountsAndFailsOnce(Count):
    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.seen: set[int] = set()

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup["number"] not in self.seen:
            self.seen.add(tup["number"])
            self.fail(tup, "the first time")


@pytest.mark.parametrize("between", [Acks(), FailsOnce()], ids=["acks", "fails"])
@pytest.mark.parametrize("count", [Count(), CountsAndFailsOnce()], ids=["counts", "counts and fails"])
def test_a_tuple_that_its_call_acks_or_fails_counts_once(tmp_path: Path, between: Bolt, count: Bolt) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(70), between, count), conf_at(tmp_path))
        cluster.advance(5)
        assert counts(cluster) == expected(list(range(70)))
        assert cluster.dead_letters("words") == []


def test_a_call_that_raises_after_its_ack_is_tried_again(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(10), AcksAndRaises(), Count()), conf_at(tmp_path))
        cluster.advance(2)
        bolt = cluster.status("words").components["pass"]
        assert (bolt.acked, bolt.failed) == (10, 10)


class AwayBolt(StatefulBolt):
    key = ("word",)
    times = ValueState(int, default=0)

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        if not Path(self.path).exists():
            raise OSError("away")


def test_a_drain_that_is_called_off_goes_on_from_its_commit(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    spout = Words(7)
    spout.replay = Replay(max_attempts=None, first_delay=0.01, max_delay=0.1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(spout, AwayBolt(str(gate))), conf_at(tmp_path / "state"))
        cluster.advance(1)
        [worker] = cluster._engine.host.workers("words")  # type: ignore[union-attr]
        assert isinstance(worker, EpochWorker)
        worker.drain()
        while not worker.drained:
            worker.step()
        gate.touch()
        cluster._driver.clock.move_to(cluster._driver.clock.now() + 0.3)  # type: ignore[attr-defined]
        for _ in range(20):
            worker.step()
        worker.set_active(True)
        cluster.advance(3)
        assert [cluster.state("words", "bolt", f"w{number}")["times"] for number in range(7)] == [1] * 7


class Busy(Words):
    """Always has something to emit."""

    threaded = True


class Endless(Forward):
    """One call of `next_tuple` that never returns."""

    threaded = True

    def next_tuple(self) -> None:
        number = 0
        while True:
            self.emit((f"w{number % 7}", number), message_id=number)
            number += 1


class Batches(Words):
    """Emits many tuples in a call: it waits in `emit` for room, and has a position only when the call has returned."""

    threaded = True

    def next_tuple(self) -> float | None:
        for _ in range(500):
            super().next_tuple()
        return None


class SlowAll(Count):
    """Keeps the loop away now and then."""

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup["number"] % 20 == 0:
            time.sleep(0.06)


@pytest.mark.parametrize(
    ("spout", "uncommitted"),
    [(Busy(10**9), 1_000_000), (Endless(0), 200), (Batches(10**9), 200)],
    ids=["busy", "endless", "batches"],
)
def test_a_spout_that_never_pauses_does_not_keep_an_epoch_from_ending(
    tmp_path: Path, spout: Any, uncommitted: int
) -> None:
    conf = conf_at(
        tmp_path,
        **{
            "topology.epoch.secs": 0.1,
            "topology.max.spout.pending": None,
            "topology.queue.size": 64,
            "topology.epoch.uncommitted": uncommitted,
        },
    )
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("count", SlowAll()).fields_grouping("words", "word")
    with LocalCluster() as cluster:
        cluster.submit(builder.build(), conf)
        eventually(lambda: cluster.status("words").components["words"].acked > 500)
    state = {snapshot.task: snapshot for snapshot in snapshots_at(tmp_path / "words")}
    assert state["words/0"].epoch > 1


class SlowInThread(Count):
    """Keeps the outbox before it full."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        time.sleep(0.001)


class Sleepy(Bolt):
    """Keeps the loop away now and then."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] % 20 == 0:
            time.sleep(0.06)


def test_a_position_and_what_was_counted_up_to_it_agree_in_each_commit(tmp_path: Path) -> None:
    """Also where the loop comes back after a marker was reached, and sends what waits before it sends the barrier."""
    conf = conf_at(
        tmp_path,
        **{
            "topology.epoch.secs": 0.05,
            "topology.epoch.keep": 1_000,
            "topology.max.spout.pending": None,
            "topology.queue.size": 16,
        },
    )
    builder = TopologyBuilder("words")
    builder.set_spout("words", Busy(10**9))
    builder.set_bolt("count", SlowInThread()).fields_grouping("words", "word")
    builder.set_bolt("sleepy", Sleepy()).shuffle_grouping("words")
    with LocalCluster() as cluster:
        cluster.submit(builder.build(), conf)
        eventually(lambda: cluster.status("words").components["words"].acked > 1_500)
    with_rows = 0
    for commit in commits_at(tmp_path / "words"):
        state = {snapshot.task: snapshot for snapshot in commit}
        position = msgspec.msgpack.decode(state["words/0"].position)
        waiting = [rows for target, _, rows in state["words/0"].outboxes if target == "count/0"]
        queued = sum(len(pickle.loads(rows[0])) for rows in waiting)
        held = whole_state(state["count/0"].state, state["count/0"].parts)["states"]
        counted = sum(map(msgspec.msgpack.decode, held["times"]["values"]))
        assert position == queued + counted
        with_rows += queued > 0
    assert with_rows, "no outbox held anything"


def test_frames_held_behind_a_barrier_take_no_credit_from_other_tasks(tmp_path: Path) -> None:
    """Otherwise a task that has to send before it reaches its own barrier could not, and the epoch would never end."""
    builder = TopologyBuilder("words")
    builder.set_spout("fast", Words(0))
    builder.set_spout("words", Words(0))
    builder.set_bolt("count", Count()).fields_grouping("fast", "word").fields_grouping("words", "word")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path))
        cluster.advance(1)
        [worker] = cluster._engine.host.workers("words")  # type: ignore[union-attr]
        assert isinstance(worker, EpochWorker) and worker.epochs is not None
        [task] = worker.bolts
        fast, other = (
            worker.plan.source(name, worker.plan.tasks_of[name][0], "default") for name in ("fast", "words")
        )

        def batch(source: Source) -> Batch:
            return Batch(source, task.id, [("w0", 1)], [0], [0])

        worker.epochs.participants[task.id].arrive("fast/0", Barrier(99))
        for _ in range(worker.window_of(task.id)):
            assert worker.links.window_for(batch(fast)).room
            worker.links.number(batch(fast), credited=True)
        assert not task.inbox, "what comes behind the barrier is held"
        assert not worker.links.window_for(batch(fast)).room
        assert worker.links.window_for(batch(other)).room


def test_a_letter_that_is_shown_again_after_a_restart_is_one_letter(tmp_path: Path) -> None:
    """The process before may have kept it, and died before it could say so."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(0), Raises()), conf_at(tmp_path))
        cluster.advance(1)
        [worker] = cluster._engine.host.workers("words")  # type: ignore[union-attr]
        assert isinstance(worker, EpochWorker)
        [task] = worker.bolts
        letters = [
            ParkedLetter(f"bolt/0/1/{number}", ["words", 1, "default", pickle.dumps(("w0", number))], "no", 3)
            for number in range(2)
        ]
        assert worker.keep_letters(task, letters[:1], "lineage", again=True)
        assert worker.keep_letters(task, letters, "lineage", again=True)
        found = cluster.dead_letters("words")
        assert sorted(letter.values for letter in found) == [("w0", 0), ("w0", 1)]
        assert cluster._letters["words"].count == 2
        assert worker.keep_letters(task, letters, "another state", again=True)
        assert len(cluster.dead_letters("words")) == 4


def test_behind_a_marker_nothing_is_executed_before_the_worker_knows_of_it(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(5), Count()), conf_at(tmp_path))
        cluster.advance(1)
        [worker] = cluster._engine.host.workers("words")  # type: ignore[union-attr]
        [task] = worker.bolts
        assert isinstance(task, EpochBoltTask) and task.executed == 5
        batch = Batch(worker.plan.source("words", 1, "default"), task.id, [("w0", 5)], [0], [0])
        task.inbox += [MarkerBatch(SnapshotMarker(99), batch.source, task.id), batch]
        task.run()
        assert (len(task.reached), task.executed) == (1, 5)
        task.reached.clear()
        task.run()
        assert task.executed == 6


class EmitsInOpen(Forward):
    def open(self, context: Context) -> None:
        super().open(context)
        self.emit(("w0", self.count), message_id="open")


def test_what_open_emits_counts_once_at_each_start(tmp_path: Path) -> None:
    for start in (1, 2, 3):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(one_bolt(EmitsInOpen(0), Count()), conf_at(tmp_path))
            cluster.advance(2)
            assert cluster.state("words", "bolt", "w0")["times"] == start
            assert cluster.status("words").components["words"].acked == 1


class FinishesInAck(Forward):
    def ack(self, message_id: object) -> None:
        if message_id == self.count - 1:
            self.finish()


def test_a_spout_may_finish_with_its_last_ack(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(FinishesInAck(10), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(5)
        status = cluster.last_status("words")
        assert (status.state, status.errors) == ("COMPLETED", ())


class Raises(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("always")


class Lists(StatefulBolt):
    key = ("word",)
    numbers = ValueState(list[int])

    def execute(self, tup: Tuple) -> None:
        self.numbers.value = ["not a number"]


def test_a_value_of_another_type_is_found_before_it_is_committed(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(Words(1), Lists()), conf_at(tmp_path))
        cluster.advance(3)
        status = cluster.last_status("words")
    assert status.state == "FAILED"
    text = status.errors[-1].render()
    assert "component 'bolt'" in text
    assert "the value of state 'numbers', key 'w0', cannot be kept as list[int]" in text


def test_a_stream_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spout = Words(5)
    spout.replay = Replay(max_attempts=None, first_delay=50, max_delay=50)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(spout, Raises()), conf_at(tmp_path))
        cluster.advance(2)
    builder = TopologyBuilder("words")
    builder.set_spout("words", OtherStream(5))
    builder.set_bolt("bolt", Raises()).fields_grouping("words", "word", stream="other")
    topology = builder.build()
    monkeypatch.setattr(
        EpochSpoutTask, "check_class", lambda self, saved: None
    )  # as another version of one class
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path))
        cluster.advance(2)
        status = cluster.last_status("words")
    assert status.state == "FAILED"
    assert (
        "a tuple of stream 'default' of component 'words' that waits for its next try"
        in status.errors[-1].render()
    )


class OtherStream(Words):
    outputs = {"other": Fields("word", "number")}  # type: ignore[assignment]

    def next_tuple(self) -> float | None:
        return 0.1


def test_the_last_tuples_of_a_source_that_all_fail_are_given_up(tmp_path: Path) -> None:
    """`topology.on.outage: wait`: they wait for each other, and nothing else is left to work for."""
    conf = {**conf_at(tmp_path), "topology.on.outage": "wait"}
    spout = Finite(100)
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, Pass(poison=frozenset({90, 98, 99})), Count()), conf)
        cluster.advance(30)
        assert cluster.last_status("words").state == "COMPLETED"
        assert sorted(letter.values[1] for letter in cluster.dead_letters("words")) == [90, 98, 99]
