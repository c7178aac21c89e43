"""Files with secrets: readable by their owner only, complete, and never shown."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from squall.security.private_files import (
    BadPrivateFile,
    make_private,
    make_private_folder,
    read_private,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_written_text_is_read_back_and_only_by_its_owner(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "deep" / "er" / "token"
    old = os.umask(umask)
    try:
        write_private(path, "s3cret")
    finally:
        os.umask(old)
    assert read_private(path, "the token") == "s3cret"
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_a_new_text_replaces_the_old_one_and_its_open_mode(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert (read_private(path, "the token"), mode(path)) == ("new", 0o600)


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    assert read_private(tmp_path / "nothing", "the token") is None


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_file_that_others_may_read_or_change_is_refused_with_the_command_that_helps(
    tmp_path: Path, bits: int
) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret")
    path.chmod(bits)
    with pytest.raises(BadPrivateFile) as refused:
        read_private(path, "the token")
    text = str(refused.value)
    assert f"chmod 600 {path}" in text and f"{bits:04o}" in text and "s3cret" not in text


def test_folders_fifos_empty_long_and_binary_files_are_refused_without_their_contents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name, data in {"empty": b" \n", "long": b"x" * 70_000, "binary": b"\xffs3cret"}.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    for name in ("fifo", "folder", "empty", "long", "binary"):
        with pytest.raises(BadPrivateFile) as refused:
            read_private(tmp_path / name, "the token")
        assert name in str(refused.value) and "s3cret" not in str(refused.value)


def test_of_many_makers_at_once_one_wins_and_no_other_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "key"
    won: list[int] = []
    gate = threading.Barrier(8)

    def make(number: int) -> None:
        gate.wait()
        if make_private(path, f"text {number}"):
            won.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read_private(path, "the key") == f"text {won[0]}"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b")
    assert (mode(tmp_path), mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o755, 0o700, 0o700)
