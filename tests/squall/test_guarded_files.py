"""Files that user code may have replaced are read within limits: nothing blocks, no link is followed, faults are one error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

from squall import worker_files
from squall.guarded_files import (
    DamagedFile,
    is_file,
    open_to_append,
    open_to_overwrite,
    read_guarded,
    size_of,
)
from squall.worker_files import MOST_BYTES, BadFile

#: What user code may put in the place of a file.
KINDS = ("pipe", "link", "link to a device", "folder", "socket", "endless")


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.with_name("target").write_bytes(b"{}")
        path.symlink_to(path.with_name("target"))
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        os.mknod(path, 0o140600)
    else:
        with path.open("wb") as file:
            file.truncate(10**12)  # without a block on the disk


@pytest.mark.parametrize("kind", KINDS)
def test_anything_but_a_small_regular_file_is_damaged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "end.json"
    make(kind, path)
    with pytest.raises(DamagedFile, match=r"end\.json cannot be (read|used)"):
        read_guarded(path, 1000)
    if kind != "endless":
        assert (is_file(path), size_of(path)) == (False, 0)
        with pytest.raises((OSError, DamagedFile)):
            open_to_append(path, 0o600)
        with pytest.raises((OSError, DamagedFile)):
            open_to_overwrite(path)


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_guarded(path, 3) is None
    path.write_bytes(b"abc")
    assert read_guarded(path, 3) == b"abc"
    assert (is_file(path), size_of(path)) == (True, 3)
    with pytest.raises(DamagedFile, match="longer than 2 bytes"):
        read_guarded(path, 2)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_a_file_is_not_damaged_because_its_reader_has_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    wanted = DamagedFile if number == errno.EIO else OSError
    with pytest.raises(wanted, match=os.strerror(number)):
        read_guarded(tmp_path / "file", 10)


READERS: dict[str, Callable[[Path], object]] = {
    worker_files.ORDERS: worker_files.read_orders,
    worker_files.KEYS: worker_files.read_keys,
    worker_files.HEARTBEAT: worker_files.read_heartbeat,
    worker_files.END: worker_files.read_end,
    worker_files.LEASE: lambda directory: worker_files.read(directory, worker_files.LEASE),
}
HEARTBEAT = (
    b'{"format":1,"pid":1,"started":2,"incarnation":[1,0],"number":9,"orders":1,"asked":"run","version":1,'
    b'"finished":%s,"address":null,"executing":null}'
)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_file_of_a_worker_is_read_within_limits(tmp_path: Path, name: str, kind: str) -> None:
    make(kind, tmp_path / name)
    with pytest.raises(BadFile, match=name):
        READERS[name](tmp_path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 60_000,
        b'{"format":1,"pid":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"format":1,"x":' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b'"\\ud800"',
        b"",
    ],
)
def test_every_other_fault_is_damage_too(tmp_path: Path, name: str, content: bytes) -> None:
    content = content[: MOST_BYTES[name]]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile, match=name):
        if READERS[name](tmp_path) is not None:  # a lease may hold anything: its reader takes a number only
            raise BadFile(name)


@pytest.mark.parametrize("depth", [3, 100, 400, 900, 990])
def test_values_that_are_too_deep_for_a_check_are_damage(tmp_path: Path, depth: int) -> None:
    (tmp_path / worker_files.HEARTBEAT).write_bytes(HEARTBEAT % (b"[" * depth + b"]" * depth))
    with pytest.raises(BadFile):
        worker_files.read_heartbeat(tmp_path)
    (tmp_path / worker_files.HEARTBEAT).write_bytes(HEARTBEAT % b"[]")
    assert worker_files.read_heartbeat(tmp_path) is not None


def test_the_name_of_a_file_that_is_written_cannot_be_blocked(tmp_path: Path) -> None:
    """Its temporary name can be guessed: it contains the pid and the thread of the writer."""
    worker_files.write_bytes(tmp_path, "lease.json", b"1")
    beside = tmp_path / f".{os.getpid()}.{get_ident()}.new"
    for kind in ("pipe", "link"):
        make(kind, beside)
        worker_files.write_bytes(tmp_path, "lease.json", kind.encode())
        assert (tmp_path / "lease.json").read_bytes() == kind.encode()
        assert not (tmp_path / "lease.json").is_symlink()
