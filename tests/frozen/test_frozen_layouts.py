"""A table of layout 2 keeps its meaning, and the release before it refuses such a table with words, at every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.stores.local import LocalFiles
from squall_io.spark.delta.following import catch_up
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.layout import TABLE, WriterId
from squall_io.spark.manifest.sweep import sweep
from squall_io.spark.manifest.tables import new_rows, open_table
from squall_io.spark.reading.summary import verify
from tests.frozen.frozen_data import LAYOUTS, load
from tests.frozen.plain_values import lacking
from tests.frozen.table_folders import fill, value_read
from tests.spark.batches import SinkTask

FROZEN: dict[str, Any] = load("layouts", LAYOUTS)
REFUSED = "UnreadableRecord: _squall/table.json has format 2; this Squall reads formats up to 1: read it with a newer Squall"
#: The writer id of the frozen table.
SEAT = WriterId("words-1", "store", 0)


@pytest.mark.parametrize("what", FROZEN["table"]["told"])
def test_a_frozen_table_of_layout_2_is_read_unchanged(what: str) -> None:
    assert lacking(value_read(FROZEN["table"], what), FROZEN["table"]["told"][what]) == []


def test_a_new_table_has_the_record_that_the_release_before_has_refused(tmp_path: Path) -> None:
    """What its code said of the frozen table: each sink, reader and command reads `table.json` before anything else."""
    assert len(FROZEN["refused"]) == 9
    assert set(FROZEN["refused"].values()) == {REFUSED}
    files = LocalFiles(str(tmp_path))
    open_table(files, new_rows("parquet", ("day",)))
    assert files.read(TABLE).decode() == FROZEN["table"]["files"][TABLE]


def test_a_frozen_table_of_layout_2_is_written_swept_and_followed(tmp_path: Path) -> None:
    fill(tmp_path, FROZEN["table"])
    files = LocalFiles(str(tmp_path))
    given_up = "data/day=1/squall-words-1.store.0.1.3-1-00000.parquet"
    assert verify(files).strays == (given_up,)
    assert sweep(files, SEAT, take_over(files, SEAT, (3, 0), "host", 0.0)) == 1
    assert verify(files).strays == () and not files.list("_squall/staging")
    task = SinkTask(files, "word string, day string", partition_by=["day"], incarnation=(4, 0), layout=1)
    [file] = task.put({"day=4/a.parquet": b"new"}).files
    assert file.path.startswith("data/day=4/squall-words-1.store.0.4.1-")
    assert not verify(files).problems
    caught = catch_up(files, lambda: 1.0)
    assert (caught.version, caught.added, caught.removed) == (2, 1, 0)
