"""Whatever a builder is given, `build` returns a topology or raises one error with all problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topology_api import (
    Bolt,
    Fields,
    InvalidConfig,
    InvalidTopology,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topology_api.declarer import KINDS


class Nothing(Spout):
    outputs = Fields("a")

    def next_tuple(self) -> None:
        self.finish()


class Drops(Bolt):
    outputs = Fields("a")

    def execute(self, tup: Tuple) -> None:
        pass


ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, float("nan"), 10**400, 10**5000, "", ".", "\ud800", "\0", b"x", [], ["a"], ("a", 1),
    {}, {1: 2}, {"a": object()}, {"a": {"b": 10**5000}}, set(), object(), object, Nothing, Nothing(), Drops(), range(2),
]  # fmt: skip
#: The arguments of `build` that the test replaces, one at a time.
PLACES = ("name", "conf", "id", "spout", "parallelism", "own_conf", "bolt", "source")


def build(
    name: Any = "odd", conf: Any = None, id: Any = "nothing", spout: Any = None, parallelism: Any = 1,
    own_conf: Any = None, bolt: Any = None, source: Any = "nothing", grouping: str = "shuffle", *more: Any,
    **named: Any,
) -> Topology:  # fmt: skip
    builder = TopologyBuilder(name, conf)
    builder.set_spout(id, Nothing() if spout is None else spout, parallelism, own_conf)
    declarer = builder.set_bolt("drops", Drops() if bolt is None else bolt)
    getattr(declarer, f"{grouping}_grouping")(source, *more, **named)
    return builder.build()


def is_checked(call: Callable[[], object]) -> None:
    try:
        call()
    except (InvalidTopology, InvalidConfig) as error:
        assert error.problems and str(error)


@pytest.mark.parametrize("place", PLACES)
def test_an_odd_argument_is_a_problem_or_works(place: str) -> None:
    for odd in ODD:
        is_checked(lambda odd=odd: build(**{place: odd}))  # type: ignore[misc]


@pytest.mark.parametrize("grouping", KINDS)
def test_an_odd_argument_of_a_grouping_is_a_problem_or_works(grouping: str) -> None:
    for odd in ODD:
        more = (odd,) if grouping in ("fields", "partial_key", "custom") else ()
        is_checked(
            lambda odd=odd, more=more: build(  # type: ignore[misc]
                "odd", None, "nothing", None, 1, None, None, "nothing", grouping, *more, stream=odd
            )
        )


def test_an_odd_change_of_a_topology_or_a_replay_is_a_problem_or_works() -> None:
    topology = build()
    for odd in ODD:
        for call in (topology.renamed, topology.with_conf, topology.with_parallelism, Replay):
            is_checked(lambda odd=odd, call=call: call(odd))  # type: ignore[misc]
        is_checked(lambda odd=odd: topology.with_parallelism({"nothing": odd}))  # type: ignore[misc]
