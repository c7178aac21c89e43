"""The contract of `Files` as tests: a store's own test file inherits `FilesContract` and provides `files` and `others`."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

import pytest

from squall.stores.files import AbsentFile, Files, FilesRefused, FilesUnavailable
from squall.stores.paths import TMP

T = TypeVar("T")

#: Names that Spark makes of partition values, and others that a store may get wrong.
NAMES = [
    "word=a%3Ab",
    "k=%2F%25",
    "k=1 2",
    "a+b",
    "x&y=z",
    "q;r,s",
    "größe=ü",
    "名=値",
    "e=😀",
    "~t",
    "at@(1)",
    "it's",
    "k=$HOME",
    "squall-t~2e-1.sink.0.1.2-00000.snappy.parquet",
]


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that begin at the same time, each in a thread of its own."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


class FilesContract:
    """The promises of `Files`. `files` are those of an empty table; `other`, the same opened again."""

    #: The folders that a store makes in the table for itself.
    own: Sequence[str] = ("_squall",)
    #: Whether a folder stays when its last file is deleted.
    keeps_empty_folders = True

    @pytest.fixture
    def files(self) -> Files:
        raise NotImplementedError

    @pytest.fixture
    def other(self, files: Files) -> Files:
        return files

    def now(self, files: Files) -> float:
        """The time by the store's clock."""
        return time.time()

    def test_nothing_exists_where_nothing_was_put(self, files: Files) -> None:
        assert files.list("") == files.list("a/b") == files.walk("") == files.walk("a") == []
        assert not files.exists("a") and not files.exists("a/b")
        files.delete("a/b")
        for call in (files.read, files.digest, lambda path: files.move_if_absent(path, "a/c")):
            with pytest.raises(AbsentFile, match=f"{files.root}/a/b"):
                call("a/b")

    def test_a_file_is_put_once_with_its_folders(self, files: Files, other: Files) -> None:
        assert files.put_if_absent("a/b/c.json", b"one")
        assert not other.put_if_absent("a/b/c.json", b"two")
        assert not files.put_if_absent("a/b/c.json", b"one")
        assert files.read("a/b/c.json") == other.read("a/b/c.json") == b"one"
        assert files.exists("a/b") and files.exists("a/b/c.json")
        assert files.list(TMP) == []

    def test_of_several_puts_one_wins(self, files: Files, other: Files) -> None:
        for round_ in range(5):
            path = f"claims/{round_}.json"
            puts = [
                partial(store.put_if_absent, path, b"%d" % n) for n, store in enumerate([files, other] * 3)
            ]
            won = [n for n, result in enumerate(at_once(puts)) if result]
            assert len(won) == 1
            assert files.read(path) == b"%d" % won[0]
        assert files.list(TMP) == []

    def test_a_file_moves_unless_the_name_is_taken(self, files: Files, other: Files) -> None:
        files.put_if_absent("staging/one", b"one")
        files.put_if_absent("staging/two", b"two")
        assert files.move_if_absent("staging/one", "day=1/file")
        assert not files.exists("staging/one")
        assert not files.move_if_absent("staging/two", "day=1/file")
        assert (other.read("day=1/file"), other.read("staging/two")) == (b"one", b"two")

    def test_of_several_moves_to_one_name_one_wins_and_the_others_stay(
        self, files: Files, other: Files
    ) -> None:
        for n in range(6):
            files.put_if_absent(f"staging/{n}", b"%d" % n)
        moves = [
            partial(store.move_if_absent, f"staging/{n}", "place/file")
            for n, store in enumerate([files, other] * 3)
        ]
        won = [n for n, result in enumerate(at_once(moves)) if result]
        assert len(won) == 1
        assert files.read("place/file") == b"%d" % won[0]
        left = [status.name for status in files.list("staging")]
        assert left == [str(n) for n in range(6) if n != won[0]]

    def test_a_moved_file_has_no_source_any_more(self, files: Files) -> None:
        files.put_if_absent("staging/one", b"one")
        files.move_if_absent("staging/one", "place/one")
        with pytest.raises(AbsentFile):
            files.move_if_absent("staging/one", "place/one")
        assert files.read("place/one") == b"one"

    def test_a_file_is_replaced_as_a_whole(self, files: Files, other: Files) -> None:
        contents = [bytes([n]) * 50_000 for n in range(8)]
        files.replace("positions/p.json", contents[0])

        def write() -> set[bytes]:
            for content in contents[1:]:
                files.replace("positions/p.json", content)
            return set()

        def read() -> set[bytes]:
            return {read_once() for _ in range(20)}

        def read_once() -> bytes:
            for _ in range(20):
                with suppress(FilesUnavailable):  # Hadoop's client has seen the blocks of two files
                    return other.read("positions/p.json")
            return other.read("positions/p.json")

        _, seen = at_once([write, read])
        assert seen <= set(contents)
        assert files.read("positions/p.json") == contents[-1]
        assert files.list(TMP) == []

    def test_a_file_exists_with_its_complete_content_or_not_at_all(self, files: Files, other: Files) -> None:
        content = b"x" * 2_000_000

        def look() -> set[int]:
            found = set()
            for _ in range(20):
                try:
                    found.add(len(other.read("a/big")))
                except AbsentFile:
                    found.add(-1)
                found |= {status.size for status in other.list("a")}
            return found

        _, sizes = at_once([lambda: {int(files.put_if_absent("a/big", content))}, look])
        assert sizes <= {-1, len(content)}
        assert other.read("a/big") == content

    def test_any_part_of_a_file_can_be_read(self, files: Files) -> None:
        content = bytes(range(256)) * 10_000  # more than one slice
        files.put_if_absent("f", content)
        assert files.read("f") == content
        assert files.read("f", 1_500_000) == content[1_500_000:]
        for offset, length in ((0, 10), (7, 0), (1_048_570, 20), (len(content) - 3, 100), (5, 2_000_000)):
            assert files.read("f", offset, length) == content[offset : offset + length]
        assert files.read("f", len(content)) == files.read("f", len(content) + 9, 5) == b""

    def test_an_empty_file_is_a_file(self, files: Files) -> None:
        assert files.put_if_absent("empty", b"")
        assert (files.read("empty"), files.exists("empty")) == (b"", True)
        assert [status.name for status in files.list("")] == [*self.own, "empty"]
        assert not files.put_if_absent("empty", b"not")
        assert files.digest("empty") == f"sha256:{hashlib.sha256().hexdigest()}"
        assert files.read("empty", 3, 4) == b""

    def test_a_hash_is_that_of_the_bytes(self, files: Files) -> None:
        content = bytes(range(251)) * 13_000
        files.put_if_absent("f", content)
        assert files.digest("f") == f"sha256:{hashlib.sha256(content).hexdigest()}"

    def test_a_folder_is_listed_by_name_and_walked_by_path(self, files: Files, other: Files) -> None:
        for path in ("t/b/2", "t/a", "t/b/1", "t/c/d/e", "u/x"):
            files.put_if_absent(path, path.encode())
        assert [(s.path, s.name, s.size, s.is_folder) for s in other.list("t")] == [
            ("t/a", "a", 3, False),
            ("t/b", "b", 0, True),
            ("t/c", "c", 0, True),
        ]
        assert [s.path for s in other.walk("t")] == [
            "t/a",
            "t/b",
            "t/b/1",
            "t/b/2",
            "t/c",
            "t/c/d",
            "t/c/d/e",
        ]
        assert [s.path for s in other.list("")] == [*self.own, "t", "u"]

    def test_a_file_has_its_time_of_writing(self, files: Files) -> None:
        files.put_if_absent("a", b"")
        assert abs(files.list("")[-1].modified - self.now(files)) < 3_600

    def test_names_are_used_literally(self, files: Files) -> None:
        for name in NAMES:
            files.put_if_absent(f"staging/{name}", name.encode())
            assert files.move_if_absent(f"staging/{name}", f"{name}/{name}")
            assert files.read(f"{name}/{name}") == name.encode()
            assert [s.path for s in files.list(name)] == [f"{name}/{name}"]
            assert files.digest(f"{name}/{name}") == f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        assert {s.name for s in files.list("")} == {*NAMES, *self.own, "staging"}
        for name in NAMES:
            files.delete(name)
        assert {s.name for s in files.list("")} == {*self.own, "staging"}

    def test_a_folder_is_deleted_with_its_content_and_nothing_else(self, files: Files) -> None:
        for path in ("s/a/1", "s/a/b/2", "s/ab/3"):
            files.put_if_absent(path, b"")
        files.delete("s/a")
        files.delete("s/a")
        assert [s.path for s in files.walk("s")] == ["s/ab", "s/ab/3"]
        files.delete("s/ab/3")
        assert [s.path for s in files.walk("s")] == (["s/ab"] if self.keeps_empty_folders else [])

    def test_a_folder_that_a_file_was_moved_from_stays(self, files: Files, other: Files) -> None:
        files.put_if_absent("s/a/1", b"1")
        assert files.move_if_absent("s/a/1", "t/1")
        assert [(s.path, s.is_folder) for s in other.walk("s")] == [("s/a", True)]
        assert other.exists("s/a") and other.list("s/a") == []
        other.delete("s")
        assert not files.exists("s")

    def test_whatever_has_bytes_is_written(self, files: Files) -> None:
        written: tuple[Any, ...] = b"one", bytearray(b"two"), memoryview(b"a three")[2:]
        for number, data in enumerate(written):
            files.replace(f"a/{number}", data)
            assert files.put_if_absent(f"b/{number}", data)
        read = [files.read(f"{folder}/{number}") for folder in "ab" for number in range(3)]
        assert read == [b"one", b"two", b"three"] * 2

    def test_an_open_file_is_uploaded_from_its_beginning(self, files: Files, other: Files) -> None:
        data = bytes(range(256)) * 5 * 4096
        with tempfile.TemporaryFile() as content:
            content.write(data)
            files.upload("a/large", content)
            assert other.read("a/large") == data
            content.truncate(3)
            files.upload("a/large", content)
            assert other.read("a/large") == data[:3]
            content.truncate(0)
            files.upload("a/empty", content)
        assert other.read("a/empty") == b"" and files.list(TMP) == []

    def test_a_folder_is_deleted_if_nothing_is_in_it(self, files: Files) -> None:
        for path in ("s/a/1", "s/b/2", "s/c/d/3"):
            files.put_if_absent(path, b"")
        files.delete("s/a/1")
        files.delete("s/c/d/3")
        for folder in ("s/a", "s/b", "s/c/d", "s/absent", "absent/s", "s/b/2"):
            files.delete_if_empty(folder)
        assert [files.exists(f"s/{name}") for name in ("a", "b", "b/2", "c/d")] == [False, True, True, False]

    def test_a_file_is_moved_into_a_folder_that_others_delete_while_it_is_empty(
        self, files: Files, other: Files
    ) -> None:
        moved = 30
        for n in range(moved):
            files.put_if_absent(f"from/{n}", b"x")

        def move() -> None:
            for n in range(moved):
                assert files.move_if_absent(f"from/{n}", "s/day=1/file")
                files.delete("s/day=1/file")

        def remove() -> None:
            for _ in range(moved):
                other.list("from")
                other.delete_if_empty("s/day=1")

        at_once([move, remove])
        assert not files.exists("s/day=1/file")

    def test_several_delete_the_same_folder_at_once(self, files: Files, other: Files) -> None:
        for n in range(30):
            files.put_if_absent(f"s/{n % 5}/{n}", b"")
        at_once([partial(store.delete, "s") for store in [files, other] * 2])
        assert not files.exists("s")

    def test_a_file_is_no_folder(self, files: Files) -> None:
        files.put_if_absent("a/file", b"x")
        for call in (
            lambda: files.list("a/file"),
            lambda: files.put_if_absent("a/file/b", b""),
            lambda: files.move_if_absent("a/file", "a/file/b"),
        ):
            with pytest.raises(FilesRefused, match=f"{files.root}/"):
                call()
        assert files.read("a/file") == b"x"
