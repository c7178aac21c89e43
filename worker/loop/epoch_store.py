"""Log and snapshots of one topology in a folder of a store, and who calls the store: a thread, or the loop itself.

    log/000000000001        the records of `worker.epochs.records`, each put once
    snapshots/<name>        `worker.epochs.snapshot_files`

A call that fails because the store is away is made again, with growing pauses, until it succeeds: an epoch waits for its store.
Only the put of a record is not repeated here: whether it was stored decides what comes next (`worker.epochs.log`).
Must not know: tasks, epochs that run.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

from squall.security.private_files import own_folder
from squall.stores.files import Files, FilesUnavailable
from squall.stores.local import translated
from squall.stores.opening import open_store
from topology_api import SquallError
from worker.epochs.log import PutAnswer
from worker.epochs.records import CommitRecord, LogRecord, SnapshotFile, decode_record, encode_record
from worker.epochs.snapshot_files import SweepFiles, TaskSnapshot, decode_snapshot, removable

_log = logging.getLogger(__name__)

LOG: Final = "log"
SNAPSHOTS: Final = "snapshots"
#: Digits of a record's name, so that the names sort by number.
DIGITS: Final = 12
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


class EpochFiles:
    """Log and snapshots of one topology, in a folder of its name below `topology.state.path`.

    The first call makes or checks the folder. Any call raises `SquallError` if others may have put anything into it: keys and
    rows in it are pickled.
    """

    def __init__(self, path: str, topology: str) -> None:
        self.folder = Path(path.removeprefix("file://")) / topology
        #: What the present call does, or the last one did, for people.
        self.doing = ""
        #: When the last commit that was read had been written, in seconds since 1970, by the clock of the file system.
        self.commit_read: float | None = None

    @cached_property
    def files(self) -> Files:
        """The store, whose root is the folder."""
        try:
            own_folder(self.folder)
        except OSError as error:
            what = f"cannot keep the state of the topology in {self.folder}: {error.strerror or error}"
            raise translated(error, what) from error
        return open_store(str(self.folder))

    def put_record(self, number: int, record: LogRecord) -> PutAnswer:
        """Put a record if there is none of its number. Raises FilesUnavailable if that is not known."""
        self.doing = f"writing {self.folder}/{LOG}/{number:0{DIGITS}}"
        stored = self.files.put_if_absent(f"{LOG}/{number:0{DIGITS}}", encode_record(record))
        return PutAnswer.STORED if stored else PutAnswer.TAKEN

    def records_after(self, number: int) -> list[LogRecord]:
        """Return the records after a number. Raises BadLog, FilesError."""
        self.doing = f"reading the log in {self.folder}"
        there = {status.name: status for status in self.files.list(LOG) if status.name.isdecimal()}
        found: list[LogRecord] = []
        for name in sorted(there):
            if int(name) > number:
                if int(name) != number + len(found) + 1:
                    break  # a record before it is not there yet, so neither is this one, as far as the protocol goes
                found.append(decode_record(int(name), self.files.read(f"{LOG}/{name}")))
                if isinstance(found[-1], CommitRecord):
                    self.commit_read = there[name].modified
        return found

    def write_snapshot(self, file: SnapshotFile, data: bytes) -> None:
        """Write a snapshot. Its name is used once, so what is there already is the same."""
        self.doing = f"writing {self.folder}/{SNAPSHOTS}/{file.name}"
        self.files.put_if_absent(f"{SNAPSHOTS}/{file.name}", data)

    def restore_point(self, files: Mapping[str, SnapshotFile], rewind: int) -> list[TaskSnapshot]:
        """Read the snapshots of a commit for a rewind, whose record stands in the log. Raises BadSnapshot, FilesError;
        FilesUnavailable if the record is not there, so that this is another folder than that of the coordinator.
        """
        self.doing = f"reading snapshots in {self.folder}"
        record = f"{rewind:0{DIGITS}}"
        if not any(status.name == record for status in self.files.list(LOG)):
            raise FilesUnavailable(
                f"{self.folder} on host {socket.gethostname()} has no {LOG}/{record}, which another worker has written: "
                "topology.state.path has to be a folder that all hosts share, or topology.workers 1"
            )
        return self.read_snapshots(files)

    def read_snapshots(self, files: Mapping[str, SnapshotFile]) -> list[TaskSnapshot]:
        """Read the snapshots of a commit. Raises BadSnapshot, FilesError."""
        return [decode_snapshot(file, self.files.read(f"{SNAPSHOTS}/{file.name}")) for file in files.values()]

    def sweep(self, sweep: SweepFiles) -> None:
        """Remove what no commit needs."""
        self.doing = f"removing old snapshots in {self.folder}"
        names = [status.name for status in self.files.list(SNAPSHOTS) if not status.is_folder]
        for name in removable(sweep, names):
            self.files.delete(f"{SNAPSHOTS}/{name}")


#: What a call came to: its result, or the error that ends the topology.
Answer = tuple[Callable[[Any], None], Any, SquallError | ValueError | None]


class StoreCalls(Protocol):
    """Who calls the store. Its answers are handled by the loop's next step."""

    answers: deque[Answer]
    #: The error of the store while it is away, and since when it has been; "" while it answers.
    waits_for: str
    waits_since: float
    #: Since when a call has been running; None: none is.
    call_since: float | None

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """Call a function of `EpochFiles`; `done` gets its result, in the loop.

        `unknown`: what `done` gets, after a pause, if the store is away; None: the call is made again.
        """

    def stop(self) -> None:
        """Make no further call."""


class InlineCalls:
    """Calls the store in the loop, for simulated time, where a store that is away ends the topology."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.waits_for, self.waits_since = "", 0.0
        self.call_since: float | None = None

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """See `StoreCalls`."""
        try:
            self.answers.append((done, job(), None))
        except (SquallError, ValueError) as error:
            self.answers.append((done, None, error))

    def stop(self) -> None:
        """No call follows."""


class ThreadCalls:
    """Calls the store in a thread of its own, in order, each until it succeeds."""

    def __init__(
        self, name: str, wake: Callable[[], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.answers: deque[Answer] = deque()
        self.wake, self.now = wake, now
        self.waits_for, self.waits_since = "", 0.0
        self.call_since: float | None = None
        self._pause = FIRST_PAUSE
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None], Any] | None] = (
            queue.SimpleQueue()
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-state", daemon=True)
        self._thread.start()

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """See `StoreCalls`."""
        self._jobs.put((job, done, unknown))

    def stop(self) -> None:
        """Make no further call."""
        self._stopped.set()
        self._jobs.put(None)

    def _run(self) -> None:
        while not self._stopped.is_set() and (next_job := self._jobs.get()) is not None:
            while not self._stopped.is_set() and not self._try(*next_job):
                pass
            self.wake()

    def _try(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any) -> bool:
        """Call the store once; return whether there is an answer."""
        self.call_since = self.now()
        try:
            self.answers.append((done, job(), None))
        except FilesUnavailable as error:
            self.call_since = None
            if not self.waits_for:
                self.waits_since = self.now()
                _log.warning("the topology waits for the store of its state: %s", error)
            self.waits_for = str(error)
            self._stopped.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            if unknown is not None:
                self.answers.append((done, unknown, None))
            return unknown is not None
        except (SquallError, ValueError) as error:
            self.answers.append((done, None, error))
        self.call_since, self.waits_for, self._pause = None, "", FIRST_PAUSE
        return True
