"""Schemas of Spark tables: the DDL text that is parsed without Spark, its errors, and how schemas grow.

tests/spark/test_schema_contract.py tests that Spark parses it alike.
"""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from squall_io.spark.rows.schema import MAX_COLUMNS, MAX_DEPTH, Schema, merge, parse_schema
from squall_io.spark.rows.types import Array, Column, Decimal, Map, SchemaError, Simple, Struct
from tests.squall_io.spark_schemas import SCHEMAS


def problem_of(ddl: object) -> str:
    with pytest.raises(SchemaError) as caught:
        parse_schema(ddl)
    return str(caught.value)


def test_columns_have_their_names_types_nullability_and_comments_in_order() -> None:
    schema = parse_schema(
        "word STRING NOT NULL COMMENT 'what was said', count: bigint,\n"
        "`a b` array<map<string, decimal(5,2)>>, who struct<age: int not null, `x``y` string comment 'z'>"
    )

    assert schema == Schema(
        (
            Column("word", Simple("string"), nullable=False),
            Column("count", Simple("bigint")),
            Column("a b", Array(Map(Simple("string"), Decimal(5, 2)))),
            Column(
                "who", Struct((Column("age", Simple("int"), nullable=False), Column("x`y", Simple("string"))))
            ),
        )
    )
    assert schema.columns[0].comment == "what was said"
    assert schema.names == ("word", "count", "a b", "who")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("byte", "tinyint"),
        ("short", "smallint"),
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("real", "float"),
        ("decimal", "decimal(10,0)"),
        ("dec(7)", "decimal(7,0)"),
        ("numeric( 7 , 2 )", "decimal(7,2)"),
        ("timestamp", "timestamp_ltz"),
        ("timestamp_ltz", "timestamp_ltz"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("array <array<int>>", "array<array<int>>"),
    ],
)
def test_each_name_of_a_type_has_one_canonical_text(written: str, canonical: str) -> None:
    assert str(parse_schema(f"a {written}")) == f"a {canonical}"


@pytest.mark.parametrize(
    ("written", "comment"),
    [
        ("'it''s'", "it's"),
        ('"it\'s"', "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\nb\t\\n\0\%\_\q'", "a\nb\t\\n\0\\%\\_q"),
        (r"'\u00e9\U0001F600\101'", "é😀A"),
        ("''", ""),
        ("'two\nlines'", "two\nlines"),
    ],
)
def test_a_comment_is_decoded_with_sparks_quotes_and_escapes(written: str, comment: str) -> None:
    assert parse_schema(f"a int COMMENT {written}").columns[0].comment == comment


def test_blanks_line_ends_and_comments_between_words_are_ignored() -> None:
    assert parse_schema("--columns\na\tint /* an\nint */,\r\nb string--end") == parse_schema("a int,b string")


@given(SCHEMAS)
def test_the_text_of_a_schema_is_parsed_as_the_same_schema(schema: Schema) -> None:
    again = parse_schema(str(schema))

    assert again == schema
    assert str(again) == str(schema)


@given(st.text() | st.text("`'\"<>(),: \n-/*aint0\\") | st.lists(st.sampled_from(
    ["a", "int", "array", "<", ">", "struct", "map", ",", ":", "(", ")", "1", "decimal", "not", "null", "comment", "'x'", "`b`"]
)).map(" ".join))  # fmt: skip
@example("a" * 100_000)
@example("a " + "array<" * 100_000)
@example("a " + "struct<a:" * 5_000)
@example("\ud800 int")
@example("/*" * 10_000)
def test_any_text_is_a_schema_or_a_schema_error(text: str) -> None:
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        assert str(error)
    else:
        assert parse_schema(str(schema)) == schema


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        (5, "the schema is 5 (int): give Spark's DDL text, such as 'word string, count bigint'"),
        (" -- nothing\n", "the schema is empty"),
        ("a bigin", "'bigin' is not a Spark type; did you mean 'bigint'?"),
        ("a char(3)", "the type char of 'a' is refused: Spark writes it as a string"),
        ("a array<varchar(3)>", "the type varchar of 'a[]' is refused"),
        ("a interval day to second", "the type interval of 'a' is refused: files do not keep it"),
        ("a struct<b: variant>", "the type variant of 'b' is refused"),
        ("a void", "the type void of 'a' is refused"),
        ("a bool", "the type bool of 'a' is refused: write boolean"),
        ("a datetime", "write timestamp (an instant), timestamp_ntz (without a zone) or date"),
        ("a int DEFAULT 3", "DEFAULT of column 'a' is refused: files keep no default"),
        ("a string collate utf8_lcase", "COLLATE of column 'a' is refused"),
        ("a int null", "a column may hold nulls unless NOT NULL follows its type"),
        ("a int comment 'x' not null", "NOT NULL belongs between a column's type and its COMMENT"),
        ("a int comment x", "'x' is found where the text of COMMENT, in quotes, is expected"),
        (r"a int comment '\ud800'", "the text of COMMENT holds an escape that is not a character"),
        (r"a int comment '\UFFFFFFFF'", "the text of COMMENT holds an escape that is not a character"),
        ("a-b int", "'-' is not expected: a name with other characters"),
        ("1a int", "a name that begins with a digit needs back quotes: `1a`"),
        ("`` int", "the name between the back quotes is empty"),
        ("`a\0b` int", "a name holds no NUL character"),
        ("`a int", "the quote ` is never closed"),
        ("a int, A string", "'A' is declared besides 'a', and Spark ignores case"),
        ("a struct<b: int, b: int>", "'b' is declared twice"),
        ("a int,", "the end is found where the name of a column is expected"),
        ("a", "the end is found where the type of 'a' is expected"),
        ("a array<int", "the end is found where '>' of array is expected"),
        ("a map<int>", "'>' is found where ',' of map is expected"),
        ("a struct<b int", "the end is found where a comma or the '>' of struct is expected"),
        ("a int b int", "'b' is found where a comma or the end is expected"),
        ("a bigint(20)", "the type bigint takes nothing in parentheses"),
        ("a decimal(0,0)", "a decimal takes its number of digits, 1 to 38"),
        ("a decimal(39)", "a decimal takes its number of digits, 1 to 38"),
        ("a decimal(3,4)", "a decimal takes its number of digits, 1 to 38"),
        ("a decimal(5,-1)", "'-' is not expected"),
        ("a decimal(x)", "'x' is found where a number of digits is expected"),
        ("a map<double, int>", "double cannot be a map's key"),
        ("a map<array<int>, int>", "array<int> cannot be a map's key"),
    ],
)  # fmt: skip
def test_an_unusable_column_is_refused_with_advice(ddl: object, said: str) -> None:
    assert said in problem_of(ddl)


def test_a_schema_has_its_limits() -> None:
    deepest = "array<" * MAX_DEPTH + "int" + ">" * MAX_DEPTH
    columns = [f"c{number} int" for number in range(MAX_COLUMNS)]

    assert f"types are nested more than {MAX_DEPTH} deep" in problem_of(f"a array<{deepest}>")
    assert str(parse_schema(f"a {deepest}")) == f"a {deepest}"
    assert f"there are more than {MAX_COLUMNS} columns" in problem_of(", ".join([*columns, "d int"]))
    assert len(parse_schema(", ".join(columns)).columns) == MAX_COLUMNS


def test_an_error_shows_the_place() -> None:
    assert problem_of("word string,\n  count bigin") == (
        "the schema cannot be read at line 2, column 9: 'bigin' is not a Spark type; did you mean 'bigint'?\n"
        "    count bigin\n"
        "          ^"
    )


def test_an_error_in_a_long_line_shows_the_text_around_its_place() -> None:
    head, piece, mark = problem_of(", ".join(f"c{n} int" for n in range(100)) + ", x y, " + "z " * 100).split(
        "\n"
    )

    assert "'y' is not a Spark type" in head
    assert piece[len(mark) - 1 :].startswith("y, z z")
    assert len(piece) < 110


def test_a_schema_error_is_pickled_unchanged() -> None:
    error = SchemaError(problem_of("a b"))

    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_column_is_found_whatever_its_case() -> None:
    schema = parse_schema("Word string, count bigint")

    assert schema.column("wORD") == Column("Word", Simple("string"))
    assert schema.column("missing") is None


MERGED = [
    ("a int, b string", "a int, b string", "a int, b string"),
    ("a int, b string", "b string, a int", "a int, b string"),
    ("a int, b string", "B string, c date, A int", "a int, b string, c date"),
    ("a int, b string", "b string", "a int, b string"),
    ("a int not null", "a int", "a int"),
    ("a int comment 'old'", "a int comment 'new'", "a int COMMENT 'old'"),
    ("a struct<b: int>", "a struct<b: int comment 'new'>, c int", "a struct<b: int>, c int"),
]


@pytest.mark.parametrize(("old", "new", "merged"), MERGED)
def test_columns_may_be_added_omitted_and_made_nullable(old: str, new: str, merged: str) -> None:
    schema, problems = merge(parse_schema(old), parse_schema(new))

    assert problems == []
    assert str(schema) == merged


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("a int", "a bigint", ["column 'a' is int, and bigint is wanted"]),
        ("a int", "a int not null", ["column 'a' may hold nulls, and NOT NULL is wanted"]),
        ("a int not null, b int", "b int", ["column 'a' is NOT NULL and is missing in the wanted schema"]),
        (
            "a int",
            "a int, b int not null",
            ["column 'b' is new and NOT NULL, but existing rows have no value for it"],
        ),
        (
            "a struct<b: int>, c decimal(5,2)",
            "a struct<b: int not null>, c decimal(6,2)",
            [
                "column 'a' is struct<b: int>, and struct<b: int NOT NULL> is wanted",
                "column 'c' is decimal(5,2), and decimal(6,2) is wanted",
            ],
        ),
    ],
)
def test_any_other_change_is_refused_with_both_schemas_and_every_problem(
    old: str, new: str, problems: list[str]
) -> None:
    before = parse_schema(old)

    assert merge(before, parse_schema(new)) == (before, problems)


@given(SCHEMAS, SCHEMAS)
def test_a_merged_schema_accepts_both_and_merging_again_changes_nothing(old: Schema, new: Schema) -> None:
    merged, problems = merge(old, new)

    if problems:
        assert merged == old
    else:
        assert merged.names[: len(old.names)] == old.names
        assert all(merged.column(column.name) is not None for column in new.columns)
        assert merge(merged, merged) == (merged, [])
    assert merge(old, old) == (old, [])
