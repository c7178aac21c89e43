"""The meaning of a path given as a source, including that it is empty, is known before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_io.spark.reading.committed import Selection
from squall_io.spark.reading.moments import Span
from squall_io.spark.replay.inputs import FileSource, UnreadableSource, source_at
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask


def meant(path: Path, span: Span | None = None, *fields: str) -> Selection | FileSource:
    with open_files(str(path)) as files:
        return source_at(files, str(path), span or Span(), fields or ("line",))


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("a.csv", "csv"), ("a.CSV.gz", "csv"), ("a.jsonl", "json"), ("a.json.bz2", "json"), ("a.parquet", "parquet"),
        ("a.orc", "orc"), ("a.log", "text"), ("a.gz", "text"), ("csv", "text"),
    ],
)  # fmt: skip
def test_files_are_read_by_their_suffixes(tmp_path: Path, name: str, file_format: str) -> None:
    (tmp_path / name).write_text("x\n")
    found = meant(tmp_path / name)
    assert isinstance(found, FileSource) and found.file_format == file_format
    assert found.read.snapshot != meant(tmp_path / name).read.snapshot, (
        "whether it is the same file is unknown"
    )


def test_a_folder_without_a_table_counts_as_files_too(tmp_path: Path) -> None:
    assert isinstance(meant(tmp_path), FileSource)


def test_a_table_is_read_by_its_manifest(tmp_path: Path) -> None:
    with open_files(str(tmp_path / "table")) as files:
        SinkTask(files, "word string").put({"part.parquet": b"rows"}, committed=1.0)
    found = meant(tmp_path / "table")
    assert isinstance(found, Selection) and found.read.rows == 1
    assert found.read.snapshot == meant(tmp_path / "table").read.snapshot


def test_an_empty_path_is_reported_without_starting_spark(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match=r"there is nothing at /.*/lines\.txt: give a table"):
        meant(tmp_path / "lines.txt")


def test_a_span_of_commits_is_for_tables_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n")
    with pytest.raises(
        UnreadableSource, match=r"a\.csv is not a Squall table.*leave out --since and --until"
    ):
        meant(tmp_path / "a.csv", Span.of(1.0, None))


def test_lines_of_text_are_the_only_field_of_their_stream(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    with pytest.raises(UnreadableSource, match=r"lines of text, and the stream has 2 fields \(word, count\)"):
        meant(tmp_path / "a.log", None, "word", "count")
