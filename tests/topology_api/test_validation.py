"""build() reports every problem of a topology at once, and each names the component, stream and field."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api import Bolt, Fields, Grouping, InvalidTopology, Spout, Stream, TopologyBuilder


class Source(Spout):
    outputs: Any = {"default": Fields("a", "b"), "side": "x", "aimed": Stream(["y"], direct=True)}

    def next_tuple(self) -> None:
        pass


class Pass(Bolt):
    outputs: Any = ("a", "b")

    def execute(self, tup: Any) -> None:
        pass


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
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
    """The only problem of a bolt `b` beside a valid spout `s`; `declare` gets its declarer."""
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
    assert has(
        only(builder), "bolt 'b', shuffle_grouping('splt'): ", "no component 'splt'", "did you mean 'split'?"
    )


def test_an_unknown_stream_is_named_with_the_known_ones() -> None:
    problem = bolt_problem(lambda bolt: bolt.shuffle_grouping("s", stream="sied"))
    assert has(problem, "bolt 'b'", "spout 's' has no stream 'sied'", "'default'", "did you mean 'side'?")


def test_a_source_without_outputs_is_reported_as_such() -> None:
    builder = builder_with_source()
    builder.set_bolt("sink", Sink()).shuffle_grouping("s")
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


def test_a_field_that_no_component_with_a_duplicate_id_has_is_a_problem_too() -> None:
    builder = builder_with_source()
    builder.set_bolt("s", Pass()).fields_grouping("s", "nowhere")
    found = problems(builder)
    assert has(found[0], "'s' is used twice")
    assert has(found[1], "bolt 's'", "field 'nowhere'")
    assert len(found) == 2


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


def test_the_stream_of_dead_letters_is_reserved() -> None:
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


def test_a_topology_has_at_most_65535_tasks_in_total() -> None:
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


def test_consequences_of_a_reported_mistake_are_not_reported_again() -> None:
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
