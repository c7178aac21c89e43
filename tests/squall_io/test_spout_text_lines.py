"""Lines from files: each is in one split, whatever the cuts, the slices and the place where reading continues."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.lines import cutting
from squall_io.lines.cutting import Damaged, Line, Read, ShortFile, lines_of_split, packed_lines

TEXTS = st.lists(
    st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"\n\n", b"\xff", b" ", b"0" * 9]), max_size=30
).map(b"".join)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slices of five bytes, so that lines span many; nine bytes are the longest line unless a test says otherwise."""
    monkeypatch.setattr(cutting, "SLICE", 5)
    yield


def reader(data: bytes) -> Read:
    return lambda offset, length: data[offset : offset + length]


def expected(data: bytes) -> list[Line]:
    """The lines of a file, by splitting it as a whole."""
    found: list[Line] = []
    place = 0
    for line in data.split(b"\n")[:-1]:
        found.append((place, place + len(line) + 1, line[:-1] if line.endswith(b"\r") else line))
        place += len(line) + 1
    if place < len(data):
        found.append((place, len(data), data[place:]))
    return found


@given(TEXTS, st.lists(st.integers(0, 120), max_size=6))
def test_however_a_file_is_cut_each_line_is_in_one_split(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    read = [
        line
        for start, end in pairwise(edges)
        for line in lines_of_split(reader(data), start, end, len(data), 0)
    ]
    assert read == expected(data)


@given(TEXTS, st.integers(0, 120), st.integers(0, 120))
def test_reading_continues_at_any_line_of_a_split(data: bytes, one: int, other: int) -> None:
    start, end = min(one, other, len(data)), min(max(one, other), len(data))
    lines = list(lines_of_split(reader(data), start, end, len(data), 0))
    for number, line in enumerate(lines):
        assert list(lines_of_split(reader(data), start, end, len(data), line[0])) == lines[number:]
        assert list(lines_of_split(reader(data), start, end, len(data), line[1])) == lines[number + 1 :]


@given(st.lists(TEXTS, min_size=1, max_size=3), st.integers(0, 60))
def test_a_compressed_file_has_the_lines_of_its_content(members: list[bytes], position: int) -> None:
    data = b"".join(members)
    for pack, ending in ((gzip.compress, ".gz"), (bz2.compress, ".bz2")):
        packed = b"".join(pack(member) for member in members)
        lines = list(packed_lines(reader(packed), ending, position))
        assert lines == [line for line in expected(data) if line[0] >= position]


@given(st.data())
def test_a_truncated_or_damaged_compressed_file_is_reported(data: st.DataObject) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50))
    for pack, ending in ((gzip.compress, ".gz"), (bz2.compress, ".bz2")):
        packed = pack(text)
        short = packed[: data.draw(st.integers(1, len(packed) - 1))]
        with pytest.raises(Damaged, match="truncated"):
            list(packed_lines(reader(short), ending, 0))
        with pytest.raises(Damaged, match="damaged"):
            list(packed_lines(reader(b"no " + packed), ending, 0))
        with pytest.raises(Damaged, match="damaged"):
            list(packed_lines(reader(packed + b"more"), ending, 0))


def test_padding_after_a_gzip_file_is_no_damage() -> None:
    assert list(packed_lines(reader(gzip.compress(b"a\n") + b"\0" * 12), ".gz", 0)) == [(0, 2, b"a")]


def test_a_line_that_is_too_long_is_reported_with_its_position_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cutting, "LONGEST", 9)
    data = b"ab\n" + b"x" * 10 + b"\n" + b"y" * 9 + b"\n" + b"z" * 30
    lines = list(lines_of_split(reader(data), 0, len(data), len(data), 0))
    assert lines == [(0, 3, b"ab"), (3, 14, None), (14, 24, b"y" * 9), (24, 54, None)]


def test_a_line_longer_than_its_split_is_not_read_to_its_end_by_the_splits_in_it() -> None:
    data = b"x" * 10_000 + b"\nlast"
    asked: list[int] = []

    def read(offset: int, length: int) -> bytes:
        asked.append(offset)
        return data[offset : offset + length]

    assert list(lines_of_split(read, 100, 200, len(data), 0)) == []
    assert max(asked) <= 200


def test_a_file_that_has_shrunk_is_reported() -> None:
    lines = lines_of_split(reader(b"ab\ncd\n"), 0, 9, 9, 0)
    assert next(lines) == (0, 3, b"ab")
    assert next(lines) == (3, 6, b"cd")
    with pytest.raises(ShortFile, match="ends after 6 bytes, and had 9"):
        next(lines)
