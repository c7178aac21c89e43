"""Holds a table's files while someone reads them: a lease that a thread renews.

Must not know: what is read, when a vacuum deletes files.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging import Logger
from typing import TYPE_CHECKING, Final

import msgspec

from squall.stores.files import Files, FilesError, FilesRefused
from squall_io.spark.manifest.layout import TABLE
from squall_io.spark.manifest.leases import RENEW, TERM, ReaderLease, new_path, put_lease, seen_in
from squall_io.spark.manifest.state import TableState
from squall_io.spark.signs_of_life import keep_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger(__name__)


class Holding:
    """A reader's lease on a table. `hold`, then `saw` after each reading of the manifest, and `release`.

    Without permission to write to the table there is no lease: then the retention of vacuums alone keeps files.
    """

    def __init__(self, files: Files, reader: str, log: Logger = log) -> None:
        self._files = files
        self._log = log
        self._path = new_path()
        holder = f"{reader} on {socket.gethostname()}, process {os.getpid()}"
        self._lease = ReaderLease(holder, time.time())
        self._put_at = 0.0
        self._failing = False
        self._held = ExitStack()

    def hold(self) -> None:
        """Hold everything from now on. Raises errors of `Files`, except `FilesRefused`."""
        try:
            self._put(self._lease)
        except FilesRefused as error:
            self._log.warning("%s is read without a lease, so a vacuum may delete files that are being read: %s",
                self._files.root, error)  # fmt: skip
            return
        self._held.enter_context(keep_alive(self.renew, every=RENEW, patience=float("inf")))
        self._held.callback(self._delete)

    def saw(self, state: TableState) -> None:
        """Hold only what this state has, from now on. The reader must not need anything that was replaced in it."""
        lease = msgspec.structs.replace(self._lease, seen=seen_in(state.counted.values()))
        if lease == self._lease or not self._put_at:
            return
        with suppress(FilesError):  # it holds more than it needs, until it is renewed
            self._put(lease)
        self._lease = lease

    def renew(self) -> None:
        """Put the lease again, as the thread does now and then."""
        late = time.monotonic() - self._put_at
        if late > TERM:
            self._log.warning(
                "%s was read without a lease for %.0f s: a vacuum may have deleted files that are being read",
                self._files.root,
                late - TERM,
            )
        try:
            self._put(self._lease)
            self._failing = False
        except FilesError as error:
            if not self._failing:
                self._log.warning("the lease on %s is not renewed: %s", self._files.root, error)
            self._failing = True

    def release(self) -> None:
        """Hold nothing any more. May be called twice."""
        self._held.close()

    def _put(self, lease: ReaderLease) -> None:
        put_lease(self._files, self._path, lease)
        self._put_at = time.monotonic()

    def _delete(self) -> None:
        with suppress(FilesError):  # it expires
            self._files.delete(self._path)


@contextmanager
def held(files: Files, reader: str) -> Iterator[Holding | None]:
    """Hold the table's files during the `with` block; None: there is no table."""
    try:
        is_table = files.exists(TABLE)
    except FilesRefused:  # the path is a file, or cannot be read, which its reader says
        is_table = False
    if not is_table:
        yield None
        return
    holding = Holding(files, reader)
    holding.hold()
    try:
        yield holding
    finally:
        holding.release()


@contextmanager
def hold_table(spark: SparkSession, path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep the files of the table at `path` during the `with` block, whatever is compacted and vacuumed meanwhile.

        with hold_table(spark, "/tables/counts"):
            rows = read_committed(spark, "/tables/counts")
            ...

    A frame names files, which Spark reads when the frame is used. A vacuum keeps the files of replaced batches for some days by
    default; hold the table where a frame is used for longer, or where the retention is short. Without permission to write to
    the table, its files are not held, and a warning says so. Raises what `read_committed` raises for a session or a path.
    """
    from squall_io.spark.reading.committed import opened

    with opened(spark, path) as files, held(files, "hold_table"):
        yield
