"""Log and snapshots of one topology in a folder of a store: of this machine, or of HDFS by WebHDFS.

    log/000000000001        the records of `worker.epochs.records`, each put once
    snapshots/<name>        `worker.epochs.snapshot_files`
    _squall/tmp/<name>.*    files that are being written (`squall.stores`), and what attempts without an answer have left there

Must not know: tasks, epochs that run, who makes the calls (`worker.loop.store_calls`).
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from squall.security.private_files import own_folder
from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FilesUnavailable
from squall.stores.local import translated
from squall.stores.opening import default_webhdfs, open_store
from squall.stores.paths import LOCAL, TMP, check_path, folder_of, scheme_of
from squall.stores.webhdfs import WebHdfsFiles
from worker.epochs.log import PutAnswer
from worker.epochs.records import CommitRecord, LogRecord, SnapshotFile, decode_record, encode_record
from worker.epochs.snapshot_files import (
    SnapshotData,
    SweepFiles,
    TaskSnapshot,
    leftovers,
    read_chain,
    removable,
)
from worker.routing.key_groups import GroupRange

LOG: Final = "log"
SNAPSHOTS: Final = "snapshots"
#: Digits of a record's name, so that the names sort by number.
DIGITS: Final = 12


class EpochFiles:
    """Log and snapshots of one topology, in a folder of its name below `topology.state.path`.

    The first call makes or checks the folder. Any call raises `SquallError` if others may have put anything into it: keys and
    rows in it are pickled.
    """

    def __init__(self, path: str, topology: str, webhdfs: str | None = None) -> None:
        """`webhdfs`: where the NameNode of an hdfs:// path serves WebHDFS; None: on the path's host, at the default port."""
        place = check_path(f"{path}/{topology}")
        self.is_local = scheme_of(place) == LOCAL
        #: For people: without the scheme if it is on this machine.
        self.folder = folder_of(place) if self.is_local else place
        self.webhdfs = webhdfs or default_webhdfs(place)
        #: What the present call does, or the last one did, for people.
        self.doing = ""
        #: When the last commit that was read had been written, in seconds since 1970, by the clock of the file system.
        self.commit_read: float | None = None

    @cached_property
    def files(self) -> Files:
        """The store, whose root is the folder."""
        if self.is_local:
            try:
                own_folder(Path(self.folder))
            except OSError as error:
                what = f"cannot keep the state of the topology in {self.folder}: {error.strerror or error}"
                raise translated(error, what) from error
            return open_store(self.folder)
        files = open_store(self.folder, webhdfs=self.webhdfs)
        assert isinstance(files, WebHdfsFiles)
        files.make_private()
        return files

    def put_record(self, number: int, record: LogRecord) -> PutAnswer:
        """Put a record if there is none of its number. Raises FilesUnavailable if that is not known."""
        self.doing = f"writing {self.folder}/{record_path(number)}"
        stored = self.files.put_if_absent(record_path(number), encode_record(record))
        return PutAnswer.STORED if stored else PutAnswer.TAKEN

    def records_after(self, number: int) -> list[LogRecord]:
        """Return the records after a number, up to the first that is not there. Raises BadLog, FilesError."""
        self.doing = f"reading the log in {self.folder}"
        if number > 0 and not self.is_local:  # few follow, and a listing has all of the log
            return self.next_records(number)
        there = {int(status.name): status for status in self.files.list(LOG) if status.name.isdecimal()}
        numbers = sorted(each for each in there if each > number)
        whole = [each for place, each in enumerate(numbers, number + 1) if each == place]
        found = map_concurrently(self.read_record, whole)
        for place, record in zip(whole, found):
            if isinstance(record, CommitRecord):
                self.commit_read = there[place].modified
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
        if not self.files.exists(record_path(rewind)):
            raise FilesUnavailable(
                f"{self.folder} on host {socket.gethostname()} has no {record_path(rewind)}, which another worker has written: "
                "topology.state.path has to be a folder that all hosts share, or topology.workers 1"
            )
        return self.read_snapshots(files, wanted)

    def read_snapshots(
        self, files: Mapping[str, SnapshotFile], wanted: GroupRange | None = None
    ) -> list[TaskSnapshot]:
        """Read the snapshots of a commit, with the files that they build upon; `wanted` as above. Raises BadSnapshot,
        FilesError."""
        labelled = wanted is not None
        return map_concurrently(
            lambda file: read_chain(file, self.read_bytes, wanted, labelled), files.values()
        )

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
    return f"{LOG}/{number:0{DIGITS}}"
