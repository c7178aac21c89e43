"""The writer of one task of a sink in a topology with epochs: stages rows at the end of an epoch, shows it after its commit.

It owns no writer id: the topology's log says what counts (`manifest.epochs`). While storage or Spark is unavailable, a call
waits; on any other error it raises, and the worker makes it again.
Must not know: tuples.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from squall_io.spark.manifest.commit import BatchLost
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.epochs import (
    EpochPart,
    Shower,
    drop_part,
    list_part,
    new_part,
    put_part,
    show_epoch,
    sweep_parts,
    sweep_temporary,
)
from squall_io.spark.manifest.layout import TMP, BatchName, epoch_batch, safe
from squall_io.spark.manifest.state import checkpoint_if_due
from squall_io.spark.manifest.tables import oldest_schema_for
from squall_io.spark.signs_of_life import keep_alive
from squall_io.spark.sink.errors import reason_of
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.sink.sink_table import CHECKPOINT_EVERY, Opening, SinkTable
from topology_api import Context

if TYPE_CHECKING:
    import pyarrow

#: How long Spark waits for the tasks that take the places of those that a rewind has ended, in seconds.
LINGER: Final = 30.0
_Result = TypeVar("_Result")


@dataclass
class _Staging:
    """A part on its way."""

    batch: BatchName
    #: The part's name, once Spark has written its rows; "": it has not.
    written: str = ""
    #: The part, once it may be recorded.
    part: EpochPart | None = None


class EpochWriter(SinkTable):
    """Stages and shows the epochs of one task."""

    _linger = LINGER

    def __init__(self, settings: SinkSettings, context: Context, at: Callable[[str], None]) -> None:
        super().__init__(settings, context, at)
        self._staging: _Staging | None = None
        #: How many batches this object has made.
        self._made = 0

    def stage(self, lineage: str, epoch: int, rows: pyarrow.Table) -> str:
        """Keep the rows of an epoch safe; return the name of the part. A call for the epoch that raised may be made again, with
        the same rows. Raises `NotCommitted`.
        """
        batch = epoch_batch(lineage, self._context.component, epoch)
        if self._staging is None or self._staging.batch != batch:
            self._staging = _Staging(batch)
        staging = self._staging
        what = f"{rows.num_rows} rows of batch {batch} are not staged in {self._store.root}"
        return self._retried(what, lambda: self._stage(staging, rows))

    def show(self, lineage: str, epoch: int, name: str) -> BatchEntry | None:
        """Make visible what was staged; return the epoch's batch if this call has made it. Raises `NotCommitted`."""
        batch = epoch_batch(lineage, self._context.component, epoch)
        task = self._context
        by = Shower(task.topology, task.topology_id, task.component, task.incarnation)
        what = f"batch {batch} is not in {self._store.root}"
        shown = self._retried(
            what, lambda: show_epoch(self._store, batch, name, by, wall=time.time, at=self._at)
        )
        if self._delta is not None:
            self._delta.add(shown.entry)  # each task tells of it: the one that has made it may be gone
        self._tidy(batch, shown.made)
        return shown.entry if shown.made else None

    def drop(self, lineage: str, epoch: int, name: str) -> None:
        """Delete what was staged for a void epoch. Raises `NotCommitted`."""
        batch = epoch_batch(lineage, self._context.component, epoch)
        self._at("drop")
        self._retried(
            f"the void batch {batch} is still staged in {self._store.root}",
            lambda: drop_part(self._store, batch, name),
        )

    def _steps(self) -> Iterable[Opening]:
        return (
            (lambda: sweep_temporary(self._store), "leftovers are deleted"),
            (self._warm_up, "Spark's first write"),
        )

    def _agree(self) -> None:
        """Write with the same schema as all tasks of the sink, whatever columns other sinks add meanwhile."""
        super()._agree()
        self._agreed = oldest_schema_for(self._store, self._settings.schema, self._agreed)

    def _warm_up(self) -> None:
        task = self._context
        folder = f"{TMP}/first-{safe(task.component)}-{task.index}-{secrets.token_hex(8)}"
        self._write_first(folder, f"{folder}/1", f"epoch by epoch, task {task.index} of {task.component}")

    def _stage(self, staging: _Staging, rows: pyarrow.Table) -> str:
        """Continue with a part at its current step."""
        batch, task = staging.batch, self._context
        if not staging.written:
            name = new_part(task.index)
            self._at("write")
            assert self._writer is not None
            self._writer.write(rows, f"{self._store.root}/{batch.attempt(name)}")
            staging.written = name
        if staging.part is None:
            self._at("list")
            named = staging.written, task.topology_id, self._agreed.number
            try:
                staging.part = list_part(self._store, batch, *named, rows.num_rows, data=self._table.data)
            except BatchLost:
                staging.written = ""
                raise
        self._at("record")
        put_part(self._store, batch, staging.part)
        return staging.part.name

    def _retried(self, what: str, call: Callable[[], _Result]) -> _Result:
        """Make a call, again while storage or Spark is unavailable."""
        self._retries = retries = self._new_retries(what)
        try:
            while True:
                try:
                    with keep_alive(self._progress):
                        self._mend()
                        result = call()
                    retries.succeeded(f"no longer: {what}")
                    return result
                except Exception as error:
                    self._suspect = True
                    retries.failed(error)
        finally:
            self._retries = None

    def _tidy(self, batch: BatchName, made: bool) -> None:
        """Delete leftovers of earlier epochs, and make a checkpoint if one is due. Errors are only logged."""
        try:
            with keep_alive(self._progress):
                self._at("sweep")
                sweep_parts(self._store, batch, self._context.index, self._context.parallelism)
                if made and self._made % CHECKPOINT_EVERY == 0:
                    self._at("checkpoint")
                    checkpoint_if_due(self._store)
                self._made += made
        except Exception as error:
            self._suspect = True
            self._log.warning(
                "batch %s is committed, but clearing up after it failed: %s", batch, reason_of(error)
            )
