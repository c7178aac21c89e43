"""A sink's task for tests: it writes given rows, a batch at a time, by the real commit protocol.

    task = SinkTask(files, "word string, count bigint")
    task.write(spark, [("a", 1), ("b", 2)], committed=100.0)    # Spark writes it
    task.put({"a.txt": b"anything"}, rows=3)                     # or no Spark at all

The steps are available separately: `stage`, then `commit_of(...).run()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.stores.files import Files
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.commit import BatchCommit, Owner
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.layout import LAYOUT, BatchName, WriterId
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.rows.formats import write_options
from squall_io.spark.rows.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SinkTask:
    """The owner of a writer id of a table, which it creates if necessary."""

    def __init__(
        self,
        files: Files,
        schema: str,
        *,
        file_format: str = "parquet",
        partition_by: Sequence[str] = (),
        topology: str = "words",
        component: str = "store",
        index: int = 0,
        incarnation: tuple[int, int] = (1, 0),
        layout: int = LAYOUT,
    ) -> None:
        self.files = files
        self.table = open_table(files, TableRecord(ROWS, file_format, tuple(partition_by), layout))
        self.schema = agree_on_schema(files, parse_schema(schema))
        writer_id = WriterId.of(f"{topology}-1", component, index)
        epoch = take_over(files, writer_id, incarnation, "a test", 0.0)
        self.owner = Owner(writer_id, epoch, topology, f"{topology}-1", component, incarnation)
        self.batches = 0

    def next_name(self) -> BatchName:
        """The name of the task's next batch."""
        self.batches += 1
        return BatchName(self.owner.writer_id, self.owner.epoch, self.batches)

    def write(self, spark: SparkSession, rows: Sequence[Any], committed: float = 0.0) -> BatchEntry:
        """Write rows with Spark and commit them, at a moment in seconds since 1970."""
        name = self.next_name()
        self.stage(spark, name, rows)
        return self._commit(name, len(rows), committed)

    def put(self, content: Mapping[str, bytes], rows: int = 1, committed: float = 0.0) -> BatchEntry:
        """Commit files with this content, by their paths below the folder into which Spark would write."""
        name = self.next_name()
        for path, data in content.items():
            assert self.files.put_if_absent(f"{name.attempt(1)}/{path}", data)
        return self._commit(name, rows, committed)

    def stage(self, spark: SparkSession, name: BatchName, rows: Sequence[Any]) -> None:
        """Write rows to the batch's folder, with the columns of the table's schema at the start of the task."""
        frame = spark.createDataFrame(list(rows), str(self.schema.schema)).coalesce(1)
        writer = frame.write.format(self.table.file_format).options(**write_options(self.table.file_format))
        writer.partitionBy(*self.table.partition_by).mode("overwrite").save(
            f"{self.files.root}/{name.attempt(1)}"
        )

    def commit_of(self, name: BatchName, rows: int, committed: float = 0.0) -> BatchCommit:
        """The commit of a staged batch."""
        named = self.owner, name, rows, self.schema.number
        return BatchCommit(self.files, *named, data=self.table.data, wall=lambda: committed)

    def _commit(self, name: BatchName, rows: int, committed: float) -> BatchEntry:
        commit = self.commit_of(name, rows, committed)
        entry = commit.run()
        commit.clear()
        return entry
