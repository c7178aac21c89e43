"""Folders of tables, made of frozen texts, and the current code's results for them.

Must not know: the earlier results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.frozen import current_tables
from tests.frozen.frozen_data import as_bytes
from tests.frozen.plain_values import plain
from tests.frozen.sealed_records import resealed

#: The part that the frozen checkpoint names.
PART: Final = "_squall/checkpoints/part-1-f5b165224a58b791.json.gz"


def fill(folder: Path, frozen: Mapping[str, Any]) -> None:
    """Make the files and the empty folders of a frozen folder."""
    for name in frozen["folders"]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in frozen["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(as_bytes(text))


def value_read(frozen: Mapping[str, Any], what: str) -> Any:
    """The results of reading a frozen table."""
    with TemporaryDirectory() as folder:
        fill(Path(folder), frozen)
        return plain(current_tables.READ_TABLE[what](current_tables.files_at(Path(folder))))


def reader_of(kind: str, part: bytes) -> Callable[[bytes], object]:
    """A reader of a record of a kind, whose hash is made to fit. `part`: of the checkpoint."""
    path, read = current_tables.READ_RECORD_OF[kind]

    def from_bytes(data: bytes) -> object:
        memory = "/dev/shm"
        with TemporaryDirectory(dir=memory if Path(memory).is_dir() else None) as folder:
            files = current_tables.files_at(Path(folder))
            files.put_if_absent(PART, part)
            files.replace(path, resealed(data))
            return read(files)

    return from_bytes
