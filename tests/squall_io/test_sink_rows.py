"""Tuples become rows by the names of their fields, whatever stream they come from."""

from __future__ import annotations

from collections.abc import Sequence

from squall_io.spark.rows.from_tuples import RowsOf
from squall_io.spark.rows.schema import parse_schema
from topology_api.tuples import Source, Tuple

FIELDS = parse_schema("word string, count bigint")


def tuples(fields: Sequence[str], *values: tuple[object, ...]) -> list[Tuple]:
    source = Source("words", 1, "default", tuple(fields))
    made = []
    for each in values:
        tup = Tuple.__new__(Tuple)
        tup._source, tup._values, tup._root, tup._xor, tup._more = source, each, 0, 0, ()
        made.append(tup)
    return made


def test_rows_have_the_columns_order_and_only_the_columns() -> None:
    rows_of = RowsOf(FIELDS, FIELDS)
    given = [
        *tuples(("word", "count"), ("a", 1), ("b", 2)),
        *tuples(("count", "other", "word"), (3, "x", "c")),
        *tuples(("word", "count"), ("d", 4)),
    ]
    rows, kept, bad = rows_of.rows(given)
    assert rows == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert kept == given and bad == []


def test_a_stream_that_begins_with_the_columns_and_has_more_fields_gives_the_columns() -> None:
    rows, _, _ = RowsOf(FIELDS, FIELDS).rows(tuples(("word", "count", "other"), ("a", 1, "x")))
    assert rows == [("a", 1)]


def test_one_column_makes_rows_of_one_value() -> None:
    only = parse_schema("word string")
    rows, _, _ = RowsOf(only, only).rows(tuples(("n", "word"), (1, "a")))
    assert rows == [("a",)]


def test_a_column_added_by_another_sink_is_null_and_the_tables_order_is_kept() -> None:
    columns = parse_schema("count bigint, extra string, WORD string, more double")
    rows, _, _ = RowsOf(columns, FIELDS).rows(tuples(("word", "count", "extra"), ("a", 1, "not ours")))
    assert rows == [(1, None, "a", None)]


def test_a_tuple_without_a_field_is_reported_and_the_others_go_on() -> None:
    good = tuples(("word", "count"), ("a", 1))
    wrong = tuples(("word", "sum"), ("b", 2), ("c", 3))
    rows, kept, bad = RowsOf(FIELDS, FIELDS).rows([wrong[0], *good, wrong[1]])
    assert (rows, kept) == ([("a", 1)], good)
    assert [tup for tup, _ in bad] == wrong
    assert {why for _, why in bad} == {"no field 'count': the tuple's fields are 'word', 'sum'"}
