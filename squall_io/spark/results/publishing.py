"""Frames become versions of tables: Spark writes them, their rows are counted where they lie, and then they are published.

The rows are counted by reading what was written: what Spark counts while it writes has those of tasks that were tried twice.
Must not know: what the frames were made of, who asked for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.files import Files, FilesError
from squall_io.spark.manifest.tables import RESULTS, Table, find_table, mismatch
from squall_io.spark.results import versions
from squall_io.spark.results.versions import Attempt, Published, Run, Version
from squall_io.spark.rows.formats import format_problems, read_options, write_options
from squall_io.spark.rows.schema import Schema, SchemaError, parse_schema
from squall_io.spark.session.beat import Beat
from squall_io.spark.sink.writing import WRITE_CONF
from squall_io.spark.stores.gateway import is_classic
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

#: Settings of a session that decide how values are written; the others of WRITE_CONF are for batches of a stream.
_WRITE_SETTINGS: Final = ("spark.sql.parquet.", "mapreduce.", "dfs.")
#: Seconds that Spark is given to stop what it is doing.
_CANCEL_SECS: Final = 10.0


class CannotPublish(SquallError):
    """A frame that cannot be written as it is."""


@dataclass(frozen=True)
class Output:
    """The table that versions go to."""

    files: Files
    table: Table
    keep: int = versions.KEEP


def open_output(
    files: Files, file_format: str | None, partition_by: Sequence[str] | None, keep: int = versions.KEEP
) -> Output:
    """The table for results at a path, there or to be made; None: as its versions have it, or parquet and no partitions.

    `TableMismatch` when it holds something else, or in another way; `FolderTaken` when it cannot be made. Nothing is written.
    """
    newest = versions.newest_version(files)
    there = versions.DEFAULT_TABLE if newest is None else newest.table
    wanted = Table(
        RESULTS,
        there.file_format if file_format is None else file_format,
        there.partition_by if partition_by is None else tuple(partition_by),
    )
    find_table(files, wanted)
    if newest is not None and newest.table != wanted:
        raise mismatch(files, newest.table, wanted)
    return Output(files, wanted, keep)


@dataclass(frozen=True)
class Result:
    """What is to be the newest version of a table."""

    output: Output
    run: Run
    make: Callable[[], DataFrame]
    """Gives the frame; not called when the run's result is there already."""
    counts: Callable[[], Mapping[str, int]] = dict
    """What else was counted, for the version's record; asked for when its rows are written."""


def publish_frame(result: Result, cancel: Callable[[], None] = lambda: None) -> Published:
    """`publish_frames` for a single one."""
    done: dict[str, Published] = {}
    publish_frames({"": result}, done, cancel)
    return done[""]


def publish_frames(
    results: Mapping[str, Result], done: dict[str, Published], cancel: Callable[[], None] = lambda: None
) -> None:
    """Have each result be the newest version of its table; `done` gets what is published, also when this raises.
    `cancel` has Spark give up what it is doing; it is called when the caller is interrupted, in a thread of its own.

    All of them are written and counted before the first one is published, so whatever `make` and Spark raise leaves nothing
    behind. Each is published by a step of its own: what `Files` raises between two of them leaves the first.
    `CannotPublish`, `AttemptLost`, `TableMismatch`, Spark's errors, and what `Files` raises.
    """
    while left := {name: result for name, result in results.items() if name not in done}:
        attempts: dict[str, Attempt] = {}
        try:
            _carry_out(left, attempts, done)
        except BaseException as error:
            if not isinstance(error, Exception):
                _in_a_thread(cancel)  # else tasks go on, and write what is deleted here
            found = {}
            for name in attempts.keys() - done.keys():
                published = _give_up(left[name].output.files, attempts[name])
                if published is not None:
                    found[name] = published
            if not found or not isinstance(error, Exception):
                raise
            # Another attempt of the same run was first, and has swept what we were writing. The others are begun anew.
            done.update(found)
    for name, result in results.items():
        files = result.output.files
        try:
            versions.tidy(files, done[name].version.run, result.output.keep)
        except SquallError as error:  # it is published, and the next run tidies too
            log.warning("%s: old versions and leftovers stay for now: %s", files.root, error)


def _carry_out(
    results: Mapping[str, Result], attempts: dict[str, Attempt], done: dict[str, Published]
) -> None:
    """Begin, make, write and count all that is not there already; then publish, one after the other."""
    for name, result in results.items():
        begun = versions.begin(result.output.files, result.run)
        if isinstance(begun, Version):
            done[name] = Published(begun, ours=False)
        else:
            attempts[name] = begun

    def alive() -> None:
        for name, attempt in attempts.items():
            with suppress(FilesError):  # the next one may be seen
                versions.beat(results[name].output.files, attempt)

    with Beat(alive, every=versions.BEAT, patience=float("inf")):
        frames = {name: results[name].make() for name in attempts}
        schemas = {name: schema_of(frame, results[name].output.table) for name, frame in frames.items()}
        rows = {
            name: _write(frame, schemas[name], results[name].output, attempts[name])
            for name, frame in frames.items()
        }
        for name, attempt in attempts.items():
            result = results[name]
            done[name] = versions.publish(
                result.output.files,
                attempt,
                result.run,
                rows[name],
                str(schemas[name]),
                counts=result.counts(),
            )


def _give_up(files: Files, attempt: Attempt) -> Published | None:
    """Delete what an attempt has left; what was published meanwhile of the same run, if it can be seen."""
    found = None
    with suppress(SquallError):
        versions.give_up(files, attempt)
        found = versions.published_meanwhile(files, attempt)
    return None if found is None else Published(found, ours=found.attempt == attempt.name)


def _in_a_thread(call: Callable[[], None]) -> None:
    """Call it with a connection to Java of its own: this thread's one is in the middle of something. It may hang, too."""
    thread = threading.Thread(target=call, name="squall-spark-cancel", daemon=True)
    thread.start()
    thread.join(_CANCEL_SECS)


def _ddl_of(frame: DataFrame) -> str:
    """A frame's schema in Spark's words. Its own `toDDL` wants a session of this thread, where Spark Connect may have none."""
    if is_classic(frame.sparkSession):
        return str(frame.schema.toDDL())
    session: Any = frame.sparkSession
    return str(session._to_ddl(frame.schema))


def schema_of(frame: DataFrame, table: Table) -> Schema:
    """The schema of a frame that is to be written to a table; `CannotPublish` names all that stands in the way."""
    text = _ddl_of(frame)
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        raise CannotPublish(f"the columns of the result cannot be written: {error}") from None
    problems = format_problems(schema, table.file_format, table.partition_by)
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CannotPublish(
            f"the result cannot be written as {table.file_format}:{lines}\n  its columns: {schema}"
        )
    return schema


def _write(frame: DataFrame, schema: Schema, output: Output, attempt: Attempt) -> int:
    """Write a frame to an attempt's folder; how many rows lie there then."""
    table = output.table
    folder = f"{output.files.root}/{attempt.rows}"
    session = frame.sparkSession
    with _settings(session):
        writer = frame.write.mode("append").format(table.file_format)
        writer = writer.options(**write_options(table.file_format))
        if table.partition_by:
            writer = writer.partitionBy(*table.partition_by)
        writer.save(folder)
        if not output.files.list(attempt.rows):
            return 0  # nothing to write, in no partition
        reader = session.read.format(table.file_format).options(**read_options(table.file_format))
        return reader.schema(str(schema)).load(folder).count()


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Have a session write values as they are, for a while."""
    wanted = {name: value for name, value in WRITE_CONF.items() if name.startswith(_WRITE_SETTINGS)}
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    # Not when the caller was interrupted: the thread's connection to Java waits for the answer to what it was doing then.
    try:
        yield
    except Exception:
        with suppress(Exception):  # the driver may be what has died
            _set_again(session, before)
        raise
    _set_again(session, before)


def _set_again(session: SparkSession, before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
