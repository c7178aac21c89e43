"""The files that a reader has discovered, in one order for all of its tasks.

```
POSITIONS/files/<number>.json      files that one of the tasks discovered; numbered without gaps, each put once
```
A task that discovers files which are not in the list first reads what others have recorded meanwhile, and puts the rest
under the next number. Of two tasks that try, one wins, and the other reads the winner's record. So the list grows only at
its
end, and a place in it means the same to every task, for good, without any communication between them.
Every hundredth record has the whole list, so that a starting task has few to read.
Must not know: which files are searched for, how they are cut, spouts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.files import AbsentFile, Files
from squall_io.spark.manifest.layout import number_of

FOUND: Final = "files"
KIND: Final = "reader's files"
#: A record whose number is a multiple of this has the whole list.
WHOLE: Final = 100


class FoundFile(NamedTuple):
    """A file as it was when it was discovered, and the size of the pieces it is cut into."""

    path: str
    size: int
    split_bytes: int
    modified: float = 0.0
    """Seconds since 1970, by the file system's clock."""


class _Found(msgspec.Struct):
    """A record: the files from place `before` on."""

    before: int
    files: list[FoundFile]


class FileList:
    """The list, as far as one task has read it."""

    def __init__(self, kept: Files) -> None:
        self._kept = kept
        self.files: list[FoundFile] = []
        #: The files in the list, by their paths.
        self.found: dict[str, FoundFile] = {}
        #: The number of the last record that was read.
        self.records = 0

    def read(self, last: int | None = None) -> None:
        """Read the records that were added since: all of them, or up to record `last`. `UnreadableRecord`."""
        if not self.records:
            newest = self._newest() if last is None else last
            if newest >= WHOLE:
                self._take(newest - newest % WHOLE)
        while last is None or self.records < last:
            try:
                self._take(self.records + 1)
            except AbsentFile:
                if last is not None:
                    raise
                return

    def add(self, found: Iterable[FoundFile]) -> None:
        """Read what was recorded since, and record those files that are not in the list."""
        files = list(found)
        while True:
            self.read()
            new = [file for file in files if file.path not in self.found]
            if not new:
                return
            number = self.records + 1
            before = 0 if number % WHOLE == 0 else len(self.files)
            record = _Found(before, [*self.files[before:], *new])
            self._kept.put_if_absent(_path(number), seal(KIND, record))  # read the winner's next

    def _newest(self) -> int:
        return max((number_of(status.name) or 0 for status in self._kept.list(FOUND)), default=0)

    def _take(self, number: int) -> None:
        """Read a record that follows the last one, or has the whole list."""
        path = f"{self._kept.root}/{_path(number)}"
        record = decode(KIND, _Found, self._kept.read(_path(number)), path)
        known = len(self.files) - record.before
        if not 0 <= known <= len(record.files):
            why = f"it begins at file {record.before}, and {len(self.files)} are known"
            raise UnreadableRecord(path, f"is no record of a reader's files: {why}")
        self.files += record.files[known:]
        self.found.update((file.path, file) for file in record.files[known:])
        self.records = number


def _path(number: int) -> str:
    return f"{FOUND}/{number}.json"


build_type_info(_Found)
