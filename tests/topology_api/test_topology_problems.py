"""A bolt's own check of the other bolts runs when the topology is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from topology_api import Bolt, InvalidTopology, Spout, TopologyBuilder, Tuple


class Words(Spout):
    outputs = ("word",)

    def next_tuple(self) -> None: ...


class Alone(Bolt):
    def execute(self, tup: Tuple) -> None: ...

    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        for name, bolt in earlier.items():
            if isinstance(bolt, Alone):
                yield f"{name!r} is here already"


class Plain(Bolt):
    def execute(self, tup: Tuple) -> None: ...


class Stumbles(Alone):
    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        raise KeyError("plain")


def problems(**bolts: Bolt) -> tuple[str, ...]:
    builder = TopologyBuilder("t")
    spout = builder.set_spout("words", Words())
    for name, bolt in bolts.items():
        builder.set_bolt(name, bolt).shuffle_grouping(spout)
    try:
        builder.build()
    except InvalidTopology as error:
        return tuple(error.problems)
    return ()


@pytest.mark.parametrize(
    ("bolts", "said"),
    [
        ({"plain": Plain(), "a": Alone()}, ()),
        ({"a": Alone(), "plain": Plain(), "b": Alone()}, ("bolt 'b': 'a' is here already",)),
        ({"a": Stumbles()}, ("bolt 'a': its topology_problems() raised KeyError: 'plain'",)),
    ],
)
def test_each_bolt_is_asked_about_those_declared_before_it(
    bolts: dict[str, Bolt], said: tuple[str, ...]
) -> None:
    assert problems(**bolts) == said
