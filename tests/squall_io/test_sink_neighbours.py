"""Two sinks of one topology that exclude each other are refused when it is built."""

from __future__ import annotations

from typing import Any

import pytest

from squall_io.spark import SparkSink
from topology_api import InvalidTopology, Spout, TopologyBuilder

SCHEMA = "word string, count bigint"


class Counts(Spout):
    outputs = ("word", "count")

    def next_tuple(self) -> None: ...


def problems(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    builder = TopologyBuilder("t")
    spout = builder.set_spout("counts", Counts())
    for name, arguments in (("one", one), ("other", other)):
        builder.set_bolt(
            name, SparkSink(**{"path": "file:///t/a", "schema": SCHEMA, **arguments})
        ).shuffle_grouping(spout)
    try:
        builder.build()
    except InvalidTopology as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"path": "file:///t/a"}, {"path": "file:///t/ab"}),
        ({"path": "hdfs://h:9000/t"}, {"path": "hdfs://g:9000/t/a"}),
        ({"master": "local[2]", "conf": {"spark.a": "1"}}, {"master": "local[2]", "conf": {"spark.a": "1"}}),
    ],
)
def test_compatible_sinks_are_built(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert problems(one, other) == []


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            {"master": "local[2]"},
            {"master": "local[3]"},
            ("local[2]", "local[3]", "the same master and conf"),
        ),
        ({}, {"conf": {"spark.a": "1"}}, ("spark.a", "the same master and conf")),
        ({}, {"format": "orc"}, ("file:///t/a as well", "format")),
        ({}, {"partition_by": ["word"]}, ("file:///t/a as well", "partition_by")),
        ({}, {"path": "file:///t/a/b"}, ("file:///t/a/b lies in file:///t/a",)),
        ({"path": "hdfs://h:9000/t/a/b"}, {"path": "hdfs://h:9000/t"}, ("lies in hdfs://h:9000/t",)),
    ],
)
def test_incompatible_sinks_are_refused_naming_both(
    one: dict[str, Any], other: dict[str, Any], said: tuple[str, ...]
) -> None:
    (problem,) = problems(one, other)
    assert problem.startswith("bolt 'other': ") and "'one'" in problem
    assert all(words in problem for words in said)
