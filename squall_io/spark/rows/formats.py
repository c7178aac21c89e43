"""The file formats of a table: Spark's options for writing and reading each, so that rows are read as they were written.

Spark's own defaults lose data: CSV truncates microseconds and ignores a row that is an empty line, and JSON reads a broken
line as nulls. With the options here, every row is read as it was written. Types that a format cannot store are refused when the
sink is built (`format_problems`). A row with a value that its format cannot store is refused (`unkept`, called by checker.py).
Tests verify all this with generated rows.
Must not know: sessions, paths, manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import WHOLE, Array, Column, Map, Simple, Struct, same_name
from topology_api.wording import listed, nearest, shown, typed

#: Spark's name for the folder of a null partition value. Spark reads a partition value of this text, or an empty one, as null.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
#: The text of a null in CSV, as in Hive. Spark's default is an empty text; with that, a null in a table's only column would be
#: an empty line, which Spark does not read as a row.
CSV_NULL: Final = "\\N"

#: The longest name of a folder that HDFS and local file systems accept, in bytes.
_LONGEST_NAME: Final = 255
#: Characters that Spark writes as %XX in the names of partitions' folders, control characters included (its class
#: ExternalCatalogUtils).
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(1, 32)}
#: The first and the last day that the Gregorian calendar reform skipped; orc reads all days from the first to the last as a
#: later day.
_ORC_GAP: Final = (date(1582, 10, 5), date(1582, 10, 14))
_ORC_GAP_TEXT: Final = "orc has no 5 to 14 October 1582"
_PARTITION_TYPES: Final = frozenset({*WHOLE, "boolean", "string", "date"})

_TIMES: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: For reading: a file that does not fit the schema fails the query instead of giving rows of nulls.
_STRICT: Final = {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_squall_no_such_column"}
_CSV: Final = {
    **_TIMES,
    "header": "true",
    "escape": '"',
    "nullValue": CSV_NULL,
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}


@dataclass(frozen=True)
class FileFormat:
    """One format, by Spark's name."""

    #: Compressions that need only Spark itself; the first is the default.
    compressions: tuple[str, ...]
    write: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, str] = field(default_factory=dict)
    #: Whether columns are found by their names. If not, they are found by place, so a file must be read with the schema that it
    #: was written with.
    by_name: bool = True


FORMATS: Final[Mapping[str, FileFormat]] = {
    "parquet": FileFormat(("snappy", "zstd", "gzip", "lz4_raw", "none")),
    "orc": FileFormat(("snappy", "zstd", "zlib", "lz4", "none")),
    "json": FileFormat(
        ("none", "gzip", "bzip2", "deflate"),
        write=_TIMES,
        read={**_TIMES, **_STRICT, "maxStringLen": str(2**31 - 1)},
    ),
    "csv": FileFormat(
        ("none", "gzip", "bzip2", "deflate"),
        write=_CSV,
        read={**_CSV, **_STRICT, "multiLine": "true", "lineSep": "\n"},
        by_name=False,
    ),
}


def write_options(file_format: str, compression: str | None = None) -> dict[str, str]:
    """Return Spark's options for writing a format. `compression` None: the format's default."""
    known = FORMATS[file_format]
    return {**known.write, "compression": compression or known.compressions[0]}


def read_options(file_format: str) -> dict[str, str]:
    """Return Spark's options for reading a format."""
    return dict(FORMATS[file_format].read)


def format_problems(
    schema: Schema, file_format: object, partition_by: Sequence[object] = (), compression: object = None
) -> Iterator[str]:
    """Yield a sentence for each problem of storing a schema in this format, with this partitioning and compression."""
    if isinstance(file_format, str) and (known := FORMATS.get(file_format)) is not None:
        for column in schema.columns:
            yield from _column_problems(file_format, column.name, column)
        if compression is not None and compression not in known.compressions:
            yield f"compression is {typed(compression)}: {file_format} takes one of {listed(known.compressions)}"
    else:
        near = nearest(file_format, FORMATS) if isinstance(file_format, str) else ""
        yield f"format is {typed(file_format)}: take one of {listed(FORMATS)}{near}"
    yield from _partition_problems(schema, partition_by)


def _column_problems(file_format: str, path: str, column: Column) -> Iterator[str]:
    """Yield why a format cannot store the column or field at `path`."""
    kind = column.type
    if file_format == "orc" and "`" in column.name:
        yield f"column {path!r} has a back quote in its name, which orc cannot keep: give it another name"
    here = f"column {path!r} is {kind}, which {file_format} cannot keep"
    if file_format == "csv" and (isinstance(kind, (Array, Map, Struct)) or kind == Simple("binary")):
        yield f"{here}: take parquet, orc or json, or declare a string and write the value as text"
        return
    if file_format == "json" and isinstance(kind, Map) and kind.key != Simple("string"):
        yield f"{here}: keys of JSON objects are strings"
    if file_format == "orc" and kind == Simple("timestamp"):
        yield (
            f"{here}: where Java has a different time zone, wrong times would be read; take parquet, or declare "
            "timestamp_ntz and give times in UTC without a tzinfo"
        )
    if isinstance(kind, Array):
        yield from _column_problems(file_format, f"{path}[]", Column("element", kind.element))
    elif isinstance(kind, Map):
        yield from _column_problems(file_format, f"{path}'s keys", Column("key", kind.key))
        yield from _column_problems(file_format, f"{path}'s values", Column("value", kind.value))
    elif isinstance(kind, Struct):
        for each in kind.fields:
            yield from _column_problems(file_format, f"{path}.{each.name}", each)


def _partition_problems(schema: Schema, partition_by: Sequence[object]) -> Iterator[str]:
    seen: set[str] = set()
    for name in partition_by:
        column = schema.column(name) if isinstance(name, str) else None
        if column is None:
            yield f"partition_by names {shown(name)}, and the schema has no such column{_meant(name, schema)}"
            continue
        if column.name.startswith("."):
            yield (
                f"partition_by names {column.name!r}, but Spark and Hive ignore folders whose names begin with '.':"
                " give the column another name"
            )
        if same_name(column.name) in seen:
            yield f"partition_by names {column.name!r} twice"
        seen.add(same_name(column.name))
        if not (isinstance(column.type, Simple) and column.type.name in _PARTITION_TYPES):
            yield (
                f"partition_by names {column.name!r}, which is {column.type}: folders keep whole numbers, strings, "
                "dates and booleans; add a column of such a type, for example the day of a timestamp"
            )
    if len(seen) == len(schema.columns):
        yield "partition_by names all columns: at least one must remain for the files"


def _meant(name: object, schema: Schema) -> str:
    """Return a hint: which column may be meant by a wrong name."""
    if not isinstance(name, str):
        return ""
    several = [part.strip() for part in name.split(",")]
    if len(several) > 1 and all(map(schema.column, several)):
        return f"; for several columns give a list: {several}"
    return nearest(name, schema.names)


def unkept(file_format: str, column: str, partitioned: bool) -> dict[str, Callable[[Any], str | None]]:
    """Return functions that say why a value of a simple type would be lost (None: it is kept), by the names of the types.

    partitioned: whether the table is partitioned by this column.
    """
    if partitioned:
        prefix = _folder_size(column) + len("=")
        return {"string": lambda value: _lost_in_folder(prefix, value)}
    if file_format == "csv":
        return {"string": lambda value: "csv takes it for null" if value == CSV_NULL else None}
    if file_format == "orc":
        return {"date": lambda value: _ORC_GAP_TEXT if _ORC_GAP[0] <= value <= _ORC_GAP[1] else None}
    return {}


def _lost_in_folder(prefix: int, value: str) -> str | None:
    if value in ("", NULL_PARTITION):
        return "a partition's folder cannot tell it from null: give None, or another text"
    if "\0" in value:
        return "a partition's folder has no NUL character in its name"
    if (size := prefix + _folder_size(value)) > _LONGEST_NAME:
        return f"its partition's folder would have a name of {size} bytes, more than {_LONGEST_NAME}"
    return None


def _folder_size(text: str) -> int:
    """Return how many bytes a text takes in the name of a partition's folder."""
    return len(text.encode()) + 2 * sum(character in _ESCAPED for character in text)
