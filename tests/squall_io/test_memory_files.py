"""The store in memory keeps the contract of real stores, so that proofs over it apply to them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import pytest

from squall.stores.files import Files
from tests.files_contract import FilesContract
from tests.squall_io.memory_files import Manners, MemoryFiles, MemoryStore, Step

T = TypeVar("T")


class TestMemoryFiles(FilesContract):
    """The contract of all stores, where a rename is one step and a folder is deleted at once, as on HDFS."""

    manners = Manners()

    @pytest.fixture
    def files(self) -> Files:
        lock = Lock()

        def one_by_one(step: Step, effect: Callable[[], T]) -> T:
            with lock:
                return effect()

        return MemoryFiles(MemoryStore(), gate=one_by_one, manners=self.manners)

    def now(self, files: Files) -> float:
        assert isinstance(files, MemoryFiles)
        return files.store.clock


class TestMemoryFilesLikeLocalOnes(TestMemoryFiles):
    """The same, where a move is a link and an unlink, and a folder is deleted file by file."""

    manners = Manners(rename_by_link=True, delete_by_piece=True)
