"""Lines from any chunks, and the order and the origins of renamed files: the core of FileSpout, without files."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from squall_io.files.tails import (
    FileId,
    FileState,
    FileTail,
    KnownFile,
    files_after,
    follow_names,
    is_generation,
)
from squall_io.lines.cutting import Line, LineCutter, cut

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"\n\n", b"\xff"]), max_size=30).map(
    b"".join
)


def state(path: str, inode: int, size: int = 10, modified: int = 0, is_link: bool = False) -> FileState:
    return FileState(path, FileId(1, inode), size, modified, is_link)


def origins(known: dict[FileId, KnownFile]) -> dict[int, str]:
    return {file.inode: each.origin for file, each in known.items()}


@given(TEXTS, st.lists(st.integers(1, 60), max_size=12))
def test_chunks_at_any_boundary_have_the_lines_of_the_whole(text: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted({place for place in cuts if place < len(text)}), len(text)]
    tail = FileTail("/a", state("/a", 1))
    got: list[Line] = []
    for start, end in pairwise(edges):
        assert tail.read_to == start
        got += tail.feed(text[start:end])
    assert got == [line for line in cut([text], 0) if text[: line[1]].endswith(b"\n")]
    last = tail.end()
    assert [*got, *([last] if last else [])] == list(cut([text], 0))
    assert tail.end() is None


@given(TEXTS)
def test_from_the_position_after_any_line_the_rest_follows(text: bytes) -> None:
    lines = list(cut([text], 0))
    for number, (_, after, _) in enumerate(lines, 1):
        cutter = LineCutter(after)
        rest = list(cutter.feed(text[after:]))
        last = cutter.end()
        assert [*rest, *([last] if last else [])] == lines[number:]


def test_a_renamed_file_keeps_the_path_under_which_it_was_found() -> None:
    known = follow_names({}, [state("/a", 1)], ("/a",))
    known = follow_names(known, [state("/a", 2), state("/old", 1)], ("/a", "/old"))
    assert origins(known) == {1: "/a", 2: "/a"}
    known = follow_names(known, [state("/a", 2), state("/older", 1, 12)], ("/a", "/older"))
    assert origins(known) == {1: "/a", 2: "/a"}


def test_an_inode_that_is_used_again_under_another_name_is_another_file() -> None:
    known = follow_names({}, [state("/old", 1, 100)], ("/old",))
    assert origins(follow_names(known, [state("/new", 1, 5)], ("/new",))) == {1: "/new"}
    assert origins(follow_names(known, [state("/old", 1, 5)], ("/old",))) == {1: "/old"}, "it was truncated"


def test_a_rotated_name_belongs_to_its_path_if_that_matches_too() -> None:
    found = [
        state("/app.log", 1),
        state("/app.log.2", 2),
        state("/app.log-20261121", 3),
        state("/b.log.1", 4),
    ]
    known = follow_names({}, found, [each.path for each in found])
    assert origins(known) == {1: "/app.log", 2: "/app.log", 3: "/app.log", 4: "/b.log.1"}


def test_a_file_with_several_names_is_known_by_one_that_is_no_link() -> None:
    found = [state("/a", 1, is_link=True), state("/b", 1), state("/c", 1)]
    assert origins(follow_names({}, found, ("/a", "/b", "/c"))) == {1: "/b"}


def test_rotation_makes_names_by_numbers_and_dates() -> None:
    for name in ("/a.1", "/a.12", "/a-20261121", "/a.2026-11-21_03", "/a-20261121T030000"):
        assert is_generation("/a", name), name
    for name in ("/a", "/a.gz", "/a.1.gz", "/ab.1", "/a.b.1", "/a1", "/a.old"):
        assert not is_generation("/a", name), name


def test_generations_follow_in_the_order_of_their_last_writes() -> None:
    files = [
        state("/a", 1, modified=1),
        state("/a.1", 2, modified=9),
        state("/a.2", 3, modified=9),
        state("/a.9", 4, modified=5),
    ]
    for inode, after in ((4, [3, 2, 1]), (3, [2, 1]), (2, [1]), (1, [])):
        tail = FileTail("/a", state("/a", inode))
        assert [each.id.inode for each in files_after(tail, files)] == after
    moved = FileTail("/a", state("/a", 7, modified=6))
    assert [each.id.inode for each in files_after(moved, files)] == [3, 2, 1]
