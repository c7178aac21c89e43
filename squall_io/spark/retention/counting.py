"""Counts the rows of data files: those of Parquet from the end of each file, all others with Spark.

Must not know: why they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files
from squall.stores.ranged_file import RangedFile
from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.manifest.tables import TableRecord, latest_schema
from squall_io.spark.rows.formats import read_options
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Uncountable(SquallError):
    """A data file that is damaged."""


def counter(
    files: Files, table: TableRecord, session: Callable[[], SparkSession]
) -> Callable[[Sequence[DataFile]], Mapping[str, int]]:
    """Return a function that counts the rows of a table's files. `session` is called if Spark is needed."""

    def count(wanted: Sequence[DataFile]) -> Mapping[str, int]:
        if table.file_format != "parquet":
            return _by_spark(session(), files, table, wanted)
        found = map_concurrently(lambda file: _parquet_rows(files, file), wanted)
        return {file.path: rows for file, rows in zip(wanted, found)}

    return count


def _parquet_rows(files: Files, file: DataFile) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pa.PythonFile(RangedFile(files, file.path, file.size), mode="r") as opened:
            return int(pq.read_metadata(opened).num_rows)
    except pa.ArrowException as error:
        raise Uncountable(
            f"the rows of {files.root}/{file.path} cannot be counted, so nothing of its batch was dropped: {error}"
        ) from None


def _by_spark(
    session: SparkSession, files: Files, table: TableRecord, wanted: Sequence[DataFile]
) -> dict[str, int]:
    from pyspark.sql import functions as F

    schema = latest_schema(files)
    assert schema is not None  # there are files
    reader = session.read.format(table.file_format).schema(str(schema.schema))
    rows = reader.options(**read_options(table.file_format)).load(
        [f"{files.root}/{file.path}" for file in wanted]
    )
    name = rows.metadataColumn("_metadata")["file_name"]
    counts = rows.groupBy(name.alias("name")).agg(F.count(F.lit(1)).alias("rows")).collect()
    by_name = {row["name"]: int(row["rows"]) for row in counts}
    return {file.path: by_name.get(file.name, 0) for file in wanted}
