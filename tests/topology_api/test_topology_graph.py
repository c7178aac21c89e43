"""Topology: cycles, closing edges, description, copies."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api import (
    Bolt,
    Fields,
    Grouping,
    InvalidConfig,
    InvalidTopology,
    Spout,
    SquallError,
    Topology,
    TopologyBuilder,
)
from topology_api.graph import Edge, closing_edges, cycles


class Source(Spout):
    outputs = {"default": Fields("a", "b"), "side": "x"}

    def next_tuple(self) -> None:
        pass


class Pass(Bolt):
    outputs = Fields("a", "b")

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute(self, tup: Any) -> None:
        pass


class First(Grouping):
    def choose(self, values: tuple[object, ...]) -> list[int]:
        return []


def sample() -> Topology:
    builder = TopologyBuilder("sample", {"topology.workers": 2, "my.list": (1, 2)})
    source = builder.set_spout("source", Source(), conf={"topology.max.spout.pending": 7})
    one = (
        builder.set_bolt("one", Pass(1), parallelism=2).fields_grouping(source, "b", "a").dead_letters(source)
    )
    builder.set_bolt("two", Pass(2)).custom_grouping(one, First()).all_grouping("source", stream="side")
    one.shuffle_grouping("two")
    return builder.build()


def test_cycles_are_found_and_named_in_order_of_declaration() -> None:
    topology = sample()
    assert topology.cycles == (("one", "two"),)
    assert topology.closing_edges == {("one", "two", "default")}


def test_a_bolt_that_reads_itself_is_a_cycle() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    builder.set_bolt("b", Pass()).shuffle_grouping("s").shuffle_grouping("b")
    topology = builder.build()
    assert topology.cycles == (("b",),)
    assert topology.closing_edges == {("b", "b", "default")}


graphs = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just([f"c{i}" for i in range(n)]),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=25),
    )
)


def reachable(start: str, edges: list[Edge]) -> set[str]:
    """Everything reachable from `start` by one edge or more."""
    found: set[str] = set()
    ends = [start]
    while ends:
        here = ends.pop()
        for edge in edges:
            if edge.source == here and edge.target not in found:
                found.add(edge.target)
                ends.append(edge.target)
    return found


@given(graphs)
def test_cycles_are_exactly_the_groups_that_can_reach_each_other(
    graph: tuple[list[str], list[tuple[int, int]]],
) -> None:
    ids, pairs = graph
    edges = [Edge(ids[target], ids[source], "default") for target, source in pairs]
    reach = {one: reachable(one, edges) for one in ids}
    expected = []
    for one in ids:
        group = tuple(other for other in ids if other in reach[one] and one in reach[other])
        if group and group not in expected:
            expected.append(group)
    assert list(cycles(ids, edges)) == expected


@given(graphs)
def test_a_graph_without_its_closing_edges_has_no_cycle_and_each_is_needed(
    graph: tuple[list[str], list[tuple[int, int]]],
) -> None:
    ids, pairs = graph
    edges = list(dict.fromkeys(Edge(ids[target], ids[source], "default") for target, source in pairs))
    closing = set(closing_edges(ids, edges))
    rest = [edge for edge in edges if edge not in closing]
    assert cycles(ids, rest) == ()
    assert all(cycles(ids, [*rest, edge]) for edge in closing)


def test_a_chain_of_ten_thousand_bolts_is_no_problem() -> None:
    ids = [f"c{i}" for i in range(10_000)]
    chain = [Edge(target, source, "default") for source, target in pairwise(ids)]
    back = Edge(ids[0], ids[-1], "default")
    assert cycles(ids, chain) == ()
    assert cycles(ids, [*chain, back]) == (tuple(ids),)
    assert closing_edges(ids, [*chain, back]) == (back,)


def test_a_description_is_json_and_is_read_back_equal() -> None:
    topology = sample()
    description = json.loads(json.dumps(topology.describe()))
    back = Topology.from_description(description, topology.pickles)
    assert back == topology
    assert back.describe() == topology.describe()
    assert back.conf["my.list"] == [1, 2]


def test_a_topology_can_be_pickled() -> None:
    topology = sample()
    assert pickle.loads(pickle.dumps(topology)) == topology


@pytest.mark.parametrize(
    "path",
    [
        ("name",),
        ("conf",),
        ("components",),
        ("components", 0),
        ("components", 0, "id"),
        ("components", 0, "kind"),
        ("components", 0, "parallelism"),
        ("components", 0, "outputs", "side"),
        ("components", 0, "outputs", "side", "fields"),
        ("components", 1, "inputs"),
        ("components", 1, "inputs", 0, "grouping"),
        ("components", 1, "inputs", 0, "fields"),
        ("components", 2, "inputs", 0, "custom"),
        ("format",),
    ],
)
@pytest.mark.parametrize("junk", [None, 3.5, "ä", [[]], {"x": 1}, True])
def test_a_description_with_junk_in_it_is_an_invalid_topology_and_nothing_else(
    path: tuple[Any, ...], junk: Any
) -> None:
    topology = sample()
    description = topology.describe()
    place: Any = description
    for step in path[:-1]:
        place = place[step]
    # Values that would be valid in its place are invalidated in their own way.
    fine = (path == ("name",) and junk == "ä") or (path == ("conf",) and junk == {"x": 1})
    place[path[-1]] = {"name": "ä/", "conf": {"topology.x": 1}}[path[0]] if fine else junk
    with pytest.raises(InvalidTopology):
        Topology.from_description(description, topology.pickles)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["format", "name", "conf", "components", "id", "inputs", "outputs"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_gives_a_topology_or_an_invalid_topology(junk: Any) -> None:
    if isinstance(junk, dict):
        junk["format"] = 1
    with pytest.raises(InvalidTopology):
        Topology.from_description(junk, {})


def test_a_description_is_validated_again() -> None:
    topology = sample()
    description = topology.describe()
    description["components"][1]["inputs"][0]["fields"] = ["nope"]
    with pytest.raises(InvalidTopology, match=r"'one'.*'source'.*'nope'"):
        Topology.from_description(description, topology.pickles)
    with pytest.raises(InvalidTopology, match="'two' comes without its pickle"):
        Topology.from_description(
            topology.describe(), {key: topology.pickles[key] for key in ("source", "one")}
        )


def test_a_topology_cannot_be_changed() -> None:
    topology = sample()
    with pytest.raises(AttributeError):
        topology.name = "x"  # type: ignore[misc]
    for mapping in (
        topology.conf,
        topology.pickles,
        topology.components[0].outputs,
        topology.components[0].conf,
    ):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # type: ignore[index]


def test_load_gives_a_fresh_instance_each_time() -> None:
    topology = sample()
    first, second = topology.load("one"), topology.load("one")
    assert isinstance(first, Pass)
    assert first is not second
    assert first.n == second.n == 1


def test_loading_an_unknown_or_broken_component_names_it() -> None:
    topology = sample()
    with pytest.raises(SquallError, match="no component 'three'"):
        topology.load("three")
    broken = Topology(topology.name, {}, topology.components, {**topology.pickles, "one": b"junk"})
    with pytest.raises(SquallError, match="'one' cannot be unpickled here"):
        broken.load("one")


def test_a_renamed_topology_is_the_same_except_for_its_name() -> None:
    topology = sample()
    other = topology.renamed("other")
    assert (other.name, other.components, topology.name) == ("other", topology.components, "sample")
    with pytest.raises(InvalidTopology, match="a/b"):
        topology.renamed("a/b")


def test_further_configuration_overrides_existing_values_and_is_validated() -> None:
    topology = sample().with_conf({"topology.workers": 3, "topology.debug": True})
    assert topology.conf["topology.workers"] == 3
    assert topology.conf["topology.debug"] is True
    assert topology.conf["my.list"] == [1, 2]
    with pytest.raises(InvalidConfig) as caught:
        topology.with_conf({"topology.wrokers": 3, "topology.debug": "30s"})
    assert len(caught.value.problems) == 2


def test_other_numbers_of_tasks_change_nothing_else() -> None:
    topology = sample()
    other = topology.with_parallelism({"two": 3, "source": 1})
    assert {component.id: component.parallelism for component in other.components} == {
        **{component.id: component.parallelism for component in topology.components},
        "two": 3,
        "source": 1,
    }
    back = {component.id: component.parallelism for component in topology.components}
    assert other.with_parallelism(back) == topology
    assert topology.with_parallelism(back) is topology
    assert other.load("two").__class__ is topology.load("two").__class__


def test_invalid_numbers_of_tasks_are_refused_with_all_problems() -> None:
    wrong: Any = {"tow": 2, "one": 0, "two": True, 7: 1, "source": 65_536}
    with pytest.raises(InvalidConfig) as caught:
        sample().with_parallelism(wrong)
    assert len(caught.value.problems) == 5
    assert "did you mean 'two'?" in caught.value.problems[0]
    assert "component 'one': parallelism is 0 (int)" in caught.value.problems[1]
    with pytest.raises(InvalidConfig, match=r"65,536 tasks in all, at most 65,535"):
        sample().with_parallelism({"one": 65_000, "two": 535})
    nothing: Any = 4
    with pytest.raises(InvalidConfig, match=r"4 \(int\): give a dict"):
        sample().with_parallelism(nothing)


def test_spouts_and_bolts_are_distinguished() -> None:
    topology = sample()
    assert [component.id for component in topology.spouts] == ["source"]
    assert [component.id for component in topology.bolts] == ["one", "two"]
    assert topology.component("two").parallelism == 1
    assert repr(topology) == "<Topology 'sample': 1 spouts, 2 bolts, 4 tasks>"


def test_ten_thousand_bolts_that_read_themselves_are_ten_thousand_cycles_in_linear_time() -> None:
    ids = [f"c{i}" for i in range(10_000)]
    chain = [Edge(target, source, "default") for source, target in pairwise(ids)]
    began = process_time()
    assert cycles(ids, [*chain, *(Edge(one, one, "default") for one in ids)]) == tuple((one,) for one in ids)
    assert process_time() - began < 5.0  # takes 0.05 s; a search for each cycle took 40 s
