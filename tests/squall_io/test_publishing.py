"""Several results are written before any is published, and each is published once, even if others work on the same runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from squall_io.spark.manifest import layout
from squall_io.spark.manifest.tables import RESULTS, TableRecord
from squall_io.spark.results import publishing
from squall_io.spark.results.publishing import OutputTable, Result, publish_frames
from squall_io.spark.results.versions import Attempt, Published, Run, newest_version
from tests.squall_io.versions_world import Disk


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame is a text, written as the only file; `cannot` has no schema."""

    def schema_of(frame: Any, table: TableRecord) -> Any:
        if frame == "cannot":
            raise publishing.CannotPublish("it has no columns")
        return "n int"

    def write(frame: Any, schema: Any, output: OutputTable, attempt: Attempt) -> int:
        output.files.replace(f"{attempt.rows}/part-0.parquet", str(frame).encode())
        return 1

    monkeypatch.setattr(publishing, "schema_of", schema_of)
    monkeypatch.setattr(publishing, "_write", write)


def result(disk: Disk, make: Any) -> Result:
    run = Run("replay", "job.py", "sha256:0", ())
    return Result(OutputTable(disk, TableRecord(RESULTS, "parquet", ())), run, make, lambda: {"errors": 3})


def test_all_are_published_with_their_counts_and_not_made_again_the_second_time() -> None:
    disks = {"a": Disk(), "b": Disk()}
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    for _ in range(2):
        done: dict[str, Published] = {}
        publish_frames({name: result(disk, partial(make, name)) for name, disk in disks.items()}, done)
        assert [published.version.counts for published in done.values()] == [{"errors": 3}] * 2
    assert made == ["a", "b"]


def test_when_one_result_cannot_be_written_none_is_published_and_nothing_is_left() -> None:
    good, bad = Disk(), Disk()
    done: dict[str, Published] = {}
    with pytest.raises(publishing.CannotPublish):
        publish_frames({"good": result(good, lambda: "good"), "bad": result(bad, lambda: "cannot")}, done)
    assert done == {}
    for disk in (good, bad):
        assert newest_version(disk) is None
        assert disk.walk(layout.RESULTS) == []


def test_a_result_published_by_another_run_meanwhile_is_kept_and_the_others_start_over() -> None:
    first, second = Disk(), Disk()
    theirs: dict[str, Published] = {}
    made: list[str] = []

    def make() -> str:
        made.append("second")
        if not theirs:
            publish_frames(
                {"first": result(first, lambda: "same")}, theirs
            )  # it sweeps our unfinished results
            raise OSError("the folder is gone")
        return "second"

    done: dict[str, Published] = {}
    publish_frames({"first": result(first, lambda: "same"), "second": result(second, make)}, done)
    assert (done["first"].ours, done["first"].version) == (False, theirs["first"].version)
    assert (done["second"].ours, done["second"].version.number) == (True, 1)
    assert made == ["second", "second"]
