"""Turns frames into versions of tables: Spark writes the rows, the written rows are counted, and then the versions are
published.

The written files are read to count rows, since Spark's own counts include tasks that ran twice.
Must not know: how the frames were made, which command publishes them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from squall.stores.files import Files, FilesError
from squall_io.spark.manifest.tables import RESULTS, TableRecord, find_table, mismatch
from squall_io.spark.results import versions
from squall_io.spark.results.versions import Attempt, Published, Run, Version
from squall_io.spark.rows.formats import format_problems, read_options
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import SchemaError
from squall_io.spark.session.request import is_classic
from squall_io.spark.session.sessions import changed_settings
from squall_io.spark.signs_of_life import keep_alive
from squall_io.spark.sink.writing import WRITE_CONF, WriteAs, save
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

#: Prefixes of the settings in WRITE_CONF that decide how values are written; the other settings are for batches of a stream.
_WRITE_SETTINGS: Final = ("spark.sql.parquet.", "mapreduce.", "dfs.")
#: How long to wait while Spark cancels its work, in seconds.
_CANCEL_SECS: Final = 10.0


class CannotPublish(SquallError):
    """A frame that cannot be written."""


@dataclass(frozen=True)
class OutputTable:
    """The table that gets a new version, and how many versions it keeps."""

    files: Files
    table: TableRecord
    keep: int = versions.KEEP


def open_output(
    files: Files, file_format: str | None, partition_by: Sequence[str] | None, keep: int = versions.KEEP
) -> OutputTable:
    """Return the table for results at a path; the table exists or can be created. An argument that is None is taken from the
    existing versions. Without versions the format is parquet, and there are no partitions. This call writes nothing.

    Raises `TableMismatch` if the table holds something else or is written in a different way, and `FolderTaken` if the table
    cannot be created.
    """
    newest = versions.newest_version(files)
    there = versions.DEFAULT_TABLE if newest is None else newest.table
    kind = there.file_format if file_format is None else file_format
    by = there.partition_by if partition_by is None else tuple(partition_by)
    wanted = TableRecord(RESULTS, kind, by)
    find_table(files, wanted)
    if newest is not None and newest.table != wanted:
        raise mismatch(files, newest.table, wanted)
    return OutputTable(files, wanted, keep)


@dataclass(frozen=True)
class Result:
    """A result that is to become the newest version of a table."""

    output: OutputTable
    run: Run
    #: Returns the frame; not called if the run's result exists already.
    make: Callable[[], DataFrame]
    #: Returns further counts for the version's record; called after the rows are written.
    counts: Callable[[], Mapping[str, int]] = dict


def publish_frame(result: Result, cancel: Callable[[], None] = lambda: None) -> Published:
    """Call `publish_frames` for a single result."""
    done: dict[str, Published] = {}
    publish_frames({"": result}, done, cancel)
    return done[""]


def publish_frames(
    results: Mapping[str, Result], done: dict[str, Published], cancel: Callable[[], None] = lambda: None
) -> None:
    """Publish each result as the newest version of its table; add each published version to `done`, even if a later step fails.

    All results are written and counted before the first one is published, so errors of `make` and Spark leave nothing
    behind. Each result is published in a separate step, so after an error of `Files`, only some results may be published.
    cancel: cancels Spark's work; called in a separate thread if the caller is interrupted.
    Raises `CannotPublish`, `AttemptLost`, `TableMismatch`, Spark's errors, and those of `Files`.
    """
    while left := {name: result for name, result in results.items() if name not in done}:
        attempts: dict[str, Attempt] = {}
        try:
            _carry_out(left, attempts, done)
        except BaseException as error:
            if not isinstance(error, Exception):
                _in_a_thread(cancel)  # so that tasks stop writing before their files are deleted below
            found = {}
            for name in attempts.keys() - done.keys():
                if (published := _give_up(left[name].output.files, attempts[name])) is not None:
                    found[name] = published
            if not found or not isinstance(error, Exception):
                raise
            # Another attempt of the same run has published its result first, and has swept the rows of this attempt. All other
            # results start over.
            done.update(found)
    for name, result in results.items():
        files = result.output.files
        try:
            versions.tidy(files, done[name].version.run, result.output.keep)
        except SquallError as error:  # the result is published, and the next run tidies too
            log.warning("%s: old versions and leftovers stay for now: %s", files.root, error)


def _carry_out(
    results: Mapping[str, Result], attempts: dict[str, Attempt], done: dict[str, Published]
) -> None:
    """Begin, make, write and count every result that does not exist yet; then publish them, one after the other."""
    for name, result in results.items():
        if isinstance(begun := versions.begin(result.output.files, result.run), Version):
            done[name] = Published(begun, ours=False)
        else:
            attempts[name] = begun

    def alive() -> None:
        for name, attempt in attempts.items():
            with suppress(FilesError):  # the next keepalive may succeed
                versions.keep_alive(results[name].output.files, attempt)

    with keep_alive(alive, every=versions.KEEP_ALIVE, patience=float("inf")):
        frames = {name: results[name].make() for name in attempts}
        schemas = {name: str(schema_of(frame, results[name].output.table)) for name, frame in frames.items()}
        rows = {
            name: _write(frame, schemas[name], results[name].output, attempts[name])
            for name, frame in frames.items()
        }
        for name, attempt in attempts.items():
            result = results[name]
            done[name] = versions.publish(
                result.output.files, attempt, result.run, rows[name], schemas[name], counts=result.counts()
            )


def _give_up(files: Files, attempt: Attempt) -> Published | None:
    """Delete an attempt's leftovers; return the version that another attempt of the run has published, if it can be read."""
    found = None
    with suppress(SquallError):
        versions.give_up(files, attempt)
        found = versions.published_meanwhile(files, attempt)
    return None if found is None else Published(found, ours=found.attempt == attempt.name)


def _in_a_thread(call: Callable[[], None]) -> None:
    """Make the call in a new thread, which has its own connection to Java: this thread's connection is in the middle of a call.
    Wait only for a limited time, since the new call may hang too."""
    thread = threading.Thread(target=call, name="squall-spark-cancel", daemon=True)
    thread.start()
    thread.join(_CANCEL_SECS)


def schema_of(frame: DataFrame, table: TableRecord) -> Schema:
    """Return the schema of a frame that is to be written to a table. Raises `CannotPublish`, which names every obstacle."""
    session: Any = frame.sparkSession
    # With Spark Connect, PySpark's `toDDL` needs an active session of this thread, and there may be none.
    text = frame.schema.toDDL() if is_classic(session) else session._to_ddl(frame.schema)
    try:
        schema = parse_schema(str(text))
    except SchemaError as error:
        raise CannotPublish(f"the columns of the result cannot be written: {error}") from None
    if problems := list(format_problems(schema, table.file_format, table.partition_by)):
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CannotPublish(
            f"the result cannot be written as {table.file_format}:{lines}\n  its columns: {schema}"
        )
    return schema


def _write(frame: DataFrame, schema: str, output: OutputTable, attempt: Attempt) -> int:
    """Write a frame to an attempt's folder; return how many rows the folder then holds."""
    table = output.table
    folder = f"{output.files.root}/{attempt.rows}"
    session = frame.sparkSession
    wanted = {name: value for name, value in WRITE_CONF.items() if name.startswith(_WRITE_SETTINGS)}
    with changed_settings(session, wanted):
        save(frame, "append", WriteAs(table.file_format, table.partition_by), folder)
        if not output.files.list(attempt.rows):
            return 0  # without rows, Spark writes no files of a partitioned table
        reader = session.read.format(table.file_format).options(**read_options(table.file_format))
        return reader.schema(schema).load(folder).count()
