"""The testing helpers find components that change values of tuples, and accuse no others."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest

from local_cluster.mutation import MutationWatch, is_plain, snapshot
from local_cluster.testing import MutatedValue, ScriptedSpout, complete_topology, run_bolt
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Fields,
    Spout,
    SquallError,
    Topology,
    TopologyBuilder,
    Tuple,
)


class Pass(Bolt):
    """Passes on the same object."""

    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],))


class ChangesInput(Bolt):
    def execute(self, tup: Tuple) -> None:
        tup["value"].append("changed")


class ChangesInputAndFails(Bolt):
    def execute(self, tup: Tuple) -> None:
        tup["value"].append("changed")
        raise ValueError("and fails too")


class ChangesBatch(BatchBolt):
    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        tups[-1]["value"].append("changed")


class ChangesWhileAsleep(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(1)
        tup["value"].append("changed")


class ChangesInThread(ChangesInput):
    threaded = True


class ChangesNested(Bolt):
    def execute(self, tup: Tuple) -> None:
        tup["value"][0]["deep"] = "changed"


class ChangesAttribute(Bolt):
    def execute(self, tup: Tuple) -> None:
        tup["value"].items.append("changed")


class ChangesLater(Bolt):
    """Keeps each value and changes it when the next one comes."""

    def prepare(self, context: Context) -> None:
        self.last: Any = None

    def execute(self, tup: Tuple) -> None:
        if self.last is not None:
            self.last.append("changed")
        self.last = tup["value"]


class ChangesEmitted(Bolt):
    """Changes a list after emitting it, in the same call."""

    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        mine = list(tup["value"])
        self.emit((mine,))
        mine.append("changed")


class Accumulates(Bolt):
    """Emits one and the same dict repeatedly."""

    outputs = Fields("value")

    def prepare(self, context: Context) -> None:
        self.counts: dict[Any, int] = {}

    def execute(self, tup: Tuple) -> None:
        key = str(tup[0])
        self.counts[key] = self.counts.get(key, 0) + 1
        self.emit((self.counts,))


class Copies(Accumulates):
    """Works correctly."""

    def execute(self, tup: Tuple) -> None:
        key = str(tup[0])
        self.counts[key] = self.counts.get(key, 0) + 1
        self.emit((dict(self.counts),))


class Buffered(Spout):
    """Clears its buffer after emitting it."""

    outputs = Fields("value")

    def open(self, context: Context) -> None:
        self.buffer: list[int] = []
        self.calls = 0

    def next_tuple(self) -> float | None:
        self.calls += 1
        if self.calls == 1:
            self.buffer.append(1)
            self.emit((self.buffer,), message_id=1)
            return 1.0
        self.buffer.clear()
        self.finish()
        return None


class Looks(Bolt):
    outputs = Fields("seen")

    def execute(self, tup: Tuple) -> None:
        self.emit((repr(tup[0]),))


def chain(spout: Spout, *bolts: Bolt) -> Topology:
    """A spout and bolts in a row, named b1, b2, ..."""
    builder = TopologyBuilder("chain")
    last: Any = builder.set_spout("spout", spout)
    for number, bolt in enumerate(bolts, 1):
        last = builder.set_bolt(f"b{number}", bolt).shuffle_grouping(last)
    return builder.build()


def lists(count: int = 1) -> ScriptedSpout:
    return ScriptedSpout("value", [([n],) for n in range(count)])


def mutation(topology: Topology, **options: Any) -> MutatedValue:
    with pytest.raises(MutatedValue) as caught:
        complete_topology(topology, **options)
    return caught.value


@pytest.mark.parametrize(
    "bolt", [ChangesInput(), ChangesInputAndFails(), ChangesBatch(), ChangesWhileAsleep(), ChangesInThread()]
)
def test_a_bolt_of_any_kind_that_changes_its_input_is_named(bolt: Bolt) -> None:
    error = mutation(chain(lists(), bolt))
    assert (error.component, error.source, error.stream, error.field) == ("b1", "spout", "default", "value")
    assert (error.before, error.after) == ([0], [0, "changed"])
    assert error.others == ()


def test_the_error_is_readable_and_is_both_an_assertion_and_a_squall_error() -> None:
    error = mutation(chain(lists(), ChangesInput()))
    assert isinstance(error, SquallError)
    assert isinstance(error, AssertionError)
    assert str(error).splitlines()[:3] == [
        "component 'b1' changed a value that it got in a tuple: field 'value' of 'spout', stream 'default'",
        "  was [0]",
        "  is  [0, 'changed']",
    ]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_change_deep_inside_is_found() -> None:
    spout = ScriptedSpout("value", [(({"deep": "x"},),)])
    error = mutation(chain(spout, ChangesNested()))
    assert (error.component, error.before, error.after) == (
        "b1",
        ({"deep": "x"},),
        ({"deep": "changed"},),
    )


def test_a_value_that_was_passed_on_is_compared_with_its_first_emission() -> None:
    error = mutation(chain(lists(), Pass(), Pass(), ChangesInput()))
    assert (error.component, error.source) == ("b3", "spout")


def test_a_bolt_that_changes_a_kept_value_is_named() -> None:
    error = mutation(chain(lists(2), ChangesLater()))
    assert (error.component, error.source, error.others) == ("b1", "spout", ())


def test_a_bolt_that_changes_its_own_emission_is_named() -> None:
    error = mutation(chain(lists(), ChangesEmitted(), Looks()))
    assert (error.component, error.source, error.field) == ("b1", "b1", "value")
    assert "after it had emitted it" in str(error)


def test_a_changed_value_is_found_whether_it_has_readers_or_not() -> None:
    assert mutation(chain(lists(2), Accumulates())).component == "b1"


def test_a_growing_dict_that_is_emitted_repeatedly_is_found() -> None:
    error = mutation(chain(ScriptedSpout("value", [("x",), ("x",)]), Accumulates(), Looks()))
    assert (error.component, error.before, error.after) == ("b1", {"x": 1}, {"x": 2})


def test_copies_are_allowed() -> None:
    done = complete_topology(chain(ScriptedSpout("value", [("x",), ("x",)]), Copies(), Looks()))
    assert done.emitted("b1") == [({"x": 1},), ({"x": 2},)]


def test_a_spout_that_changes_a_value_executed_long_ago_is_found_at_the_end() -> None:
    error = mutation(chain(Buffered(), Looks()))
    assert (error.component, error.before, error.after) == ("spout", [1], [])
    assert error.others == ("b1",)
    assert "or 'b1' did" in str(error)


class TwoReaders(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(5)


def test_of_several_readers_the_one_that_changed_the_value_is_named() -> None:
    builder = TopologyBuilder("readers")
    builder.set_spout("spout", lists(3))
    builder.set_bolt("looks", Looks(), parallelism=2).all_grouping("spout")
    builder.set_bolt("waits", TwoReaders()).all_grouping("spout")
    builder.set_bolt("changes", ChangesInput()).all_grouping("spout")
    assert mutation(builder.build()).component == "changes"


def test_workers_joined_by_the_transport_are_checked_as_well() -> None:
    error = mutation(chain(lists(), Pass(), ChangesInput()), conf={"topology.workers": 3})
    assert error.component == "b2"


def test_fixed_values_are_checked_as_well() -> None:
    error = mutation(chain(Buffered(), ChangesInput()), sources={"spout": [([5],)]})
    assert (error.component, error.before) == ("b1", [5])


def test_run_bolt_checks_inputs_and_outputs() -> None:
    with pytest.raises(MutatedValue, match="'bolt' changed a value that it got") as caught:
        run_bolt(ChangesInput(), [{"value": [1]}])
    assert caught.value.source == "inputs"
    with pytest.raises(MutatedValue, match="after it had emitted it"):
        run_bolt(ChangesEmitted(), [{"value": [1]}])
    with pytest.raises(MutatedValue, match="'bolt'"):
        run_bolt(ChangesLater(), [{"value": [1]}, {"value": [2]}])


# Components that changed nothing are not accused.


class Locked:
    """Cannot be pickled once it is locked, and changes all the time."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.lock = threading.Lock()


class EmitsUnpicklable(Bolt):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit((Locked(),))


def test_values_that_cannot_be_pickled_are_ignored() -> None:
    done = complete_topology(chain(lists(), EmitsUnpicklable(), ChangesAttribute()))
    assert done.acked("spout") == [0]


class Restless:
    """Pickles differently each time."""

    count = 0

    def __reduce__(self) -> Any:
        Restless.count += 1
        return (Restless.made, (self.count,))

    @staticmethod
    def made(count: int) -> Restless:
        return Restless()


@dataclass
class Order:
    items: list[int] = field(default_factory=list)

    @cached_property
    def total(self) -> int:
        return sum(self.items)


class ReadsTotal(Bolt):
    outputs = Fields("total")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0].total,))


def test_values_that_pickle_differently_each_time_are_ignored() -> None:
    done = complete_topology(chain(ScriptedSpout("value", [(Restless(),)]), Pass(), Looks()))
    assert done.acked("spout") == [0]


def test_reading_a_cached_property_is_no_change_but_changing_the_object_is() -> None:
    spout = ScriptedSpout("value", [(Order([1, 2]),)])
    assert complete_topology(chain(spout, ReadsTotal())).emitted("b1") == [(3,)]
    assert mutation(chain(spout, ChangesAttribute())).after == Order([1, 2, "changed"])  # type: ignore[list-item]


def test_equal_values_and_the_same_value_twice_accuse_no_component() -> None:
    shared = [1, {2: {3}}]
    spout = ScriptedSpout(("a", "b"), [(shared, shared), (shared, [1, {2: {3}}])])
    done = complete_topology(chain(spout, Pass(), Looks()))
    assert len(done.acked("spout")) == 2


def test_replays_of_unchanged_values_accuse_no_component() -> None:
    class FailsTwice(Bolt):
        def prepare(self, context: Context) -> None:
            self.calls = 0

        def execute(self, tup: Tuple) -> None:
            self.calls += 1
            if self.calls < 3:
                raise ValueError("again")

    done = complete_topology(chain(lists(), FailsTwice()))
    assert done.acked("spout") == [0]
    assert done.status.components["spout"].replayed == 2


class OwnError(MutatedValue):
    def __init__(self, *args: Any) -> None:
        self.seen = True
        super().__init__(*args)


def test_the_error_of_a_subclass_with_an_attribute_of_its_own_can_be_pickled() -> None:
    error = OwnError("b", "a", "default", "x", [1], [2], ["c"])
    assert error.args == ("b", "a", "default", "x", [1], [2], ("c",))
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize("value", [1, "a", b"a", None, True, 1.5, (1, ("a", None)), frozenset((1, 2)), int])
def test_immutable_values_are_not_watched(value: Any) -> None:
    assert is_plain(value)
    watch = MutationWatch()
    watch.emitted("a", "default", ("x",), (value,))
    assert watch.watched == {}


@pytest.mark.parametrize("value", [[], {}, (1, []), set(), bytearray(b"a"), Order(), frozenset((Order,))])
def test_mutable_values_are_watched_and_pickle_the_same_twice(value: Any) -> None:
    if value == frozenset((Order,)):
        assert is_plain(value)
    else:
        assert not is_plain(value)
        assert snapshot(value) == snapshot(value) is not None
