"""A log is read in bounded pieces that follow each other without a gap, whatever happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.log_files import MOST, read_piece

LINES = "".join(f"line {number}\n" for number in range(100))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "worker.log"
    path.write_text(LINES)
    return path


def whole(path: Path, limit: int) -> str:
    """All of a log, piece by piece."""
    offset, text = 0, ""
    for _ in range(100_000):
        piece = read_piece(path, offset, limit)
        assert piece is not None and piece.offset == offset
        if not piece.text:
            break
        text += piece.text
        offset = piece.next_offset
    return text


def test_pieces_follow_each_other(log: Path) -> None:
    assert whole(log, 7) == LINES
    first = read_piece(log, 0, 10)
    assert first is not None
    assert (first.offset, first.next_offset, first.size) == (0, 10, len(LINES))


def test_the_end_begins_with_a_complete_line(log: Path) -> None:
    tail = read_piece(log, -20, 1000)
    assert tail is not None
    assert tail.text == "line 98\nline 99\n"
    assert (tail.next_offset, tail.size) == (len(LINES), len(LINES))
    everything = read_piece(log, -10_000_000, MOST)
    assert everything is not None and everything.text == LINES


def test_at_the_end_nothing_is_read_until_more_is_written(log: Path) -> None:
    end = read_piece(log, len(LINES))
    assert end is not None and (end.text, end.next_offset) == ("", len(LINES))
    with log.open("a") as file:
        file.write("more\n")
    more = read_piece(log, end.next_offset)
    assert more is not None and more.text == "more\n"


def test_a_follower_misses_nothing_of_a_rotated_log(log: Path) -> None:
    offset = len(LINES)
    with log.open("a") as file:
        file.write("the last before\n")
    log.rename(log.with_name("worker.log.1"))
    log.write_text("the first after\n")
    old = read_piece(log, offset)
    assert old is not None
    assert (old.offset, old.text, old.next_offset) == (offset, "the last before\n", 0)
    assert old.size > offset, "the file was not truncated"
    new = read_piece(log, old.next_offset)
    assert new is not None and new.text == "the first after\n"


def test_a_truncated_log_is_read_from_its_beginning(log: Path) -> None:
    log.write_text("short\n")
    found = read_piece(log, 500)
    assert found is not None and (found.offset, found.text) == (0, "short\n")


def test_no_more_than_the_limit_is_ever_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * (MOST + 10))
    found = read_piece(path, 0, 10**15)
    assert found is not None and len(found.text) == MOST
    assert read_piece(path, 0, -5) is not None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "none"])
def test_only_regular_files_are_logs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "worker.log"
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    assert read_piece(path, 0) is None


@given(st.text(alphabet="aä漢🌩\n", max_size=60), st.integers(4, 9))
def test_no_piece_ends_within_a_character(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "worker.log"
    path.write_text(text, encoding="utf-8")
    assert whole(path, limit) == text
    for start in range(1, len(text.encode()) + 1):
        piece = read_piece(path, -start, 1000)
        assert piece is not None and text.endswith(piece.text)


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"ok \xff\xfe \xe6")
    found = read_piece(path, 0)
    assert found is not None and found.text == "ok \\xff\\xfe \\xe6"
