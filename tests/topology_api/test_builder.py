"""TopologyBuilder: the built topology is the declared one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from topology_api import Bolt, Fields, Grouping, Replay, Spout, Stream, TopologyBuilder
from topology_api.topology import GroupingSpec, StreamSpec, Subscription


class Source(Spout):
    outputs = {"default": Fields("a", "b"), "side": "x", "aimed": Stream(["y"], direct=True)}

    def next_tuple(self) -> None:
        pass


class Pass(Bolt):
    outputs: Any = ("a", "b")

    def execute(self, tup: Any) -> None:
        pass


class Modulo(Grouping):
    def __init__(self, by: int) -> None:
        self.by = by

    def choose(self, values: tuple[object, ...]) -> list[int]:
        return []


def test_every_grouping_becomes_a_subscription_and_calls_chain() -> None:
    builder = TopologyBuilder("t")
    for number in range(8):
        builder.set_spout(f"s{number}", Source())
    (
        builder.set_bolt("b", Pass())
        .shuffle_grouping("s0")
        .fields_grouping("s1", "a")
        .partial_key_grouping("s2", "b", "a")
        .all_grouping("s3", stream="side")
        .global_grouping("s4")
        .none_grouping("s5")
        .direct_grouping("s6", stream="aimed")
        .local_or_shuffle_grouping("s7")
        .custom_grouping("s0", Modulo(3), stream="side")
        .dead_letters("s0")
    )
    inputs = builder.build().component("b").inputs
    custom = inputs[8].grouping.custom
    assert inputs == (
        Subscription("s0", "default", GroupingSpec("shuffle")),
        Subscription("s1", "default", GroupingSpec("fields", ("a",))),
        Subscription("s2", "default", GroupingSpec("partial_key", ("b", "a"))),
        Subscription("s3", "side", GroupingSpec("all")),
        Subscription("s4", "default", GroupingSpec("global")),
        Subscription("s5", "default", GroupingSpec("none")),
        Subscription("s6", "aimed", GroupingSpec("direct")),
        Subscription("s7", "default", GroupingSpec("local_or_shuffle")),
        Subscription("s0", "side", GroupingSpec("custom", custom=custom)),
        Subscription("s0", "__dead_letters", GroupingSpec("shuffle")),
    )
    assert pickle.loads(custom).by == 3


def test_outputs_are_read_in_every_permitted_form() -> None:
    class AsProperty(Pass):
        def __init__(self, names: Any) -> None:
            self.names = names

        @property
        def outputs(self) -> Any:  # type: ignore[override]
            return self.names

    forms = {
        "fields": Fields("a", "b"),
        "list": ["a", "b"],
        "tuple": ("a", "b"),
        "stream": Stream(["a", "b"]),
        "dict": {"default": ["a", "b"]},
    }
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    for name, form in forms.items():
        instance = Pass()
        instance.outputs = form
        builder.set_bolt(name, instance).shuffle_grouping("s")
        builder.set_bolt(name + "-property", AsProperty(form)).shuffle_grouping("s")
    topology = builder.build()
    for component in topology.bolts:
        assert component.outputs == {"default": StreamSpec(("a", "b"))}
    assert topology.component("s").outputs == {
        "default": StreamSpec(("a", "b")),
        "side": StreamSpec(("x",)),
        "aimed": StreamSpec(("y",), direct=True),
    }


def test_a_component_without_outputs_has_none_and_fields_may_be_empty() -> None:
    class Sink(Bolt):
        def execute(self, tup: Any) -> None:
            pass

    class Signal(Sink):
        outputs = Fields()

    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    builder.set_bolt("sink", Sink()).shuffle_grouping("s")
    builder.set_bolt("signal", Signal()).shuffle_grouping("s")
    topology = builder.build()
    assert topology.component("sink").outputs == {}
    assert topology.component("signal").outputs == {"default": StreamSpec(())}


def test_handles_and_declarers_are_accepted_wherever_an_id_is() -> None:
    builder = TopologyBuilder("t")
    spout = builder.set_spout("s", Source())
    first = builder.set_bolt("first", Pass()).shuffle_grouping(spout)
    builder.set_bolt("second", Pass()).fields_grouping(first, "a").dead_letters(spout)
    topology = builder.build()
    assert spout.id == "s"
    assert [subscription.source for subscription in topology.component("second").inputs] == ["first", "s"]


def test_a_source_may_be_declared_after_the_bolt_that_reads_it() -> None:
    builder = TopologyBuilder("t")
    builder.set_bolt("b", Pass()).shuffle_grouping("s")
    builder.set_spout("s", Source())
    assert [component.id for component in builder.build().components] == ["b", "s"]


def test_fields_are_accepted_one_by_one_or_as_a_sequence() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    for name, fields in {"one": ("a", "b"), "list": (["a", "b"],), "fields": (Fields("a", "b"),)}.items():
        builder.set_bolt(name, Pass()).fields_grouping("s", *fields)
    assert {bolt.inputs[0].grouping.fields for bolt in builder.build().bolts} == {("a", "b")}


def test_dead_letters_add_their_stream_to_their_spout() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("read", Source())
    builder.set_spout("unread", Source())
    builder.set_bolt("b", Pass()).dead_letters("read")
    topology = builder.build()
    letters = StreamSpec(("message_id", "values", "stream", "failure"), direct=False)
    assert topology.component("read").outputs["__dead_letters"] == letters
    assert "__dead_letters" not in topology.component("unread").outputs


def test_instance_attributes_override_those_of_the_class() -> None:
    source = Source()
    source.replay = Replay(max_attempts=7)
    source.outputs = {"default": Fields("z")}
    builder = TopologyBuilder("t")
    builder.set_spout("s", source)
    topology = builder.build()
    assert topology.component("s").outputs == {"default": StreamSpec(("z",))}
    assert topology.load("s").replay.max_attempts == 7


def test_configuration_is_copied_as_json_would_return_it() -> None:
    conf: dict[str, Any] = {"my.list": (1, [2, 3]), "topology.auto.task.hooks": ("m:C",)}
    own: dict[str, Any] = {"my.dict": {"x": (1,)}, "topology.tick.tuple.freq.secs": 2}
    builder = TopologyBuilder("t", conf)
    builder.set_spout("s", Source(), conf=own)
    topology = builder.build()
    conf["my.list"][1].append(4)
    own["my.dict"]["x"] = 5
    assert topology.conf == {"my.list": [1, [2, 3]], "topology.auto.task.hooks": ["m:C"]}
    assert topology.component("s").conf == {"my.dict": {"x": [1]}, "topology.tick.tuple.freq.secs": 2}


def test_a_builder_can_be_used_further_without_changing_its_topologies() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    first = builder.build()
    builder.set_bolt("b", Pass()).shuffle_grouping("s")
    assert [component.id for component in first.components] == ["s"]
    assert [component.id for component in builder.build().components] == ["s", "b"]


def test_spouts_have_no_grouping_calls_for_a_type_checker_but_their_ids_show() -> None:
    builder = TopologyBuilder("t")
    assert repr(builder.set_spout("s", Source())) == "<spout 's'>"
    assert repr(builder.set_bolt("b", Pass())) == "<bolt 'b'>"


def test_building_the_same_topology_twice_gives_equal_descriptions() -> None:
    def build() -> Any:
        builder = TopologyBuilder("t")
        builder.set_spout("s", Source(), 3)
        builder.set_bolt("b", Pass(), 2).shuffle_grouping("s")
        return builder.build()

    assert build() == build()


@pytest.mark.parametrize("parallelism", [1, 65_534])
def test_parallelism_is_limited_only_by_task_ids(parallelism: int) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    builder.set_bolt("b", Pass(), parallelism).shuffle_grouping("s")
    assert builder.build().component("b").parallelism == parallelism
