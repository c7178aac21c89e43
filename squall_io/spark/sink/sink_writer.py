"""The writer of one task of a sink, without epochs: commits batches, retries while storage or Spark is unavailable.

Once publishing has begun, a batch may be in the table, even if publishing failed. From then on the batch is never given up,
since its tuples would be replayed and their rows duplicated. Before publishing, an error that retries cannot solve ends the
batch. If a sweep presumed this task dead and claimed its writer id, the task takes the writer id back.
Must not know: tuples.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from squall.stores.files import FilesError
from squall_io.spark.manifest.claims import Claim, Superseded, require_owner, take_back, take_over
from squall_io.spark.manifest.commit import BatchCommit, BatchConflict, BatchLost, Owner
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.manifest.state import checkpoint_if_due, has_counted
from squall_io.spark.manifest.sweep import delete_leftovers, sweep, sweep_gone
from squall_io.spark.signs_of_life import keep_alive
from squall_io.spark.sink.errors import STOPPED, NotCommitted, reason_of
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.sink.sink_table import CHECKPOINT_EVERY, Opening, SinkTable
from topology_api import Context

if TYPE_CHECKING:
    import pyarrow


@dataclass
class _Batch:
    """A batch in progress."""

    name: BatchName
    rows: int
    #: The number of Spark jobs for the batch so far.
    attempts: int = 0
    #: The batch's commit, once Spark has written the rows.
    commit: BatchCommit | None = None
    #: Whether the batch's entry may be in the table.
    in_doubt: bool = False


class SinkWriter(SinkTable):
    """Commits batches as the owner of a writer id."""

    #: This task as the owner of its writer id; set by `open`.
    _owner: Owner

    def __init__(self, settings: SinkSettings, context: Context, at: Callable[[str], None]) -> None:
        super().__init__(settings, context, at)
        self._writer_id = WriterId.of(context.topology_id, context.component, context.index)
        self._whose = f"{socket.gethostname()}, process {os.getpid()}"
        #: Whether a sweeper ended this epoch, so that the writer id must be taken back.
        self._ended = False
        self._superseded: Superseded | None = None
        self._token = secrets.token_hex(8)
        self._number = 0

    # Opening.

    def _steps(self) -> Iterable[Opening]:
        """Take over the writer id, and clean up after earlier owners."""
        return (
            (self._take_over, "the table is opened"),
            (self._sweep, "leftovers are deleted"),
            (self._warm_up, "Spark's first write"),
        )

    def _take_over(self) -> None:
        """Become the owner of the writer id."""
        self._at("claim")
        task = self._context
        epoch = take_over(self._store, self._writer_id, task.incarnation, self._whose, time.time())
        names = task.topology, task.topology_id, task.component, task.incarnation
        self._owner = Owner(self._writer_id, epoch, *names)

    def _sweep(self) -> None:
        """Delete leftovers of earlier owners."""
        self._at("sweep")
        task, files, own = self._context, self._store, self._writer_id
        swept = sweep(files, own, self._owner.epoch)
        swept += sweep_gone(files, own, task.parallelism, task.incarnation, self._whose, time.time())
        if swept:
            self._log.info("deleted %d files of batches that were never committed", swept)

    def _warm_up(self) -> None:
        """Let Spark write a row, and delete the row."""
        name = BatchName(self._writer_id, self._owner.epoch, 0)
        self._write_first(name.staging, name.attempt(1), f"epoch {name.epoch} of {self._writer_id}")

    def _look(self) -> None:
        require_owner(self._store, self._writer_id, self._owner.epoch)

    # Committing.

    def commit(self, rows: pyarrow.Table) -> BatchCommit:
        """Commit rows to the table as one batch. Return the commit; the caller passes it to `tidy` once the tuples are acked.

        Raises `Superseded` if another task owns the writer id, and `NotCommitted` if the batch is not in the table.
        """
        if self._superseded is not None:
            raise self._superseded
        self._number += 1
        batch = _Batch(BatchName(self._writer_id, self._owner.epoch, self._number), rows.num_rows)
        retries = self._new_retries(f"batch {batch.name} of {batch.rows} rows is not in {self._store.root}")
        self._retries = retries
        try:
            while True:
                try:
                    with keep_alive(self._progress):
                        commit = self._try(batch, rows)
                    retries.succeeded(f"batch {batch.name} is in {self._store.root}")
                    return commit
                except Superseded as error:
                    if self._ended:  # the writer id cannot be taken back
                        self._superseded = error
                        self._log.error("%s", error)
                        raise
                    self._ended = True
                except Exception as error:
                    self._suspect = True
                    if isinstance(error, BatchLost):
                        batch.commit = None
                    hopeless = isinstance(error, (BatchConflict, UnreadableRecord))
                    retries.failed(error, in_doubt=batch.in_doubt and not hopeless)
        except NotCommitted:
            if not batch.in_doubt:
                with suppress(FilesError):  # the next sweep deletes what remains
                    delete_leftovers(self._store, batch.name, ())
            raise
        finally:
            self._retries = None

    def tidy(self, commit: BatchCommit) -> None:
        """Tell the Delta log, delete the batch's staging folder, and make a checkpoint if one is due.

        Errors are only logged: the batch counts, and the next owner cleans up.
        """
        if self._delta is not None:
            self._delta.add(commit.entry)
        try:
            with keep_alive(self._progress):
                commit.clear()
                if self._number % CHECKPOINT_EVERY == 0:
                    self._at("checkpoint")
                    checkpoint_if_due(self._store)
        except Exception as error:
            self._suspect = True
            self._log.warning(
                "batch %s is committed, but clearing up after it failed: %s", commit.name, reason_of(error)
            )

    def _try(self, batch: _Batch, rows: pyarrow.Table) -> BatchCommit:
        """Continue a batch at its current step."""
        self._mend()
        if self._ended:
            self._take_back(batch)
        if batch.name.epoch != self._owner.epoch and self._counts_or_restarts(batch):
            assert batch.commit is not None
            batch.commit.files = self._store
            return batch.commit
        if batch.commit is None:
            batch.attempts += 1
            self._at("write")
            assert self._writer is not None
            self._writer.write(rows, f"{self._store.root}/{batch.name.attempt(batch.attempts)}")
            batch.commit = BatchCommit(
                self._store,
                self._owner,
                batch.name,
                batch.rows,
                self._agreed.number,
                attempt=batch.attempts,
                data=self._table.data,
                wall=time.time,
                at=lambda step: self._step(batch, step),
            )
        batch.commit.files = self._store  # the store may have been opened again since the last attempt
        batch.commit.run()
        return batch.commit

    def _step(self, batch: _Batch, step: str) -> None:
        if self._context.stopped and not batch.in_doubt:  # the batch's tuples have failed
            raise NotCommitted(STOPPED)
        batch.in_doubt |= step == "publish"
        self._at(step)

    def _take_back(self, batch: _Batch) -> None:
        """Become the owner of the writer id again, in the next epoch. Raises `Superseded` if another task owns it."""
        self._step(batch, "claim")
        ended = self._owner.epoch
        claim = Claim(self._context.incarnation, self._whose, time.time(), token=self._token)
        epoch = take_back(self._store, self._writer_id, ended, claim)
        self._owner = replace(self._owner, epoch=epoch)
        self._number = 0
        self._ended = False
        self._log.warning(
            "epoch %d of %s was ended by squall table --sweep, which presumes a task dead if the task wrote nothing for"
            " --older-than seconds; this task continues in epoch %d",
            ended,
            self._writer_id,
            epoch,
        )

    def _counts_or_restarts(self, batch: _Batch) -> bool:
        """Return whether a batch from an earlier epoch of this writer counts. If not, make it a new batch of the current
        epoch.
        """
        if batch.in_doubt and has_counted(self._store, batch.name):
            return True
        batch.in_doubt = False
        self._step(batch, "sweep")
        sweep(self._store, self._writer_id, self._owner.epoch)
        self._number += 1
        batch.name = BatchName(self._writer_id, self._owner.epoch, self._number)
        batch.attempts = 0
        batch.commit = None
        return False
