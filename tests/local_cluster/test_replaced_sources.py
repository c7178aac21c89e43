"""complete_topology(sources=...): spouts replaced by fixed values."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from local_cluster.testing import complete_topology
from tests.local_cluster.small_topologies import word_count
from topology_api import (
    Bolt,
    CannotPack,
    Fields,
    InvalidConfig,
    InvalidTopology,
    Spout,
    SquallError,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
)


def test_a_source_is_replaced_by_fixed_values_whose_ids_are_their_positions() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a b",), ("c",), ["a"]]})
    assert done.emitted("lines") == [("a b",), ("c",), ("a",)]
    assert sorted(done.emitted("split")) == [("a",), ("a",), ("b",), ("c",)]
    assert sorted(done.emitted("count")) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert sorted(done.acked("lines")) == [0, 1, 2]
    assert done.failed("lines") == []
    assert done.errors == ()


def test_the_topology_itself_is_unchanged() -> None:
    topology = word_count()
    first = complete_topology(topology, sources={"lines": [("a",)]})
    second = complete_topology(topology, sources={"lines": [("b",), ("c",)]})
    assert (first.acked("lines"), sorted(second.acked("lines"))) == ([0], [0, 1])


def test_a_replaced_source_keeps_its_tasks_and_emits_its_values_once() -> None:
    done = complete_topology(word_count(parallelism=4), sources={"lines": [("a b",), ("b",)]})
    assert done.status.components["lines"].tasks == 4
    assert sorted(done.emitted("count")) == [("a", 1), ("b", 1), ("b", 2)]


def test_an_empty_source_completes_at_once() -> None:
    done = complete_topology(word_count(), sources={"lines": []})
    assert done.emitted("lines") == done.emitted("count") == done.acked("lines") == []
    assert done.status.state == "COMPLETED"


class Joined(Bolt):
    outputs = Fields("stream", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup.stream, tup[0]))


class TwoStreams(Spout):
    outputs = {"orders": Fields("order"), "payments": Fields("payment"), "told": Stream("x", direct=True)}
    replay = None

    def next_tuple(self) -> None:
        self.finish()


def two_streams() -> Topology:
    builder = TopologyBuilder("shop")
    builder.set_spout("shop", TwoStreams())
    declarer = builder.set_bolt("join", Joined())
    declarer.shuffle_grouping("shop", stream="orders").shuffle_grouping("shop", stream="payments")
    return builder.build()


def test_a_spout_of_several_streams_gets_values_for_each() -> None:
    done = complete_topology(two_streams(), sources={"shop": {"payments": [(1,), (2,)], "orders": [("a",)]}})
    assert done.emitted("shop", "payments") == [(1,), (2,)]
    assert done.emitted("shop", "orders") == [("a",)]
    assert sorted(done.emitted("join"), key=str) == [("orders", "a"), ("payments", 1), ("payments", 2)]
    assert sorted(done.acked("shop")) == [0, 1, 2]


def test_wrong_sources_are_refused_with_all_problems_and_the_nearest_names() -> None:
    sources: dict[str, Any] = {"lnes": [], "split": [], "lines": [("a", "b"), "c", ("fine",), 3]}
    with pytest.raises(InvalidTopology) as caught:
        complete_topology(word_count(), sources=sources)
    texts = caught.value.problems
    assert len(texts) == 5
    assert "did you mean 'lines'?" in texts[0]
    assert "is a bolt" in texts[1]
    assert "position 0 has 2 value(s)" in texts[2]
    assert "position 1 is 'c' (str)" in texts[3]
    assert "position 3 is 3 (int)" in texts[4]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([(1,)], "give a dict, {stream: values}"),
        ({"order": [(1,)]}, "did you mean 'orders'?"),
        ({"told": [(1,)]}, "is direct"),
        ({"orders": "abc"}, "give a list of value tuples"),
        ({"orders": 7}, "give a list of value tuples"),
    ],
)
def test_wrong_streams_of_a_source_are_refused(values: Any, text: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        complete_topology(two_streams(), sources={"shop": values})
    assert text in str(caught.value)


def test_values_that_could_not_be_shipped_are_refused_by_their_position() -> None:
    with pytest.raises(CannotPack, match="sources\\['lines'\\]"):
        complete_topology(word_count(), sources={"lines": [(threading.Lock(),)]})


def test_an_object_that_is_no_topology_is_refused() -> None:
    with pytest.raises(SquallError, match="takes a Topology"):
        complete_topology(TopologyBuilder("x"))  # type: ignore[arg-type]
    with pytest.raises(InvalidTopology, match="give a dict from spout ids"):
        complete_topology(word_count(), sources=[("a",)])  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "60"])
def test_an_invalid_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidConfig, match="timeout"):
        complete_topology(word_count(), sources={"lines": []}, timeout=timeout)
