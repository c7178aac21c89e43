"""The Delta log of a sink's table, which follows the batches of one task: in a thread beside, since no batch waits for it.

Batches are collected for `ROUND` seconds, so that a version of the log has many. What others have left out, such as a task that
was killed before its turn, is found when the whole manifest is compared, now and then.
Must not know: Spark, how a log is written.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from logging import Logger
from typing import Final

from squall.stores.files import Files
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.following import CHECKPOINT_EVERY, catch_up, newest_version
from squall_io.spark.delta.own_batches import OwnBatches
from squall_io.spark.manifest.entries import BatchEntry

#: Seconds between two looks at what waits.
ROUND: Final = 5.0
#: Seconds between two looks whether a table without a log has got one.
LOOK: Final = 60.0
#: Seconds between two comparisons with the whole manifest, if the task has added something since.
COMPARE: Final = 600.0
#: Seconds between two looks for entries of others that the log does not name, which takes a listing: what is found twice is
#: added, so that the log is at most a minute behind a task that was killed.
LISTED: Final = 25.0
#: How long the end of the task waits for the last batches to get into the log, in seconds.
LAST: Final = 5.0


class DeltaFollower:
    """Tells the Delta log of batches. All methods but `round` are for the sink's thread.

    files: returns the store of the table, which may be another one after a failure.
    """

    def __init__(
        self,
        files: Callable[[], Files],
        partition_by: Sequence[str],
        log: Logger,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._partition_by = tuple(partition_by)
        self._log = log
        self._wall = wall
        self._committed: queue.SimpleQueue[BatchEntry | None] = queue.SimpleQueue()
        self._own: OwnBatches | None = None
        #: When to compare next, and the version at which it was done last.
        self._due = 0.0
        self._compared = -1
        #: When to look at the entries next; those that the log lacked at the last look, and those that were compared.
        self._listed = 0.0
        self._lacking: set[str] = set()
        self._settled: set[str] = set()
        self._failing = False
        self._ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="squall-delta", daemon=True)

    @property
    def lag(self) -> float:
        """For how long the oldest batch that is not in the log has been committed, in seconds; 0 if there is none."""
        own = self._own
        waiting = () if own is None else tuple(own.waiting)
        return max((self._wall() - entry.committed for entry in waiting), default=0.0)

    def open(self) -> None:
        """Begin, before the task's first batch. Raises errors of `Files`."""
        self.begin(newest_version(self._files()))
        self._thread.start()

    def add(self, entry: BatchEntry | None) -> None:
        """Add a batch that counts for ever. None: one of this task counts, and its entry is not known."""
        self._committed.put(entry)

    def close(self) -> None:
        """Add what waits, if that does not take long, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(LAST)

    def round(self, now: float) -> None:
        """Bring the log up to date. now: seconds, by any clock. Raises errors of `Files`, and `ForeignLog`."""
        if self._own is None and now >= self._due:
            self._due = now + LOOK
            self.begin(newest_version(self._files()))
        self._take()
        if (own := self._own) is None:
            return
        # A comparison comes first, since it tells of new columns that the batches may have.
        if self._is_due(own.version, now) or self._is_lacking(own, now):
            self._settled = own.unknown_of(self._files())
            catch_up(self._files(), self._wall)
            self._due = now + COMPARE
            self._compared = own.version
        own.add(self._files())

    def _is_due(self, version: int, now: float) -> bool:
        if self._compared < 0 or version - self._compared >= CHECKPOINT_EVERY:
            return True
        return version != self._compared and now >= self._due

    def _is_lacking(self, own: OwnBatches, now: float) -> bool:
        """Return whether the log has lacked a batch of another task at two looks."""
        if now < self._listed:
            return False
        self._listed = now + LISTED
        before, self._lacking = self._lacking, own.unknown_of(self._files()) - self._settled
        self._lacking -= {str(entry.batch) for entry in own.waiting}
        return not before.isdisjoint(self._lacking)

    def _take(self) -> None:
        """Take what the sink's thread has committed. Without a log it is forgotten: if the table ever gets one, a comparison
        finds it."""
        while not self._committed.empty():
            entry = self._committed.get()
            if entry is None:
                self._compared = -1
            elif self._own is not None:
                self._own.waiting.append(entry)

    def begin(self, version: int) -> None:
        """Follow a log whose newest version is this; -1: there is none yet."""
        if version >= 0:
            self._own = OwnBatches(self._wall, self._partition_by, version)
            self._compared = -1

    def _run(self) -> None:
        while not self._ended:
            self._ended = self._stop.wait(ROUND)
            try:
                self.round(time.monotonic())
                self._failing = False
            except ForeignLog as error:
                self._log.error(
                    "the Delta log is left as it is, and does not follow the table any more: %s", error
                )
                return
            except Exception as error:
                if not self._failing:
                    self._log.warning("the Delta log waits: %s", error)
                self._failing = True
