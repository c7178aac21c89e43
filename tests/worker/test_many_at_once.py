"""`Spout.emit_many` and `Spout.ack_many`: the same as many calls of `emit` and `ack`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.worker.lone_spout import lone_spout
from topology_api import (
    Bolt,
    EmitError,
    Fields,
    Grouping,
    GroupingError,
    Hook,
    Replay,
    RewindableSpout,
    Spout,
    TopologyBuilder,
    Tuple,
)
from worker.epochs.emissions import Emissions
from worker.tasks.epoch_emitter import EpochSpoutEmitter
from worker.tasks.spout import SpoutTask

COUNT = 3000
#: What happened: texts with numbers.
EVENTS: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    EVENTS.clear()


def happened(what: str) -> list[Any]:
    return [value for event, value in EVENTS if event == what]


class Emits(Spout):
    """Emits numbers, all in one call."""

    outputs = Fields("number")

    def next_tuple(self) -> None:
        self.emit_many([(number,) for number in range(COUNT)], message_ids=range(COUNT))
        self.finish()

    def ack(self, message_id: object) -> None:
        EVENTS.append(("acked", message_id))

    def ack_many(self, message_ids: list[Any]) -> None:
        EVENTS.append(("acked many", list(message_ids)))


class EmitsInThread(Emits):
    threaded = True


class EmitsAgain(Emits, RewindableSpout):
    """The same, with a position."""

    def position(self) -> int:
        return 1

    def rewind(self, position: object) -> None:
        pass


class AcksOneByOne(Emits):
    """Has overridden `ack` alone."""

    def ack(self, message_id: object) -> None:
        EVENTS.append(("acked by hand", message_id))


class Reads(Bolt):
    def execute(self, tup: Tuple) -> None:
        EVENTS.append(("read", tup["number"]))


class Watches(Hook):
    """Hears of tuples and acks."""

    def emitted(self, task: int, stream: str, values: tuple[Any, ...], targets: Sequence[int]) -> None:
        EVENTS.append(("emitted", values))

    def spout_acked(self, message_id: object) -> None:
        EVENTS.append(("heard of", message_id))


def run(spout: Spout, observers: tuple[Any, ...] = (), **conf: object) -> None:
    builder = TopologyBuilder("many", {name.replace("_", "."): value for name, value in conf.items()})
    builder.set_spout("emits", spout)
    builder.set_bolt("reads", Reads()).shuffle_grouping("emits")
    with LocalCluster(observers=observers) as cluster:
        cluster.submit(builder.build())
        cluster.wait("many", timeout=60)


@pytest.mark.parametrize("kind", [Emits, EmitsInThread, EmitsAgain])
@pytest.mark.parametrize("state", [False, True])
def test_all_tuples_come_once_in_their_order_and_are_acked(
    kind: type[Spout], state: bool, tmp_path: Path
) -> None:
    run(kind(), topology_state_path=tmp_path.as_uri() if state else None)
    assert happened("read") == list(range(COUNT))
    acked = happened("acked many")
    assert sorted(number for each in acked for number in each) == list(range(COUNT))
    assert len(acked) < COUNT / 10 and not happened("acked")


def test_a_call_waits_at_the_pending_limit() -> None:
    run(EmitsInThread(), topology_max_spout_pending=7)
    assert happened("read") == list(range(COUNT))


def test_the_ack_that_a_subclass_overrides_is_called() -> None:
    run(AcksOneByOne())
    assert sorted(happened("acked by hand")) == list(range(COUNT)) and not happened("acked many")


def test_hooks_hear_of_each_tuple_and_each_ack() -> None:
    run(Emits(), (Watches(),))
    assert happened("emitted") == [(number,) for number in range(COUNT)]
    assert sorted(happened("heard of")) == list(range(COUNT))
    assert sorted(happened("acked")) == list(range(COUNT))


def running_spout() -> SpoutTask:
    """Return a task whose calls the test makes."""
    task = lone_spout(Emits(), 1, lambda: 0.0)
    task.emitter.open_for(threading.get_ident())
    return task


def test_tuples_without_message_ids_are_not_tracked() -> None:
    task = running_spout()
    spout = task.instance
    spout.emit_many([(1,), (2,)])
    spout.emit_many([(3,)], message_ids=["three"])
    assert (task.emitter.emitted, task.tracker.pending) == (3, 1)


def test_rows_before_one_that_is_refused_are_emitted_and_none_after_it() -> None:
    task = running_spout()
    spout = task.instance
    with pytest.raises(EmitError, match=r"2 value\(s\) were emitted") as refused:
        spout.emit_many([(0,), (1,), (2, "too much"), (3,)], message_ids=range(4))
    assert refused.value.emitted == 2
    assert (task.emitter.emitted, task.tracker.pending) == (2, 2)
    with pytest.raises(EmitError, match="2 rows and 1 message ids") as refused:
        spout.emit_many([(0,), (1,)], message_ids=[0])
    assert refused.value.emitted == 0
    with pytest.raises(EmitError, match="no output stream 'other'"):
        spout.emit_many([(0,)], stream="other")


class EmitsOneShot(Emits):
    """Its rows are a deque or an iterator, and each of them can be read once."""

    def __init__(self, kind: Callable[[Any], Any]) -> None:
        self.kind = kind

    def next_tuple(self) -> None:
        rows = self.kind(iter([number]) for number in range(COUNT))
        self.emit_many(rows, message_ids=range(COUNT))
        self.finish()


class EmitsOneShotInThread(EmitsOneShot):
    threaded = True


@pytest.mark.parametrize("kind", [deque, iter, list])
@pytest.mark.parametrize("spout", [EmitsOneShot, EmitsOneShotInThread])
@pytest.mark.parametrize("state", [False, True])
def test_rows_may_be_iterators(
    spout: type[EmitsOneShot], kind: Callable[[Any], Any], state: bool, tmp_path: Path
) -> None:
    run(spout(kind), topology_state_path=tmp_path.as_uri() if state else None)
    assert happened("read") == list(range(COUNT))
    assert sorted(number for each in happened("acked many") for number in each) == list(range(COUNT))


def test_hooks_hear_of_rows_of_iterators() -> None:
    run(EmitsOneShot(iter), (Watches(),))
    assert happened("emitted") == [(number,) for number in range(COUNT)]


@pytest.mark.parametrize("rows", [5, None, "ab", b"ab", {1: 2}, {1}])
def test_what_is_no_list_of_rows_is_refused(rows: Any) -> None:
    task = running_spout()
    with pytest.raises(EmitError, match="takes a list of rows, not") as refused:
        task.instance.emit_many(rows)
    assert (refused.value.emitted, task.emitter.emitted) == (0, 0)


def epoch_emitter(rewindable: bool) -> EpochSpoutEmitter:
    made = running_spout().emitter
    emitter = EpochSpoutEmitter(made.component, made.task, made.outputs, made.random, made.tracker)
    emitter.keep_in(Emissions(rewindable))
    return emitter


@pytest.mark.parametrize("rewindable", [False, True])
def test_a_call_of_another_thread_counts_nothing(rewindable: bool) -> None:
    emitter = epoch_emitter(rewindable)
    emitter.open_for(threading.get_ident())
    raised: list[BaseException] = []

    def read_while_the_owner_emits() -> Any:
        emitter.emitted += 1  # as the thread does that may emit
        yield (1,)

    def call() -> None:
        try:
            emitter.emit_many(read_while_the_owner_emits(), message_ids=["a"])
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(each) for each in raised] == [EmitError]
    assert (emitter.emissions.count, emitter.emissions.open, emitter.emitted) == (0, [], 0)


@pytest.mark.parametrize("rewindable", [False, True])
def test_with_epochs_rows_before_one_that_is_refused_are_kept(rewindable: bool) -> None:
    emitter = epoch_emitter(rewindable)
    emitter.open_for(threading.get_ident())
    with pytest.raises(EmitError, match=r"2 value\(s\) were emitted") as refused:
        emitter.emit_many(
            deque([iter([0]), [1], iter([2, "too much"]), (3,)]), message_ids=["a", None, "c", "d"]
        )
    assert refused.value.emitted == emitter.emissions.count == 2
    rows = [("a", ("default", 0, (0,))), (None, ("default", 0, (1,)))]
    assert emitter.emissions.open == (["a"] if rewindable else rows)


class Refuses(Grouping):
    """Has no task for the last number."""

    def prepare(self, context: Any, source: Any, stream: Any, targets: Any) -> None:
        self.targets = list(targets)

    def choose(self, values: tuple[Any, ...]) -> list[int]:
        return self.targets if values[0] < COUNT - 1 else [999]


class EmitsForRefusal(EmitsInThread):
    def next_tuple(self) -> None:
        try:
            super().next_tuple()
        except GroupingError as error:
            EVENTS.append(("refused behind", error.emitted))
            self.finish()


def test_a_call_that_yields_says_how_many_it_has_emitted_in_all() -> None:
    builder = TopologyBuilder("many")
    builder.set_spout("emits", EmitsForRefusal())
    builder.set_bolt("reads", Reads()).custom_grouping("emits", Refuses())
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("many", timeout=60)
    assert happened("refused behind") == [COUNT - 1]
    assert happened("read") == list(range(COUNT - 1))


class EmitsPoison(Spout):
    """Emits one number, which is given up, and then another one: the first letter is read while no other tree is open."""

    outputs = Fields("number")
    replay = Replay(max_attempts=1)
    at = 0

    def next_tuple(self) -> float:
        if self.at < 2:
            self.at += 1
            self.emit((self.at,), message_id=self.at)
        return 10.0

    def ack_many(self, message_ids: list[Any]) -> None:
        EVENTS.append(("acked many", list(message_ids)))
        message_ids.clear()
        raise ValueError("after the list was emptied")


class EmitsPoisonInThread(EmitsPoison):
    threaded = True


class FailsTheFirst(Reads):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 1:
            raise ValueError("poison")
        super().execute(tup)


class ReadsLetters(Bolt):
    def execute(self, tup: Tuple) -> None:
        EVENTS.append(("letter", tup["values"]))


@pytest.mark.parametrize("kind", [EmitsPoison, EmitsPoisonInThread])
def test_a_letter_that_is_read_alone_acks_nothing_of_the_spout(kind: type[Spout]) -> None:
    builder = TopologyBuilder("many")
    builder.set_spout("emits", kind())
    builder.set_bolt("reads", FailsTheFirst()).shuffle_grouping("emits")
    builder.set_bolt("letters", ReadsLetters()).dead_letters("emits")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(60)
        errors = [str(each) for each in cluster.status("many").errors]
    assert len(happened("letter")) == 1
    assert happened("acked many") == [[2]] and happened("read") == [2]
    assert not any("IndexError" in each for each in errors), errors
    assert sum("after the list was emptied" in each for each in errors) == 1, errors


class EmitsInAckMany(Emits):
    """Ends where the first acks come, which is allowed."""

    ended = False

    def next_tuple(self) -> None:
        if not self.ended:
            self.ended = True
            self.emit_many([(number,) for number in range(COUNT)], message_ids=range(COUNT))

    def ack_many(self, message_ids: list[Any]) -> None:
        EVENTS.append(("acked many", list(message_ids)))
        self.finish()
        self.emit((-1,))


class EmitsInAckManyInThread(EmitsInAckMany):
    threaded = True


@pytest.mark.parametrize("kind", [EmitsInAckMany, EmitsInAckManyInThread])
@pytest.mark.parametrize("state", [False, True])
def test_ack_many_cannot_emit_and_says_so(kind: type[Spout], state: bool, tmp_path: Path) -> None:
    builder = TopologyBuilder("many", {"topology.state.path": tmp_path.as_uri() if state else None})
    builder.set_spout("emits", kind())
    builder.set_bolt("reads", Reads()).shuffle_grouping("emits")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("many", timeout=60)
        errors = [str(each) for each in cluster.status("many").errors]
    assert happened("read") == list(range(COUNT))
    assert sorted(number for each in happened("acked many") for number in each) == list(range(COUNT))
    assert any("emit in next_tuple" in each for each in errors), errors
