"""Pickles of components name modules and classes, which must stay, so that topologies submitted earlier still run.

The names are those in pickles of 0.1.0.
"""

from __future__ import annotations

import pickle
import pickletools

from squall_io.spark import CommittedRows, HdfsLines, SparkSink
from topology_api.packing import dumps_by_value

SCHEMA = "line string, a array<struct<b: int, c: decimal(3,1)>>, m map<string, int>"
COMPONENTS = (
    HdfsLines("/logs/*.txt"),
    CommittedRows("/tables/counts", ["word", "count"], since=1, until="2026-03-01T00:00:00Z"),
    SparkSink("/tables/counts", SCHEMA, partition_by="line"),
)
FIXED = {
    "squall_io.spark.spouts.lines HdfsLines",
    "squall_io.spark.spouts.committed_rows CommittedRows",
    "squall_io.spark.reading.moments Span",
    "squall_io.spark.sink.bolt SparkSink",
    "squall_io.spark.sink.settings SinkSettings",
    "squall_io.spark.rows.schema Schema",
    *(
        f"squall_io.spark.rows.types {name}"
        for name in ("Array", "Column", "Decimal", "Map", "Simple", "Struct")
    ),
    "topology_api.fields Fields",
    "topology_api.values Replay",
}


def names_in(data: bytes) -> set[str]:
    """The classes that a pickle refers to by name, found in the order of its opcodes and their memo."""
    stack: list[str] = []
    memo: dict[int, str] = {}
    names = set()
    last = ""
    for opcode, argument, _ in pickletools.genops(data):
        if isinstance(argument, str):
            last = argument
            stack.append(argument)
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = last
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument or 0])
        elif opcode.name == "STACK_GLOBAL":
            names.add(" ".join(stack[-2:]))
    return names


def test_components_refer_only_to_names_that_stay() -> None:
    names = {name for component in COMPONENTS for name in names_in(dumps_by_value(component, 5))}
    assert names == FIXED


def test_a_component_is_the_same_after_pickling() -> None:
    for component in COMPONENTS:
        loaded = pickle.loads(dumps_by_value(component, 5))
        assert type(loaded) is type(component) and vars(loaded).keys() == vars(component).keys()
