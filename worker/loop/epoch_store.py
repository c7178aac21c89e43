"""Log and snapshots of one topology in a folder of a store: of this machine, or of HDFS.

    log/000000000001        the records of `worker.epochs.records`, each put once
    floors/000000000100     what the records up to this number say, which are removed (`worker.epochs.trimming`)
    snapshots/<name>        `worker.epochs.snapshot_files`
    _squall/tmp/<name>.*    files that are being written (`squall.stores`), and what attempts without an answer have left there

Must not know: tasks, epochs that run, who makes the calls (`worker.loop.store_calls`).
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from squall.security.private_files import own_folder
from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FilesRefused, FilesUnavailable, OpenStore
from squall.stores.local import translated
from squall.stores.opening import open_hdfs, open_store
from squall.stores.paths import LOCAL, TMP, check_path, folder_of, scheme_of
from worker.epochs.log import PutAnswer
from worker.epochs.records import CommitRecord, FloorRecord, LogRecord, SnapshotFile, decode_record
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SnapshotData,
    SweepFiles,
    TaskSnapshot,
    leftovers,
    read_chain,
    removable,
)
from worker.epochs.trimming import (
    FLOORS,
    LOG,
    TRIMMED,
    ListNumbers,
    LogStep,
    MarkTrimmed,
    PutNumbered,
    ReadNumbered,
    ReadRun,
    RemoveNumbers,
    carry_out,
    newest,
    put_record,
    read_log,
    trim_log,
)
from worker.routing.key_groups import GroupRange

SNAPSHOTS: Final = "snapshots"
#: Digits of a file's name in the log, so that the names sort by number.
DIGITS: Final = 12


def why_missing(folder: Path) -> str:
    """Return why a folder cannot be made although the folders above it are made too, and what to do."""
    for each in (folder, *folder.parents):
        if each.is_symlink() and not each.exists():
            return f"{each} is a link to {os.readlink(each)}, which is not there: make this folder, or give another path"
    return "no folder can be made there; give another path"


class EpochFiles:
    """Log and snapshots of one topology, in a folder of its name below `topology.state.path`.

    The first call makes or checks the folder. Any call raises `SquallError` if others may have put anything into it: keys and
    rows in it are pickled.
    """

    def __init__(self, path: str, topology: str, webhdfs: str | None = None, committed: int = 0) -> None:
        """`webhdfs`: where the NameNode of an hdfs:// path serves WebHDFS; None: it is reached by Java. `committed`: an epoch
        that is known to be committed there, so that a missing log is that of another file system."""
        place = check_path(f"{path}/{topology}")
        self.is_local = scheme_of(place) == LOCAL
        #: For people: without the scheme if it is on this machine.
        self.folder = folder_of(place) if self.is_local else place
        self.webhdfs, self.committed = webhdfs, committed
        self.opened: OpenStore | None = None
        #: What the present call does, or the last one did, for people.
        self.doing = ""
        #: When the last commit that was read had been written, in seconds since 1970, by the clock of the file system.
        self.commit_read: float | None = None

    @property
    def files(self) -> Files:
        """The store, whose root is the folder."""
        if self.opened is None:
            self.opened = self.open_local() if self.is_local else self.open_hdfs()
        return self.opened

    def open_local(self) -> OpenStore:
        """Make or check the folder on this machine."""
        if self.committed and not os.path.lexists(self.folder):
            raise self.gone()
        try:
            own_folder(Path(self.folder))
        except OSError as error:
            what = f"cannot keep the state of the topology in {self.folder}: {error.strerror or error}"
            if error.errno == errno.ENOENT:
                raise FilesRefused(f"{what}; {why_missing(Path(self.folder))}") from None
            raise translated(error, what) from error
        return open_store(self.folder)

    def gone(self) -> FilesUnavailable:
        """Return the error of a folder without the log that is known to be somewhere: no topology may begin there."""
        return FilesUnavailable(
            f"the state of topology {self.folder.rpartition('/')[2]!r} in {self.folder} is gone, or not mounted on host "
            f"{socket.gethostname()}: epoch {self.committed} was committed there. Mount the file system, or bring the folder "
            "back: the topology waits, and goes on then. To begin again without it, kill the topology and submit it again"
        )

    def open_hdfs(self) -> OpenStore:
        """Make or check the folder on HDFS."""
        files = open_hdfs(self.folder, self.webhdfs)
        try:
            files.make_private()
        except BaseException:
            files.close()
            raise
        return files

    def close(self) -> None:
        """Close the connections, and end the JVM unless another store of this process uses it. A later call opens the store
        again."""
        files, self.opened = self.opened, None
        if files is not None:
            files.close()

    # The log.

    def put_record(self, number: int, record: LogRecord) -> PutAnswer:
        """Put a record if its number was never used. Raises FilesUnavailable if that is not known."""
        self.doing = f"writing {self.folder}/{record_path(number)}"
        return carry_out(put_record(number, record), self.perform)

    def records_after(self, number: int) -> list[LogRecord]:
        """Return the records after a number, up to the first that is not there; before them a floor, if the next one was
        trimmed. Raises BadLog, FilesError."""
        self.doing = f"reading the log in {self.folder}"
        found = carry_out(read_log(number), self.perform)
        if self.committed and not (number or found):
            raise self.gone()
        floor = next((each for each in found if isinstance(each, FloorRecord)), None)
        commits = [each for each in found if isinstance(each, CommitRecord)]
        if floor is not None and floor.commits and not commits:
            self.commit_read = floor.facts[floor.commits[-1].epoch].at
        return found

    def trim(self, floor: FloorRecord) -> None:
        """Remove the records up to a floor. Raises FilesError."""
        self.doing = f"trimming the log in {self.folder}"
        carry_out(trim_log(floor), self.perform)

    def perform(self, step: LogStep) -> Any:
        """Make a call of the log's protocol; return its answer."""
        performed: dict[type, Callable[[Any], Any]] = {
            PutNumbered: lambda put: self.files.put_if_absent(path_of(put.folder, put.number), put.data),
            ListNumbers: lambda wanted: self.numbers(wanted.folder),
            ReadNumbered: lambda wanted: self.content(path_of(wanted.folder, wanted.number)),
            ReadRun: lambda run: self.run_after(run.after, run.many),
            RemoveNumbers: lambda remove: map_concurrently(
                self.files.delete, [path_of(remove.folder, number) for number in remove.numbers]
            ),
            MarkTrimmed: lambda _: self.files.replace(record_path(1), TRIMMED),
        }
        return performed[type(step)](step)

    def numbers(self, folder: str) -> dict[int, float]:
        """Return the numbers of a folder's files, and when these were written."""
        return {
            int(status.name): status.modified for status in self.files.list(folder) if status.name.isdecimal()
        }

    def content(self, path: str) -> bytes | None:
        """Return what is in a file; None: there is none."""
        try:
            return self.files.read(path)
        except AbsentFile:
            return None

    def run_after(self, number: int, many: bool) -> list[LogRecord] | None:
        """Return the records after a number, up to the first that is not there; None: one of them has gone meanwhile. Raises
        BadLog, FilesError."""
        if not (many or self.is_local):
            return self.next_records(number)
        there = self.numbers(LOG)
        numbers = sorted(each for each in there if each > number)
        whole = [each for place, each in enumerate(numbers, number + 1) if each == place]
        try:
            found = map_concurrently(self.read_record, whole)
        except AbsentFile:
            return None
        for place, record in zip(whole, found):
            if isinstance(record, CommitRecord):
                self.commit_read = there[place]
        return found

    def next_records(self, number: int) -> list[LogRecord]:
        """Return the records after a number, one by one."""
        found: list[LogRecord] = []
        try:
            while True:
                found.append(self.read_record(number + len(found) + 1))
        except AbsentFile:
            return found

    def read_record(self, number: int) -> LogRecord:
        """Return a record. Raises AbsentFile, BadLog."""
        return decode_record(number, self.files.read(record_path(number)))

    def write_snapshot(self, file: SnapshotFile, data: bytes | bytearray) -> None:
        """Write a snapshot. Its name is used once, so what is there already is the same."""
        self.doing = f"writing {self.folder}/{SNAPSHOTS}/{file.name}"
        # A copy as bytes would hold up all threads; stores take whatever can be written.
        self.files.put_if_absent(f"{SNAPSHOTS}/{file.name}", cast(bytes, data))

    def keep_snapshot(self, data: SnapshotData) -> SnapshotFile:
        """Write a snapshot that was put together; return its name and digest."""
        file = data.file()
        self.write_snapshot(file, data.data)
        return file

    def restore_point(
        self, files: Mapping[str, SnapshotFile], rewind: int, wanted: GroupRange | None = None
    ) -> list[TaskSnapshot]:
        """Read the snapshots of a commit for a rewind, whose record stands in the log. `wanted`: only what these key groups
        have; each part says which groups it has. Raises BadSnapshot, FilesError; FilesUnavailable if the record is not there,
        so that this is another folder than that of the coordinator.
        """
        self.doing = f"reading snapshots in {self.folder}"
        if not self.files.exists(record_path(rewind)) and newest(self.numbers(FLOORS)) < rewind:
            raise FilesUnavailable(
                f"{self.folder} on host {socket.gethostname()} has no {record_path(rewind)}, which another worker has written: "
                "topology.state.path has to be a folder that all hosts share, or hdfs://host:port/folder"
            )
        return self.read_snapshots(files, wanted)

    def read_snapshots(
        self, files: Mapping[str, SnapshotFile], wanted: GroupRange | None = None
    ) -> list[TaskSnapshot]:
        """Read the snapshots of a commit, with the files that they build upon; `wanted` as above. Raises BadSnapshot,
        FilesError."""
        labelled = wanted is not None
        try:
            return map_concurrently(
                lambda file: read_chain(file, self.read_bytes, wanted, labelled), files.values()
            )
        except (BadSnapshot, AbsentFile) as error:
            raise BadSnapshot(
                f"{error} (in {self.folder}/{SNAPSHOTS}). Begin with an earlier epoch, --state @N: "
                f"`squall state list {self.folder}` shows them"
            ) from error

    def read_snapshot(self, file: SnapshotFile, labelled: bool = False) -> TaskSnapshot:
        """Read a snapshot, with the files that it builds upon. `labelled`: each part says which key groups it has. Raises
        BadSnapshot, FilesError."""
        return read_chain(file, self.read_bytes, labelled=labelled)

    def read_bytes(self, name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        """Return bytes of a snapshot's file. Raises FilesError."""
        return self.files.read(f"{SNAPSHOTS}/{name}", offset, length)

    def sweep(self, sweep: SweepFiles) -> None:
        """Remove what no commit needs, and what attempts to write such files have left."""
        self.doing = f"removing old snapshots in {self.folder}"
        names = [status.name for status in self.files.list(SNAPSHOTS) if not status.is_folder]
        unfinished = [status.name for status in self.files.list(TMP) if not status.is_folder]
        paths = [f"{SNAPSHOTS}/{name}" for name in removable(sweep, names)]
        paths += [f"{TMP}/{name}" for name in leftovers(sweep, unfinished)]
        map_concurrently(self.files.delete, paths)

    def delete_all(self) -> None:
        """Delete the folder. On this machine it gets another name first, so that nothing sees half of it. Raises FilesError."""
        if not self.is_local:
            self.files.delete("")
            return
        folder = Path(self.folder)
        aside = folder.with_name(f".{folder.name}-dropped-{secrets.token_hex(4)}")
        try:
            folder.rename(aside)
            shutil.rmtree(aside)
        except OSError as error:
            raise translated(error, f"cannot delete {folder}: {error.strerror or error}") from error


def record_path(number: int) -> str:
    """Return where the record of a number is."""
    return path_of(LOG, number)


def path_of(folder: str, number: int) -> str:
    """Return where the file of a number is in a folder."""
    return f"{folder}/{number:0{DIGITS}}"
