"""Requirements on a spout or bolt: its kind, methods, attributes, outputs, and that it can be shipped."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from topology_api import BatchBolt, Bolt, Fields, InvalidTopology, Spout, Stream, TopologyBuilder


class Source(Spout):
    outputs: Any = {"default": Fields("a", "b"), "side": "x", "aimed": Stream(["y"], direct=True)}

    def next_tuple(self) -> None:
        pass


class Pass(Bolt):
    outputs: Any = ("a", "b")

    def execute(self, tup: Any) -> None:
        pass


class Batches(BatchBolt):
    def execute_batch(self, tups: Any) -> None:
        pass


def builder_with_source() -> TopologyBuilder:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    return builder


def problems(builder: TopologyBuilder) -> tuple[str, ...]:
    with pytest.raises(InvalidTopology) as caught:
        builder.build()
    assert caught.value.name == builder.name or not isinstance(builder.name, str)
    return caught.value.problems


def only(builder: TopologyBuilder) -> str:
    found = problems(builder)
    assert len(found) == 1, found
    return found[0]


def attribute_problem(instance: Spout | Bolt, **attributes: Any) -> str:
    vars(instance).update(attributes)
    builder = TopologyBuilder("t")
    if isinstance(instance, Spout):
        builder.set_spout("x", instance)
    else:
        builder.set_spout("s", Source())
        builder.set_bolt("x", instance).shuffle_grouping("s")
    return only(builder)


def has(text: str, *parts: str) -> bool:
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in {text!r}"
    return True


def spout_problem(component: Any) -> str:
    builder = TopologyBuilder("t")
    builder.set_spout("x", component)
    return only(builder)


def given_bolt_problem(component: Any) -> str:
    builder = builder_with_source()
    builder.set_bolt("x", component).shuffle_grouping("s")
    return only(builder)


def test_a_class_instead_of_an_instance_is_reported() -> None:
    assert has(spout_problem(Source), "spout 'x'", "class Source", "Source(...)")
    assert has(given_bolt_problem(Pass), "bolt 'x'", "class Pass", "Pass(...)")


def test_a_bolt_given_as_a_spout_and_the_reverse_are_reported() -> None:
    assert has(spout_problem(Pass()), "spout 'x'", "is a Bolt", "set_bolt")
    assert has(given_bolt_problem(Source()), "bolt 'x'", "is a Spout", "set_spout")


def test_another_object_or_one_that_is_both_is_refused() -> None:
    class Both(Source, Pass):  # type: ignore[misc]
        pass

    assert has(spout_problem(lambda: 1), "spout 'x'", "is not a Spout", "topology_api.Spout")
    assert has(given_bolt_problem(None), "bolt 'x'", "None", "is not a Bolt")
    assert has(spout_problem(Both()), "both")


def test_a_missing_method_is_named() -> None:
    class Idle(Spout):
        pass

    class Empty(Bolt):
        pass

    class EmptyBatch(BatchBolt):
        pass

    assert has(spout_problem(Idle()), "spout 'x'", "Idle has no next_tuple()")
    assert has(given_bolt_problem(Empty()), "bolt 'x'", "Empty has no execute(tup)")
    assert has(given_bolt_problem(EmptyBatch()), "bolt 'x'", "EmptyBatch has no execute_batch(tups)")


def test_a_batch_bolt_with_execute_is_refused() -> None:
    class Torn(Batches):
        def execute(self, tup: Any) -> None:
            pass

    assert has(given_bolt_problem(Torn()), "bolt 'x'", "execute_batch")


def test_methods_that_could_not_be_called_are_named() -> None:
    class NoArguments(Bolt):
        def execute(self) -> None:  # type: ignore[override]
            pass

    class OldFail(Source):
        def fail(self, message_id: object) -> None:  # type: ignore[override]
            pass

    class Yields(Bolt):
        def execute(self, tup: Any) -> Any:
            yield tup

    class AsyncSpout(Spout):
        async def next_tuple(self) -> None:  # type: ignore[override]
            pass

    assert has(given_bolt_problem(NoArguments()), "bolt 'x'", "execute()", "(tup)")
    assert has(spout_problem(OldFail()), "spout 'x'", "fail(message_id", "(message_id, failure)")
    assert has(given_bolt_problem(Yields()), "bolt 'x'", "execute contains yield")
    assert has(spout_problem(AsyncSpout()), "spout 'x'", "next_tuple is async")


def test_a_method_may_have_more_arguments_if_they_have_defaults() -> None:
    class Generous(Bolt):
        def execute(self, tup: Any, more: int = 3, *rest: Any, **named: Any) -> None:
            pass

    builder = builder_with_source()
    builder.set_bolt("x", Generous()).shuffle_grouping("s")
    assert builder.build().component("x").kind == "bolt"


def test_an_attribute_in_the_place_of_a_method_is_named() -> None:
    assert has(attribute_problem(Pass(), tick=5), "bolt 'x'", "its tick is 5 (int)", "rename")
    assert has(attribute_problem(Source(), finish=True), "spout 'x'", "its finish is True")
    assert has(attribute_problem(Pass(), _squall_x=1), "bolt 'x'", "_squall_x", "reserved")


def test_async_execute_together_with_threaded_is_refused() -> None:
    class Both(Bolt):
        threaded = True

        async def execute(self, tup: Any) -> None:
            pass

    assert has(given_bolt_problem(Both()), "bolt 'x'", "async", "threaded")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_concurrency", 0),
        ("max_concurrency", 2.5),
        ("max_concurrency", None),
        ("tick_interval", 0),
        ("tick_interval", -1),
        ("tick_interval", "5s"),
        ("tick_interval", True),
        ("tick_interval", float("inf")),
        ("threaded", 1),
        ("auto_ack", None),
        ("auto_anchor", "no"),
        ("batch_size", 0),
        ("batch_size", True),
        ("batch_size", "10"),
        ("batch_interval", 0),
        ("batch_interval", None),
        ("batch_interval", float("nan")),
        ("batch_interval", "1s"),
    ],
)
def test_unusable_attributes_of_a_bolt_are_named_with_their_value(name: str, value: Any) -> None:
    assert has(attribute_problem(Batches(), **{name: value}), "bolt 'x'", name, repr(value))


@pytest.mark.parametrize("replay", [3, "3", True, {}])
def test_an_unusable_replay_is_named(replay: Any) -> None:
    assert has(attribute_problem(Source(), replay=replay), "spout 'x'", "replay", "Replay(...)")


def test_a_property_that_raises_is_a_problem_with_its_error() -> None:
    class Broken(Pass):
        @property
        def outputs(self) -> Any:  # type: ignore[override]
            raise KeyError("schema")

        @property
        def tick_interval(self) -> Any:  # type: ignore[override]
            return self.interval  # type: ignore[attr-defined]

    builder = builder_with_source()
    builder.set_bolt("x", Broken()).shuffle_grouping("s")
    # Readers of streams that could not be determined are not blamed.
    builder.set_bolt("y", Pass()).fields_grouping("x", "whatever")
    found = problems(builder)
    assert len(found) == 2
    assert has(found[0], "bolt 'x'", "outputs", "KeyError: 'schema'")
    assert has(found[1], "bolt 'x'", "tick_interval", "AttributeError", "'interval'")


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        3,
        {"a"},
        Fields,
        ["a", 3],
        Fields("a", 3),  # type: ignore[arg-type]
        Fields({"a"}),  # type: ignore[arg-type]
        {3: ["a"]},
        {"side": None},
        {"side": ["a", None]},
        {"side": {"a": 1}},
        Stream("a", direct="yes"),  # type: ignore[arg-type]
        b"a",
    ],
    ids=repr,
)
def test_malformed_outputs_are_refused(outputs: Any) -> None:
    assert has(attribute_problem(Source(), outputs=outputs), "spout 'x'", "outputs")


def test_values_that_cannot_be_pickled_are_named_by_their_path() -> None:
    class Database:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    problem = attribute_problem(Pass(), db=Database())
    assert has(problem, "bolt 'x'", "self.db.lock", "cannot pickle", "prepare")


def test_a_wrapper_may_supply_arguments_of_its_wrapped_method() -> None:
    def with_database(method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def call(self: Any, tup: Any) -> None:
            method(self, tup, "database")

        return call

    class Wrapped(Bolt):
        @with_database
        def execute(self, tup: Any, database: Any) -> None:
            pass

    builder = builder_with_source()
    builder.set_bolt("x", Wrapped()).shuffle_grouping("s")
    assert builder.build().component("x").kind == "bolt"
