"""A file that was unused for long and is reported as present stays present."""

from __future__ import annotations

import os
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from nimbus.files.stored_files import FileStore, NoSuchFile


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "files", 100, 100, lambda: 1_000_000.0)


def an_old_file(files: FileStore) -> str:
    name = sha256(b"old").hexdigest()
    incoming = files.receive(name)
    incoming.write(b"old")
    incoming.finish()
    os.utime(files.directory / name, (1.0, 1.0))
    return name


def test_a_requested_file_is_not_removed_at_that_moment(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = an_old_file(files)
    answers: list[bool] = []

    def ask() -> None:
        try:
            answers.append(files.path(name).exists())
        except NoSuchFile:
            answers.append(False)

    asker = threading.Thread(target=ask)
    unlink = Path.unlink

    def asked_for(path: Path, missing_ok: bool = False) -> None:
        asker.start()
        asker.join(0.3)  # it may only answer now if the file stays
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", asked_for)
    removed = files.collect((), 60)
    asker.join(30)
    assert (answers, removed) == ([False], [name])


def test_a_file_that_was_requested_before_stays(files: FileStore) -> None:
    name = an_old_file(files)
    assert files.path(name).exists()
    assert files.collect((), 60) == []
    assert files.names() == {name}
