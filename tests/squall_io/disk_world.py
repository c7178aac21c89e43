"""A `World` whose table is on this machine's disk, with the real `LocalFiles`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from squall.stores.files import Files
from squall.stores.local import LocalFiles
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import Gate, straight


class DiskContents(Mapping[str, bytes]):
    """The present content of each file below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, path: str) -> bytes:
        try:
            return (self._folder / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            yield from (os.path.relpath(os.path.join(folder, name), self._folder) for name in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class DiskStore:
    """A folder of this machine, without `Files`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def files(self) -> DiskContents:
        """The content of each file."""
        return DiskContents(self.folder)

    @property
    def folders(self) -> set[str]:
        """The paths of all folders."""
        return {os.path.relpath(folder, self.folder) for folder, _, _ in os.walk(self.folder)} - {"."}

    def write(self, path: str, data: bytes) -> None:
        """Make a file with its folders, or replace it."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def remove(self, path: str) -> None:
        """Delete a file."""
        (self.folder / path).unlink()


class DiskWorld(World):
    """A table on this machine's disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(store=DiskStore(folder))

    def files(self, gate: Gate = straight) -> Files:
        """The store; only the machine interferes."""
        return LocalFiles(str(self.folder))
