"""FileSpout and FileSink, for the matrix of faults: they have no server. Must not know: promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall_io.files import FileSink, FileSpout
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from topology_api import Bolt, Spout

_NO_SERVER = dict.fromkeys(("killed", "frozen", "restarted", "away at the start"), "there is no server")
_NO_LOGIN = {"wrong login": "files have no login"}


class FileSource(SourceWorld):
    """A folder whose files are followed."""

    name = "file_spout"
    connector = "squall_io.files.FileSpout"
    rewindable = True
    partitions = 3
    unreadable_words = "was left out"
    not_applicable = {
        **_NO_SERVER,
        **_NO_LOGIN,
        "missing": "a file that is not there yet is waited for, as new files are",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "in"
        self.folder.mkdir()

    def spout(self, **options: Any) -> Spout:
        return FileSpout(self.folder, **{"poll_interval": 0.2, "replay": SOON, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self._append("".join(f"{number}\n" for number in numbers).encode(), partition)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(values[0].rstrip("x"))

    def put_unreadable(self) -> None:
        self._append(b"\xff\xfe\n", 0)

    def put_large(self, number: int) -> str:
        self._append(b"%d%s\n" % (number, b"x" * 500_000), 0)
        return ""

    def _append(self, data: bytes, partition: int) -> None:
        with (self.folder / f"{partition}.log").open("ab") as file:
            file.write(data)


@pytest.fixture
def file_spout(tmp_path: Path) -> FileSource:
    return FileSource(tmp_path)


class FileTarget(SinkWorld):
    """A folder of lines."""

    name = "file_sink"
    connector = "squall_io.files.FileSink"
    once = True
    refused_words = "line"
    not_applicable = {
        **_NO_SERVER,
        **_NO_LOGIN,
        "missing": "the folder is made",
        "answer lost": "a rename by the system has no answer that could be lost",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "out"

    def sink(self, **options: Any) -> Bolt:
        return FileSink(self.folder, **{"fields": ["text"], **options})

    def written(self) -> list[int]:
        files = [path for path in self.folder.glob("*") if path.is_file()]
        return [int(line.split()[1]) for path in files for line in path.read_text().splitlines()]

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, f"row {number}\nand more"

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, f"row {number} {'x' * 5_000_000}"), True


@pytest.fixture
def file_sink(tmp_path: Path) -> FileTarget:
    return FileTarget(tmp_path)
