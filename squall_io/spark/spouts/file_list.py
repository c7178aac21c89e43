"""The files that a reader has found, in one order for all of its tasks.

```
POSITIONS/files/<number>.json      files that one of the tasks has found; numbered without gaps, each put once
```
A task that finds files which are not in the list takes in what others have written down meanwhile, and puts those that are
left under the next number. Of two that try one wins, and the other takes in what it has written. So the list grows at its end
alone, and a place in it means the same to every task, for ever, though none has talked to another.
Each hundredth record has the whole list, so that a task that starts has few to read.
Must not know: which files are looked for, how they are cut, spouts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from squall_io.spark.manifest.envelopes import UnreadableRecord, seal, unseal
from squall_io.spark.manifest.files import FileMissing, Files
from squall_io.spark.manifest.layout import number_of

FOUND: Final = "files"
KIND: Final = "reader's files"
#: A record whose number is a multiple of this has the whole list.
WHOLE: Final = 100


class FoundFile(NamedTuple):
    """A file as it was when it was found, and into what pieces it is cut."""

    path: str
    size: int
    split_bytes: int
    modified: float = 0.0
    """Seconds since 1970, by the file system's clock."""


class FileList:
    """The list, as far as one task has read it."""

    def __init__(self, kept: Files) -> None:
        self._kept = kept
        self.files: list[FoundFile] = []
        #: The files in the list, by their paths.
        self.found: dict[str, FoundFile] = {}
        #: The number of the last record that was taken in.
        self.records = 0

    def read(self, last: int | None = None) -> None:
        """Take in what was written down since: all of it, or up to a record. `UnreadableRecord`."""
        if not self.records:
            newest = self._newest() if last is None else last
            if newest >= WHOLE:
                self._take(newest - newest % WHOLE)
        while last is None or self.records < last:
            try:
                self._take(self.records + 1)
            except FileMissing:
                if last is not None:
                    raise
                return

    def add(self, found: Iterable[FoundFile]) -> None:
        """Take in what was written down since, and write down those that are not in the list."""
        files = list(found)
        while True:
            self.read()
            new = [file for file in files if file.path not in self.found]
            if not new:
                return
            number = self.records + 1
            before = 0 if number % WHOLE == 0 else len(self.files)
            fields = {"before": before, "files": [*self.files[before:], *new]}
            self._kept.put_if_absent(_path(number), seal(KIND, fields))  # whoever wins: read next

    def _newest(self) -> int:
        return max((number_of(status.name) or 0 for status in self._kept.list(FOUND)), default=0)

    def _take(self, number: int) -> None:
        """Take in a record that follows the last one, or has the whole list."""
        path = f"{self._kept.root}/{_path(number)}"
        fields = unseal(KIND, self._kept.read(_path(number)), path)
        try:
            files = [
                FoundFile(str(name), int(size), int(pieces), float(modified))
                for name, size, pieces, modified in fields["files"]
            ]
            known = len(self.files) - int(fields["before"])
            if not 0 <= known <= len(files):
                raise ValueError(f"it begins at file {fields['before']}, and {len(self.files)} are known")
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecord(path, f"is no record of a reader's files: {error!r}") from None
        self.files += files[known:]
        self.found.update((file.path, file) for file in files[known:])
        self.records = number


def _path(number: int) -> str:
    return f"{FOUND}/{number}.json"
