"""A file gets into a folder that another process deletes again and again, as long as the file is there."""

from __future__ import annotations

from typing import BinaryIO

import pytest

from squall.stores.files import AbsentFile, FileStatus
from squall.stores.renaming import RenamingFiles


class Unsteady(RenamingFiles):
    """A store in which the folder of the target disappears before a number of renames."""

    def __init__(self, deletions: int, has_source: bool = True) -> None:
        super().__init__("memory://store")
        self.deletions, self.has_source = deletions, has_source
        self.made = self.renamed = 0

    def _rename(self, source: str, target: str, over: bool) -> None:
        if not self.has_source or self.renamed < self.deletions:
            self.renamed += 1
            raise AbsentFile("the folder, or the file")

    def _make_folder(self, path: str) -> None:
        assert path == "data/day=1"
        self.made += 1

    def exists(self, path: str) -> bool:
        return self.has_source

    def _write(self, path: str, content: bytes | BinaryIO) -> None:
        raise NotImplementedError

    def list(self, folder: str) -> list[FileStatus]:
        raise NotImplementedError

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        raise NotImplementedError

    def digest(self, path: str) -> str:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("deletions", [0, 1, 2, 10])
def test_the_folder_is_made_again(deletions: int) -> None:
    store = Unsteady(deletions)
    assert store.move_if_absent("staging/a", "data/day=1/a")
    assert store.made == deletions


def test_a_file_that_is_gone_is_reported_at_once() -> None:
    store = Unsteady(0, has_source=False)
    with pytest.raises(AbsentFile):
        store.move_if_absent("staging/a", "data/day=1/a")
    assert store.renamed == 2
