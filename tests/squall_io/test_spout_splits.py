"""Which files a path means, and that all tasks split them alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.stores.files import AbsentFile
from squall.stores.paths import InvalidPath
from squall_io.lines.errors import UnreadableFile
from squall_io.spark.spouts.discovery import (
    FoundFile,
    PathPattern,
    Split,
    covers,
    find_files,
    require_files,
    source_of,
    splits_of,
)
from squall_io.spark.stores import open_files


@pytest.mark.parametrize(
    ("path", "folder", "parts"),
    [
        ("/logs/today.txt", "/logs", ("today.txt",)),
        ("/logs", "/logs", ()),
        ("hdfs://host:9000/logs/a/b", "hdfs://host:9000/logs/a", ("b",)),
        ("hdfs://host:9000/logs/2026-*/x/*.log", "hdfs://host:9000/logs", ("2026-*", "x", "*.log")),
        ("file:///logs//./a?/", "file:///logs", ("a?",)),
        ("viewfs:/logs/[ab]", "viewfs:///logs", ("[ab]",)),
    ],
)
def test_a_path_is_a_folder_to_open_and_a_pattern_in_it(
    path: str, folder: str, parts: tuple[str, ...]
) -> None:
    assert source_of(path) == PathPattern(folder, parts)


@pytest.mark.parametrize(
    "path", ["", "logs/today.txt", "/", "hdfs://host:9000", "/*.log", "/a/../b", "/a{b,c}"]
)
def test_an_impossible_path_is_refused_before_anything_runs(path: str) -> None:
    with pytest.raises(InvalidPath):
        source_of(path)


def found(path: str) -> list[str]:
    source = source_of(path)
    with open_files(source.folder) as files:
        present = find_files(files, source)
        require_files(files, source, present)
        return [status.path for status in present]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in (
        "day1/a.log", "day1/b.log", "day1/deep/c.log", "day2/a.log", "day2/_SUCCESS", "day2/.a.crc",
        "_temporary/0/x.log", "day10/a.txt", "day2/b.log._COPYING_",
    ):  # fmt: skip
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return tmp_path / "logs"


def test_a_folder_means_every_file_that_is_not_hidden(logs: Path) -> None:
    below = ["day1/a.log", "day1/b.log", "day1/deep/c.log", "day10/a.txt", "day2/a.log"]
    assert found(str(logs)) == [f"logs/{name}" for name in below]


def test_a_file_is_found_by_its_own_name_though_it_is_hidden(logs: Path) -> None:
    assert found(f"{logs}/day1/b.log") == ["b.log"]
    assert found(f"{logs}/day2/_SUCCESS") == ["_SUCCESS"]


def test_a_pattern_means_the_matching_files_and_folders(logs: Path) -> None:
    assert found(f"{logs}/day?/*.log") == ["day1/a.log", "day1/b.log", "day2/a.log"]
    assert found(f"{logs}/day1/*") == ["a.log", "b.log", "deep/c.log"]
    assert found(f"{logs}/*/deep") == ["day1/deep/c.log"]
    assert found(f"{logs}/day[!1]*") == ["day2/a.log"]


def test_an_empty_path_is_named(logs: Path) -> None:
    for path in (f"{logs}/day3", f"{logs}/day1/*.gz"):
        with pytest.raises(AbsentFile, match="nothing to read") as caught:
            found(path)
        assert path in str(caught.value)


def test_a_file_with_another_compression_is_refused_by_name(logs: Path) -> None:
    (logs / "day1" / "d.log.zst").write_bytes(b"x")
    (logs / "day2" / "d.snappy").write_bytes(b"x")
    with pytest.raises(UnreadableFile, match=r"day1/d\.log\.zst and 1 more: .* \.gz, \.bz2"):
        found(str(logs))
    assert found(f"{logs}/day2/*.log") == ["a.log"]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b.gz", "c.bz2", "d"]), st.integers(0, 50)), max_size=5),
    st.integers(1, 60),
)
def test_splits_cover_each_file_once(sizes: list[tuple[str, int]], split_bytes: int) -> None:
    files = [FoundFile(f"{number}/{name}", size, split_bytes) for number, (name, size) in enumerate(sizes)]
    splits = list(splits_of(files))
    assert [split.path for split in splits] == sorted(split.path for split in splits)
    for path, size, *_ in files:
        own = [split for split in splits if split.path == path]
        assert all(split.size == size for split in own)
        if path.endswith((".gz", ".bz2")):
            assert own == [Split(path, 0, size, size)] * bool(size)
        else:
            edges = [(split.start, split.end) for split in own]
            assert [edge for pair in edges for edge in range(*pair)] == list(range(size))
            assert all(0 < end - start <= split_bytes for start, end in edges)


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("/logs/day1/positions", True), ("/logs/day1", True), ("/logs/day2/positions", False), ("/logs/_positions", False),
        ("/logs/day1/.positions", False), ("/logs-positions/day1", False), ("/elsewhere", False),
        ("hdfs://host:1/logs/day1", False),
    ],
)  # fmt: skip
def test_whether_a_folder_is_inside_the_input_follows_from_its_path(path: str, covered: bool) -> None:
    assert covers(source_of("/logs/day1"), path) == covers(source_of("/logs/*1"), path) == covered


def test_a_file_behind_a_symbolic_link_is_read_in_its_own_size(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0123456789\n" * 10)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "logs" / "b").symlink_to(tmp_path / "nothing")
    source = source_of(str(tmp_path / "logs"))
    with open_files(source.folder, follow_links=True) as files:
        assert [(status.path, status.size) for status in find_files(files, source)] == [("logs/a", 110)]
