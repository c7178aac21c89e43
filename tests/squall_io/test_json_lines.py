"""JSON lines as typed values: the value of each type, the lines that are left out, and the reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall_io.files import FileSink, FileSpout
from squall_io.lines.json_lines import JsonReader
from squall_io.spark import HdfsLines
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema
from topology_api import Bolt, Context, InvalidConfig, TopologyBuilder, Tuple

UTC = timezone.utc
SCHEMA = "word string, count bigint NOT NULL, at timestamp"


def read(schema: str, line: str | bytes) -> tuple[object, ...] | str:
    data = line if isinstance(line, bytes) else line.encode()
    return JsonReader(parse_schema(schema)).values((0, len(data) + 1, data), "file")


def value(kind: str, text: str) -> object:
    """The value of a column; or why the line is left out, without what is the same for all."""
    found = read(f"`a column` {kind}", f'{{"a column": {text}}}')
    if isinstance(found, tuple):
        assert RowChecker(parse_schema(f"`a column` {kind}")).problem_of(found) is None, (
            "a sink would refuse it"
        )
        return found[0]
    return found.partition(": ")[2]


def test_a_member_becomes_a_value_of_its_columns_type() -> None:
    for kind, text, expected in [
        ("string", '"é\\n"', "é\n"), ("boolean", "true", True), ("tinyint", "-128", -128),
        ("bigint", str(2**63 - 1), 2**63 - 1),
        ("float", "0.5", 0.5), ("double", "3", 3.0), ("decimal(5,2)", "1.10", Decimal("1.10")),
        ("decimal(5,2)", '"2.5"', Decimal("2.5")), ("binary", '"/w=="', b"\xff"), ("date", '"2026-11-21"', date(2026, 11, 21)),
        ("timestamp", '"2026-11-21T01:00:00+01:00"', datetime(2026, 11, 21, tzinfo=UTC)),
        ("timestamp_ntz", '"2026-11-21T00:00:00.000001"', datetime(2026, 11, 21, 0, 0, 0, 1)),
        ("array<int>", "[1, null]", [1, None]), ("map<string, array<double>>", '{"k": [1]}', {"k": [1.0]}),
        ("struct<x: int NOT NULL, `y z`: date>", '{"x": 1, "more": 2}', {"x": 1}),
        ("array<struct<x: int>>", '[{"x": null}, null]', [{"x": None}, None]), ("string", "null", None),
    ]:  # fmt: skip
        found = value(kind, text)
        assert (type(found), found) == (type(expected), expected), kind


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("bigint", '"3"', "Expected `int | null`, got `str`"),
        ("bigint", str(2**63), "Expected `int` <= 9223372036854775807"),
        ("tinyint", "128", "Expected `int` <= 127"),
        ("boolean", "1", "Expected `bool | null`, got `int`"),
        ("timestamp", '"2026-11-21T00:00:00"', "with a timezone component"),
        ("timestamp_ntz", '"2026-11-21T00:00:00Z"', "with no timezone component"),
        ("string NOT NULL", "null", "Expected `str`, got `null`"),
        ("struct<x: int NOT NULL>", "{}", "missing required field `x`"),
        ("array<int>", '[1, "x"]', "got `str`"),
        ("string", '"\\ud800"', ""),
    ],
)
def test_a_line_that_does_not_fit_is_left_out_with_the_reason(kind: str, text: str, why: str) -> None:
    found = value(kind, text)
    assert isinstance(found, str) and why in found


def test_what_is_no_object_is_left_out() -> None:
    for line in (
        "",
        "[1]",
        "nope",
        '{"count": 1',
        '{"count": 1} x',
        b'{"word": "\xff", "count": 1}',
        "{}",
        "[" * 5000,
    ):
        found = read(SCHEMA, line)
        assert isinstance(found, str) and found.startswith(
            "it is no JSON object of 'word string, count bigint NOT NULL"
        ), line
    assert JsonReader(parse_schema(SCHEMA)).values((5, 10, None), "f") == "it has more than 16777216 bytes"


def test_members_may_come_in_any_order_be_missing_and_be_more() -> None:
    assert read(SCHEMA, b'\xef\xbb\xbf{"more": [{}], "count": 1}') == (None, 1, None)
    assert read(SCHEMA, '{"at": null, "count": 2, "word": "a"}') == ("a", 2, None)


@pytest.mark.parametrize("spout", [FileSpout, HdfsLines])
def test_mistakes_in_the_arguments_are_named(spout: Callable[..., Any]) -> None:
    for arguments, texts in (
        ({"format": "jsonl"}, ["schema is missing"]),
        ({"format": "json", "schema": SCHEMA}, ["format is 'json' (str): give one of 'lines', 'jsonl'"]),
        ({"schema": SCHEMA}, ["it is for format 'jsonl'"]),
        ({"format": "jsonl", "schema": "a map<int, int>"}, ["keys of JSON objects are strings"]),
        ({"format": "jsonl", "schema": "a text"}, ["write string"]),
        (
            {"format": "jsonl", "schema": SCHEMA, "fields": "offset", "encoding": "latin-1"},
            ["leave fields out", "lines are UTF-8"],
        ),
    ):
        with pytest.raises(InvalidConfig) as caught:
            spout("/logs", **arguments)
        for text in texts:
            assert text in str(caught.value)
    assert spout("/logs", format="jsonl", schema=SCHEMA).outputs == ("word", "count", "at")


class Keep(Bolt):
    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, context: Context) -> None:
        self.file = self.path.open("a")

    def execute(self, tup: Tuple) -> None:
        self.file.write(repr(tup.values) + "\n")

    def cleanup(self) -> None:
        self.file.close()


@pytest.mark.parametrize("spout", [FileSpout, HdfsLines])
def test_what_a_file_sink_wrote_is_read_and_a_wrong_line_is_reported(
    spout: Callable[..., Any], tmp_path: Path
) -> None:
    source, kept = tmp_path / "in", tmp_path / "kept"
    source.mkdir()
    rows = [(f"word {number}", number, "2026-11-21T00:00:00Z") for number in range(200)]
    lines = [json.dumps(dict(zip(("word", "count", "at"), row))) for row in rows]
    (source / "1.jsonl").write_text("\n".join([*lines[:100], '{"count": "x"}', *lines[100:]]))
    schema = "count bigint, word string"
    builder = TopologyBuilder("reader")
    builder.set_spout("lines", spout(str(source), format="jsonl", schema=schema, follow=False))
    builder.set_bolt("write", FileSink(str(tmp_path / "out"), format="jsonl")).shuffle_grouping("lines")
    again = TopologyBuilder("again")
    again.set_spout("lines", spout(str(tmp_path / "out"), format="jsonl", schema=schema, follow=False))
    again.set_bolt("keep", Keep(kept)).shuffle_grouping("lines")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(30)
        status = cluster.status("reader")
        cluster.submit(again.build())
        cluster.advance(30)
        assert cluster.status("again").state == "COMPLETED" and not cluster.status("again").errors
    assert status.state == "COMPLETED"
    assert "Expected `int | null`, got `str` - at `$.count`" in str(status.errors)
    # Components are closed with the cluster.
    assert sorted(kept.read_text().splitlines()) == sorted(repr((count, word)) for word, count, _ in rows)
