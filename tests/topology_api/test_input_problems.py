"""A bolt's own check of its inputs runs when the topology is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from topology_api import Bolt, Fields, InvalidTopology, Spout, TopologyBuilder, Tuple


class Words(Spout):
    outputs = {"default": Fields("word"), "late": Fields("word", "delay")}

    def next_tuple(self) -> None: ...


class NeedsDelay(Bolt):
    def execute(self, tup: Tuple) -> None: ...

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        for (component, stream), fields in inputs.items():
            if "delay" not in fields:
                yield f"stream {stream!r} of {component!r} has no field 'delay' (it has: {', '.join(fields)})"


class Stumbles(NeedsDelay):
    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        raise KeyError("delay")


class SaysOneSentence(NeedsDelay):
    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        return "it never fits"


def build(bolt: Bolt, *streams: str) -> None:
    builder = TopologyBuilder("t")
    spout = builder.set_spout("words", Words())
    declared = builder.set_bolt("sink", bolt)
    for stream in streams:
        declared.shuffle_grouping(spout, stream=stream)
    builder.build()


def test_valid_inputs_are_built() -> None:
    build(NeedsDelay(), "late")


@pytest.mark.parametrize(
    ("bolt", "problem"),
    [
        (NeedsDelay(), "bolt 'sink': stream 'default' of 'words' has no field 'delay' (it has: word)"),
        (Stumbles(), "bolt 'sink': its input_problems() raised KeyError: 'delay'"),
        (SaysOneSentence(), "bolt 'sink': it never fits"),
    ],
)
def test_a_bolts_own_problem_is_one_of_the_topology(bolt: Bolt, problem: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        build(bolt, "default", "late")
    assert caught.value.problems == (problem,)


def test_a_bolt_is_not_asked_while_its_inputs_are_wrong_themselves() -> None:
    with pytest.raises(InvalidTopology) as caught:
        build(Stumbles(), "earlier")
    assert len(caught.value.problems) == 1
    assert "has no stream 'earlier'" in caught.value.problems[0]
