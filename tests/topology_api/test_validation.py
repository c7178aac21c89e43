"""build() reports every problem of a topology at once, and each names the component, stream and field."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api import BatchBolt, Bolt, Fields, Grouping, InvalidTopology, Spout, Stream, TopologyBuilder


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


class First(Grouping):
    def choose(self, values: tuple[object, ...]) -> list[int]:
        return []


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


def bolt_problem(declare: Callable[[Any], object]) -> str:
    """The only problem of a bolt `b` beside a sound spout `s`; `declare` gets its declarer."""
    builder = builder_with_source()
    declare(builder.set_bolt("b", Pass()))
    return only(builder)


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


# --- how components fit together ---


def test_an_unknown_component_is_named_with_the_nearest() -> None:
    builder = builder_with_source()
    builder.set_bolt("split", Pass()).shuffle_grouping("s")
    builder.set_bolt("b", Pass()).shuffle_grouping("splt")
    assert has(only(builder), "bolt 'b'", "stream='default'", "no component 'splt'", "did you mean 'split'?")


def test_an_unknown_stream_is_named_with_those_there_are() -> None:
    problem = bolt_problem(lambda bolt: bolt.shuffle_grouping("s", stream="sied"))
    assert has(problem, "bolt 'b'", "spout 's' has no stream 'sied'", "'default'", "did you mean 'side'?")


def test_a_source_without_outputs_is_said_to_have_none() -> None:
    builder = builder_with_source()
    builder.set_bolt("sink", Batches()).shuffle_grouping("s")
    builder.set_bolt("b", Pass()).shuffle_grouping("sink")
    assert has(only(builder), "bolt 'sink' has no stream 'default'", "no output streams")


@pytest.mark.parametrize("call", ["fields_grouping", "partial_key_grouping"])
def test_a_field_must_be_on_that_stream_not_merely_on_the_component(call: str) -> None:
    problem = bolt_problem(lambda bolt: getattr(bolt, call)("s", "a", "x"))
    assert has(problem, "bolt 'b'", "stream 'default' of spout 's'", "no field 'x'", "'a', 'b'")
    problem = bolt_problem(lambda bolt: getattr(bolt, call)("s", "a", stream="side"))
    assert has(problem, "bolt 'b'", "stream 'side' of spout 's'", "no field 'a'")


def test_a_fields_grouping_needs_fields_and_each_once() -> None:
    assert has(bolt_problem(lambda bolt: bolt.fields_grouping("s")), "bolt 'b'", "no fields")
    assert has(
        bolt_problem(lambda bolt: bolt.fields_grouping("s", "a", "a")), "bolt 'b'", "field 'a'", "2 times"
    )


def test_ids_are_unique_across_spouts_and_bolts() -> None:
    builder = builder_with_source()
    builder.set_bolt("s", Pass()).shuffle_grouping("s")
    assert has(only(builder), "'s' is used twice", "a spout and a bolt")


def test_direct_groupings_and_direct_streams_belong_together() -> None:
    problem = bolt_problem(lambda bolt: bolt.direct_grouping("s"))
    assert has(problem, "bolt 'b'", "stream 'default' of spout 's' is not direct")
    for call in (
        "shuffle_grouping",
        "all_grouping",
        "global_grouping",
        "none_grouping",
        "local_or_shuffle_grouping",
    ):
        problem = bolt_problem(methodcaller(call, "s", stream="aimed"))
        assert has(problem, "bolt 'b'", "stream 'aimed' of spout 's' is direct")
    problem = bolt_problem(lambda bolt: bolt.custom_grouping("s", First(), stream="aimed"))
    assert has(problem, "is direct")


def test_a_spout_with_inputs_is_refused() -> None:
    builder = builder_with_source()
    spout: Any = builder.set_spout("t", Source())
    spout.shuffle_grouping("s")
    assert has(only(builder), "spout 't'", "no inputs", "shuffle_grouping('s'")


def test_a_bolt_without_inputs_is_refused() -> None:
    builder = builder_with_source()
    builder.set_bolt("b", Pass())
    assert has(only(builder), "bolt 'b'", "no inputs")


def test_reading_a_stream_twice_names_both_calls() -> None:
    problem = bolt_problem(lambda bolt: bolt.shuffle_grouping("s").fields_grouping("s", "a"))
    assert has(
        problem,
        "bolt 'b'",
        "stream 'default' of 's' twice",
        "shuffle_grouping('s'",
        "fields_grouping('s', 'a'",
    )


def test_two_streams_of_one_source_may_be_read() -> None:
    builder = builder_with_source()
    builder.set_bolt("b", Pass()).shuffle_grouping("s").shuffle_grouping("s", stream="side")
    assert len(builder.build().component("b").inputs) == 2


def test_an_empty_topology_and_one_without_a_spout_are_refused() -> None:
    assert has(only(TopologyBuilder("t")), "empty")
    builder = TopologyBuilder("t")
    builder.set_bolt("b", Pass()).shuffle_grouping("b")
    assert has(only(builder), "no spout")


def test_cycles_between_bolts_are_allowed() -> None:
    builder = builder_with_source()
    builder.set_bolt("one", Pass()).shuffle_grouping("s").shuffle_grouping("two")
    builder.set_bolt("two", Pass()).shuffle_grouping("one")
    assert builder.build().cycles == (("one", "two"),)


# --- dead letters ---


def test_dead_letters_are_refused_where_there_are_none() -> None:
    builder = builder_with_source()
    unreplayed = Source()
    unreplayed.replay = None
    builder.set_spout("own", unreplayed)
    builder.set_bolt("one", Pass()).dead_letters("own")
    builder.set_bolt("two", Pass()).dead_letters("one")
    builder.set_bolt("three", Pass()).dead_letters("nobody")
    builder.set_bolt("four", Pass()).dead_letters("s").dead_letters("s")
    found = problems(builder)
    assert len(found) == 4
    assert has(found[0], "bolt 'one'", "dead_letters('own')", "replay = None")
    assert has(found[1], "bolt 'two'", "'one' is a bolt")
    assert has(found[2], "bolt 'three'", "no component 'nobody'")
    assert has(found[3], "bolt 'four'", "twice")


def test_the_stream_of_dead_letters_is_not_a_users() -> None:
    assert has(bolt_problem(lambda bolt: bolt.shuffle_grouping("s", stream="__dead_letters")), "reserved")
    assert has(
        attribute_problem(Source(), outputs={"__dead_letters": ["a"]}), "'x'", "'__dead_letters'", "reserved"
    )


# --- names, sizes, configuration ---

BAD_NAMES = ["", "/", "..", ".", ":", "\\", "a\0", "x" * 256, "a/b"]


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 3])
def test_a_bad_name_of_a_topology_is_refused(name: Any) -> None:
    builder = TopologyBuilder(name)
    builder.set_spout("s", Source())
    assert has(only(builder), "topology's name")


@pytest.mark.parametrize("name", [*BAD_NAMES, "__x", None, 3, ["s"], b"s"])
def test_a_bad_id_is_refused_for_spouts_and_bolts(name: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout(name, Source())
    assert has(only(builder), "spout", "its id")
    builder = builder_with_source()
    builder.set_bolt(name, Pass()).shuffle_grouping("s")
    assert has(only(builder), "bolt", "its id")


@pytest.mark.parametrize("name", [*BAD_NAMES, "__x"])
def test_a_bad_name_of_a_stream_is_refused(name: str) -> None:
    assert has(attribute_problem(Source(), outputs={name: ["a"]}), "spout 'x'", "stream", "its name")


@pytest.mark.parametrize("name", ["", "a\0", "x" * 256])
def test_a_bad_name_of_a_field_is_refused_with_its_stream(name: str) -> None:
    assert has(attribute_problem(Source(), outputs={"side": [name]}), "spout 'x'", "stream 'side'", "field")


def test_duplicate_fields_are_named_with_their_stream() -> None:
    problem = attribute_problem(Source(), outputs={"side": Fields("a", "b", "a")})
    assert has(problem, "spout 'x'", "stream 'side'", "field 'a'", "2 times")


@pytest.mark.parametrize("parallelism", [0, -1, 65_536, 10**12, True, 1.0, "2", None])
def test_an_unusable_parallelism_is_refused(parallelism: Any) -> None:
    builder = builder_with_source()
    builder.set_bolt("b", Pass(), parallelism).shuffle_grouping("s")
    assert has(only(builder), "bolt 'b'", "parallelism", repr(parallelism)[:5], "65535")


def test_a_topology_has_at_most_65535_tasks_in_all() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source(), 40_000)
    builder.set_bolt("b", Pass(), 25_536).shuffle_grouping("s")
    assert has(only(builder), "65,536 tasks", "spout 's'", "40,000")


def test_configuration_is_checked_at_both_levels() -> None:
    builder = TopologyBuilder("t", {"topology.worker": 2})
    builder.set_spout("s", Source(), conf={"topology.debug": "30s", "topology.workers": 3})
    found = problems(builder)
    assert len(found) == 3
    assert has(found[0], "topology's configuration", "'topology.worker'", "did you mean 'topology.workers'?")
    assert has(found[1], "spout 's', configuration", "'topology.debug'", "true or false")
    assert has(found[2], "spout 's', configuration", "'topology.workers'", "whole topology only")


@pytest.mark.parametrize("conf", [3, "a=b", [("a", 1)]])
def test_a_configuration_that_is_no_dict_is_a_problem(conf: Any) -> None:
    builder = TopologyBuilder("t", conf)
    builder.set_spout("s", Source(), conf=conf)
    found = problems(builder)
    assert len(found) == 2
    assert has(found[0], "spout 's'", "dict")
    assert has(found[1], "topology's configuration", "dict")


# --- what a component is ---


def spout_problem(component: Any) -> str:
    builder = TopologyBuilder("t")
    builder.set_spout("x", component)
    return only(builder)


def given_bolt_problem(component: Any) -> str:
    builder = builder_with_source()
    builder.set_bolt("x", component).shuffle_grouping("s")
    return only(builder)


def test_a_class_instead_of_an_instance_is_said_so() -> None:
    assert has(spout_problem(Source), "spout 'x'", "class Source", "Source(...)")
    assert has(given_bolt_problem(Pass), "bolt 'x'", "class Pass", "Pass(...)")


def test_a_bolt_given_as_a_spout_and_the_reverse_are_said_so() -> None:
    assert has(spout_problem(Pass()), "spout 'x'", "is a Bolt", "set_bolt")
    assert has(given_bolt_problem(Source()), "bolt 'x'", "is a Spout", "set_spout")


def test_something_else_or_both_at_once_is_refused() -> None:
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
    # What reads the streams that could not be told is not blamed for it.
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
        {"a", "b"},
        Fields,
        ["a", 3],
        Fields("a", 3),  # type: ignore[arg-type]
        Fields({"a", "b"}),  # type: ignore[arg-type]
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


def test_what_cannot_be_pickled_is_named_by_its_path() -> None:
    class Database:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    problem = attribute_problem(Pass(), db=Database())
    assert has(problem, "bolt 'x'", "self.db.lock", "cannot pickle", "prepare")


# --- arguments of the grouping calls ---


def test_a_wrong_source_is_a_problem_and_never_a_traceback() -> None:
    bolt = Pass()
    other = TopologyBuilder("other").set_spout("s", Source())
    wrong: list[tuple[Any, str]] = [
        (None, "None"),
        (3, "3 (int)"),
        (Source(), "is <"),
        (["s"], "['s'] (list)"),
        (bolt, "the instance itself: give its id, 'b'"),
        (other, "another builder"),
    ]
    for source, said in wrong:
        builder = builder_with_source()
        builder.set_bolt("b", bolt).shuffle_grouping(source)
        assert has(only(builder), "bolt 'b'", "shuffle_grouping(", said)


def test_a_wrong_stream_or_field_is_a_problem_and_never_a_traceback() -> None:
    wrong: Any
    for wrong in (None, 3, ["default"]):
        problem = bolt_problem(methodcaller("shuffle_grouping", "s", stream=wrong))
        assert has(problem, "bolt 'b'", "the stream is")
    for wrong in (None, 3, {"a"}, [["a"]]):
        problem = bolt_problem(methodcaller("fields_grouping", "s", wrong))
        assert has(problem, "bolt 'b'", "is not a str")


def test_a_wrong_custom_grouping_is_a_problem() -> None:
    class Lazy(Grouping):
        pass

    class Locked(First):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    wrong: list[tuple[Any, str]] = [
        (First, "the class First"),
        (lambda values: [1], "is not a Grouping"),
        (Lazy(), "Lazy has no choose(values)"),
        (Locked(), "self.lock"),
    ]
    for grouping, said in wrong:
        problem = bolt_problem(methodcaller("custom_grouping", "s", grouping))
        assert has(problem, "bolt 'b'", "custom_grouping('s')", said)


def test_what_follows_from_a_reported_mistake_is_not_reported_again() -> None:
    builder = TopologyBuilder("t")
    wrong: Any = Source
    handle = builder.set_spout("s", wrong)
    builder.set_bolt("b", Pass()).fields_grouping(handle, "anything").dead_letters(handle)
    assert has(only(builder), "class Source")


# --- all at once ---


def test_all_problems_are_reported_at_once_each_with_its_place() -> None:
    wrong: Any = "2"
    builder = TopologyBuilder("a/b", {"topology.wrokers": 2})
    builder.set_spout("s", Source(), wrong)
    builder.set_bolt("one", Pass()).fields_grouping("s", "x").shuffle_grouping("nobody")
    builder.set_bolt("two", Pass())
    builder.set_bolt("__three", Pass()).direct_grouping("s")
    builder.set_bolt("one", Pass()).shuffle_grouping("s", stream="nope")
    vars(builder._declarations[1].component)["lock"] = threading.Lock()
    found = problems(builder)
    expected = [
        ("bolt 'one'", "self.lock"),
        ("topology's name", "a/b"),
        ("topology.wrokers", "topology.workers"),
        ("'one' is used twice",),
        ("spout 's'", "parallelism"),
        ("bolt 'one'", "stream 'default' of spout 's'", "no field 'x'"),
        ("bolt 'one'", "no component 'nobody'"),
        ("bolt 'two'", "no inputs"),
        ("bolt '__three'", "reserved"),
        ("bolt '__three'", "stream 'default' of spout 's' is not direct"),
        ("bolt 'one'", "no stream 'nope'"),
    ]
    assert len(found) == len(expected), found
    assert all(has(problem, *parts) for problem, parts in zip(found, expected))


junk = st.one_of(
    st.none(),
    st.integers(-2, 70_000),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([Source, Pass, Source(), Pass(), Fields("a"), "s", "default"]),
)


@given(st.data())
def test_no_argument_makes_the_builder_raise_anything_but_invalid_topology(data: st.DataObject) -> None:
    draw: Callable[[], Any] = lambda: data.draw(junk)  # noqa: E731 - typed, so that the calls below need no ignores
    builder = TopologyBuilder(draw(), draw())
    spout: Any = builder.set_spout(draw(), draw(), draw(), draw())
    bolt = builder.set_bolt(draw(), draw(), draw(), draw())
    bolt.shuffle_grouping(spout, stream=draw()).fields_grouping(draw(), draw(), stream=draw())
    bolt.custom_grouping(draw(), draw()).dead_letters(draw()).partial_key_grouping(bolt, draw())
    spout.all_grouping(draw())
    with pytest.raises(InvalidTopology) as caught:
        builder.build()
    assert all("\n" not in problem and len(problem) < 1000 for problem in caught.value.problems)
