"""The table as one task of a sink has it open: Spark, the file system, the agreed schema, and their repair after a failure.

Must not know: how batches are committed, tuples.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from logging import Logger
from typing import TYPE_CHECKING, Final

from squall.stores.files import OpenStore
from squall.stores.java.jvm import JavaFailed
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.following import cannot_follow, enable
from squall_io.spark.manifest.commit import is_data
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS, WriterId
from squall_io.spark.manifest.tables import (
    NumberedSchema,
    TableRecord,
    agree_on_schema,
    new_rows,
    open_table,
)
from squall_io.spark.processes import this_process
from squall_io.spark.rows.schema import Schema
from squall_io.spark.session.request import SessionRequest
from squall_io.spark.session.sessions import SessionLease, is_broken, shared_session
from squall_io.spark.signs_of_life import keep_alive
from squall_io.spark.sink.compactor import SinkCompactor
from squall_io.spark.sink.delta_follower import DeltaFollower
from squall_io.spark.sink.errors import ErrorClass, NotCommitted, Retries, classify
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.sink.writing import TableWriter, WriteAs
from squall_io.spark.stores import open_files
from topology_api import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long the start retries before it fails and the worker restarts, in seconds.
START_SECONDS: Final = 30.0
#: A task checks after this many batches whether a checkpoint is due.
CHECKPOINT_EVERY: Final = 20
#: A step of the opening, and what the task does meanwhile, for `squall status`.
Opening = tuple[Callable[[], None], str]


class SinkTable(ABC):
    """Everything that one task of a sink owns outside its process. Call `open` first; all calls come from the task's thread."""

    #: The table, and its schema; set by `open`.
    _table: TableRecord
    _agreed: NumberedSchema
    #: How long a Spark session without users waits for the next one, in seconds.
    _linger: float = 0.0

    def __init__(self, settings: SinkSettings, context: Context, at: Callable[[str], None]) -> None:
        self._settings = settings
        self._context = context
        self._log: Logger = context.log
        self._progress = context.progress
        self._at = at
        self._lease: SessionLease | None = None
        #: What keeps the Delta log of the table; None: a table of this format has none.
        self._delta: DeltaFollower | None = None
        #: What compacts the table; None: this task does not.
        self._compactor: SinkCompactor | None = None
        self._files: OpenStore | None = None
        self._writer: TableWriter | None = None
        #: The session that `_files` and `_writer` belong to.
        self._session: SparkSession | None = None
        #: Whether a call has failed, so that the session must be checked.
        self._suspect = False
        self._retries: Retries | None = None

    @property
    def schema(self) -> Schema:
        """The table's schema, with which rows are written."""
        return self._agreed.schema

    @property
    def trouble(self) -> float:
        """How long the current batch has waited for storage or Spark, in seconds; 0: it is not waiting."""
        retries = self._retries
        return 0.0 if retries is None else retries.trouble

    @property
    def behind(self) -> float:
        """How long the oldest batch has waited for the Delta log, in seconds; 0: none waits."""
        return 0.0 if self._delta is None else self._delta.lag

    @abstractmethod
    def _steps(self) -> Iterable[Opening]:
        """Return the steps of the opening that follow when the table's schema is agreed."""

    def open(self) -> None:
        """Start Spark, open the table, and prepare for the first batch.

        Raises `NotCommitted` if storage or Spark was unavailable for too long. Errors that a user must correct are raised
        unchanged: `TableMismatch`, `FilesRefused`, ...
        """
        try:
            retries = self._new_retries(f"the table {self._settings.path} cannot be opened", START_SECONDS)
            for step, doing in (
                (self._borrow, "Spark starts"),
                (self._reach, "the table is opened"),
                (self._agree, "the table is opened"),
                *self._steps(),
                (self._follow, "the table is opened"),
                (self._compact, "the table is opened"),
            ):
                self._progress(doing)
                self._insist(step, retries)
            retries.succeeded(f"the table {self._settings.path} is open")
            self._progress("")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release everything. May be called twice."""
        compactor, self._compactor = self._compactor, None
        if compactor is not None:
            compactor.close()
        delta, self._delta = self._delta, None
        if delta is not None:
            delta.close()
        files, self._files = self._files, None
        lease, self._lease = self._lease, None
        writer, self._writer = self._writer, None
        self._session = None
        try:
            if writer is not None:
                writer.close()
            if files is not None:
                files.close()
        finally:
            if lease is not None:
                lease.release(self._linger)

    def _insist(self, step: Callable[[], None], retries: Retries) -> None:
        """Run a step of the opening, and repeat it if necessary."""
        while True:
            try:
                with keep_alive(self._progress):
                    self._mend()
                    step()
                return
            except Exception as error:
                never_started = self._lease is None and isinstance(error, JavaFailed)
                if never_started or classify(error) is ErrorClass.REFUSED:
                    raise
                self._suspect = True
                retries.failed(error)

    def _borrow(self) -> None:
        """Lease a session."""
        settings = self._settings
        self._lease = shared_session(settings.master, settings.conf, self._log, self._progress)

    def _reach(self) -> None:
        """Open the file system."""
        self._at("open")
        assert self._lease is not None
        session = self._lease.session
        self._files = open_files(self._settings.path, session=session, conf=self._settings.conf)
        self._session = session

    def _agree(self) -> None:
        """Create the table, or check that the existing table is the intended one."""
        self._at("table")
        settings = self._settings
        self._table = open_table(self._store, new_rows(settings.file_format, settings.partition_by))
        self._agreed = agree_on_schema(self._store, settings.schema)

    def _follow(self) -> None:
        """Keep the table's Delta log from now on. A table that has no rows yet gets one."""
        if why := cannot_follow(self._table, self._agreed):
            self._log.info("%s has no Delta log: %s", self._store.root, why)
            return
        try:
            if not any(map(self._store.list, (COMMITS, CHECKPOINTS))):
                enable(self._store, time.time)
        except ForeignLog as error:
            self._log.error("the Delta log is left as it is, and does not follow the table: %s", error)
            return
        delta = DeltaFollower(lambda: self._store, self._table.partition_by, self._log)
        delta.open()
        self._delta = delta

    def _compact(self) -> None:
        """Compact the table from now on, if it is this task's turn."""
        task, limit = self._context, self._settings.compact_after
        if limit is None or task.index:
            return
        whose = f"the sink {task.component} of topology {task.topology} on {socket.gethostname()}, process {os.getpid()}"
        count = task.counter("files compacted").add
        writer_id = WriterId.of(task.topology_id, task.component, task.index)
        self._compactor = SinkCompactor(
            lambda: self._store,
            self._table.data,
            limit,
            whose,
            self._log,
            count,
            me=this_process(str(writer_id), task.incarnation),
        )
        self._compactor.open()

    def _write_first(self, folder: str, attempt: str, name: str) -> None:
        """Let Spark write a row to `attempt`, and delete it with its folder: a session's first write takes seconds, so no batch
        should wait for it. `name`: what the task is in the log.
        """
        self._at("warm")
        writer = self._make_writer()
        started = time.monotonic()
        writer.warm_up(f"{self._store.root}/{attempt}")
        self._require_found(attempt)
        self._store.delete(folder)
        self._writer = writer
        took = time.monotonic() - started
        self._log.info("writes to %s, %s (Spark's first write took %.1f s)", self._store.root, name, took)

    def _require_found(self, folder: str) -> None:
        """Check that this process sees the files that Spark has just written. Raises `NotCommitted`, or what `_look` raises."""
        if any(is_data(status, len(folder) + 1) for status in self._store.walk(folder)):
            return
        self._look()
        master = SessionRequest.of(self._settings.master, self._settings.conf).place
        raise NotCommitted(
            f"Spark (master {master}) reports that it wrote a row to {self._store.root}/{folder}, but this worker sees no"
            " file there: Spark's executors write to a different file system, or to a different folder. Give a path that"
            " all hosts share (hdfs://...), or a master local[N], and remove any output committer of your own from conf"
        )

    def _look(self) -> None:  # noqa: B027
        """Raise `Superseded` if another task may delete this one's files."""

    def _mend(self) -> None:
        """After a failure, check whether the sessions work, and replace them if not."""
        if not self._suspect or self._lease is None:
            return
        session, writer = self._session, self._writer
        if session is not None and (self._lease.session is not session or is_broken(session)):
            self._lease.renew(session)
            if self._files is not None:
                self._files.close()
            self._reach()
        elif writer is None or not is_broken(writer.session):
            writer = None
        if writer is not None:
            writer.close()
            self._writer = self._make_writer()
        self._suspect = False

    def _make_writer(self) -> TableWriter:
        assert self._lease is not None
        settings = self._settings
        write_as = WriteAs(settings.file_format, settings.partition_by, settings.compression)
        return TableWriter(self._lease.session, self.schema, write_as)

    def _new_retries(self, what: str, limit: float | None = None) -> Retries:
        return Retries(what, self._log, self._progress, limit, lambda: self._context.stopped)

    @property
    def _store(self) -> OpenStore:
        assert self._files is not None
        return self._files
