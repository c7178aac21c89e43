"""The calls to an observer of a local cluster: for which task, in which order, whatever the user code does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from local_cluster import LocalCluster
from topology_api import BatchBolt, Bolt, Context, Failure, Fields, Spout, Topology, TopologyBuilder, Tuple


class Numbers(Spout):
    outputs = Fields("number")
    replay = None

    def open(self, context: Context) -> None:
        self.left = [3, 2, 1]

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        number = self.left.pop()
        self.emit((value for value in [number]), message_id=number)  # type: ignore[arg-type]


class FailsOnTwo(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise ValueError("two")


class FailsOnTwoAsync(Bolt):
    async def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise ValueError("two")


class FailsAll(BatchBolt):
    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        raise ValueError("none of them")


class Watcher:
    """Records its calls, with the component for which it was made."""

    def __init__(self, seen: list[tuple[Any, ...]], component: str) -> None:
        self.seen = seen
        self.component = component

    def note(self, *what: Any) -> None:
        self.seen.append((self.component, *what))

    def opened(self, context: Context) -> None:
        self.note("opened", context.component)

    def emitted(self, task: int, stream: str, values: tuple[Any, ...], targets: Sequence[int]) -> None:
        self.note("emitted", values, list(targets))

    def executing(self, tup: Tuple) -> None:
        self.note("executing", tup["number"])

    def executed(self, tup: Tuple) -> None:
        self.note("executed", tup["number"])

    def acked(self, tup: Tuple) -> None:
        self.note("acked", tup["number"])

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.note("failed", tup["number"])

    def spout_acked(self, message_id: Any) -> None:
        self.note("spout_acked", message_id)

    def spout_failed(self, message_id: Any, failure: Failure) -> None:
        self.note("spout_failed", message_id)

    def closed(self) -> None:
        self.note("closed")


class WatchEach:
    """Gives every task an observer of its own."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def for_task(self, context: Context) -> Watcher:
        return Watcher(self.seen, context.component)


class Breaks:
    """A hook whose methods all fail with an assertion."""

    def __getattr__(self, name: str) -> Any:
        if name == "for_task":
            raise AttributeError(name)

        def fails(*args: Any) -> None:
            raise AssertionError(name)

        return fails


def numbers_into(bolt: Bolt) -> Topology:
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()


def seen_with(bolt: Bolt) -> list[tuple[Any, ...]]:
    watch = WatchEach()
    with LocalCluster(simulated_time=True, observers=(watch,)) as cluster:
        cluster.submit(numbers_into(bolt))
        cluster.advance(5)
        cluster.wait("numbers")
    return watch.seen


def test_each_task_has_an_observer_that_knows_its_task() -> None:
    seen = seen_with(FailsOnTwo())
    assert [entry for entry in seen if entry[0] == "bolt" and entry[1] != "opened"] == [
        ("bolt", "executing", 1),
        ("bolt", "executed", 1),
        ("bolt", "acked", 1),
        ("bolt", "executing", 2),
        ("bolt", "executed", 2),
        ("bolt", "failed", 2),
        ("bolt", "executing", 3),
        ("bolt", "executed", 3),
        ("bolt", "acked", 3),
        ("bolt", "closed"),
    ]
    final_calls = [entry[1:] for entry in seen if entry[0] == "numbers" and entry[1].startswith("spout_")]
    assert sorted(final_calls) == [("spout_acked", 1), ("spout_acked", 3), ("spout_failed", 2)]


def test_an_emission_from_an_iterator_is_seen_with_its_values() -> None:
    emitted = [entry[2] for entry in seen_with(FailsOnTwo()) if entry[1] == "emitted"]
    assert emitted == [(1,), (2,), (3,)]


def test_executed_follows_executing_though_execute_raised_in_every_kind_of_bolt() -> None:
    for bolt in (FailsOnTwo(), FailsOnTwoAsync(), FailsAll()):
        seen = seen_with(bolt)
        executing = [entry[2] for entry in seen if entry[1] == "executing"]
        executed = [entry[2] for entry in seen if entry[1] == "executed"]
        assert executing == executed == [1, 2, 3]


def test_an_observer_that_fails_an_assertion_harms_no_tuple() -> None:
    with LocalCluster(simulated_time=True, observers=(Breaks(),)) as cluster:
        cluster.submit(numbers_into(FailsOnTwo()))
        cluster.advance(5)
        cluster.wait("numbers")
        status = cluster.status("numbers")
    assert (status.components["bolt"].acked, status.components["bolt"].failed) == (2, 1)
    assert any("AssertionError" in report.text for report in status.errors)
