"""Finds what a source's path is: a Squall table, whose committed rows are read, or other files.

Must not know: topologies, command lines.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from squall.stores.files import Files, FilesRefused
from squall_io.spark.manifest.tables import NoTable
from squall_io.spark.reading.committed import Selection, choose
from squall_io.spark.reading.moments import Span
from squall_io.spark.results.versions import RunInput
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The ending of a path -> the format. Spark itself unpacks compressed files.
_FORMATS: Final = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}
#: Endings of compressed files; the ending of the format precedes them.
_PACKED: Final = (".gz", ".bz2", ".zst", ".snappy", ".lz4")


class UnreadableSource(SquallError):
    """A source that cannot be read as requested."""


@dataclass(frozen=True)
class FileSource:
    """Files of a format that Spark reads, or of lines of text."""

    path: str
    file_format: str
    #: The fields of the stream.
    fields: Sequence[str]

    @property
    def read(self) -> RunInput:
        """The input, for the version's record. Files may change, so each read is a different input."""
        return RunInput(self.path, secrets.token_hex(8))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows. In a text file, each line is a row, and the line is the value of the stream's only field."""
        reader = spark.read
        if self.file_format == "csv":
            reader = reader.option("header", "true")
        frame = reader.format(self.file_format).load(self.path)
        return frame.toDF(*self.fields) if self.file_format == "text" else frame


def source_at(files: Files, path: str, span: Span, fields: Sequence[str]) -> Selection | FileSource:
    """Return the table or the files at a path, as the source of a stream with these fields.

    Raises `UnreadableSource` if nothing exists at the path, or if the files are lines of text and the stream does not have
    exactly one field. Also raises the errors of reading a table's manifest.
    """
    # `choose` refuses a path of a file, since a table is a folder. A path without permission is refused later, by Spark.
    with suppress(NoTable, FilesRefused):
        return choose(files, span)
    if span:
        raise UnreadableSource(
            f"{path} is not a Squall table, so it has no commit times: leave out --since and --until"
        )
    if not files.exists(""):
        raise UnreadableSource(
            f"there is nothing at {path}: give a table of Squall's, a file, or a folder of files"
        )
    source = FileSource(path, format_of(path), fields)
    if source.file_format == "text" and len(fields) != 1:
        raise UnreadableSource(
            f"{path} is read as lines of text, and the stream has {len(fields)} fields ({', '.join(fields)}); files"
            f" whose names end in {', '.join(_FORMATS)} are read in that format"
        )
    return source


def format_of(path: str) -> str:
    """Return the format in which a file is read, according to the ending of its name."""
    name = path.rstrip("/").lower()
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return next((kind for suffix, kind in _FORMATS.items() if name.endswith(suffix)), "text")
