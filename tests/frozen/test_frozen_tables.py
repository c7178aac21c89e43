"""Tables of today are read by every later release as they are: which files count, who owned what, how far readers are."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.frozen import current_tables
from tests.frozen.frozen_checks import check_mutations
from tests.frozen.frozen_data import load
from tests.frozen.plain_values import lacking, plain
from tests.frozen.sealed_records import resealed
from tests.frozen.table_folders import fill, reader_of, told

TABLES: dict[str, Any] = load("tables")
MUTATED: dict[str, Any] = load("mutated_tables")
POSITIONS: dict[str, Any] = load("positions")
NAMES: dict[str, Any] = load("table_names")
PART = base64.b64decode(NAMES["part of a checkpoint"])


@pytest.mark.parametrize(
    ("table", "what"), [(table, what) for table in TABLES for what in TABLES[table]["told"]]
)
def test_a_table_of_then_is_what_it_was(table: str, what: str) -> None:
    assert lacking(told(TABLES[table], what), TABLES[table]["told"][what]) == []


def test_all_that_is_read_of_a_table_is_frozen() -> None:
    assert {what for table in TABLES.values() for what in table["told"]} == current_tables.READ_TABLE.keys()
    assert MUTATED.keys() == current_tables.READ_RECORD_OF.keys()


@pytest.mark.parametrize("kind", MUTATED)
def test_a_record_that_is_not_as_it_should_be_is_read_or_refused_as_it_was(kind: str) -> None:
    check_mutations(kind, reader_of(kind, PART), MUTATED[kind])


@pytest.mark.parametrize("kind", MUTATED)
def test_a_record_whose_digest_does_not_fit_is_refused_and_a_newer_one_is_told_to_be_newer(
    tmp_path: Path, kind: str
) -> None:
    path, read = current_tables.READ_RECORD_OF[kind]
    sound = resealed(MUTATED[kind]["data"].encode())
    newer = sound.replace(b'"format":1', b'"format":2')
    for data, is_newer in (
        (newer, True),
        (sound.replace(b"sha256:", b"sha256:0"), False),
        (sound[:-9], False),
    ):
        folder = tmp_path / f"{is_newer} {len(data)}"
        files = current_tables.files_at(folder)
        files.replace(path, data)
        with pytest.raises(Exception) as refused:
            read(files)
        assert type(refused.value).__name__ == "UnreadableRecord"
        assert current_tables.is_newer(refused.value) == is_newer
        shutil.rmtree(folder)


@pytest.mark.parametrize("task", POSITIONS["tasks"])
def test_a_task_goes_on_where_the_tasks_of_then_have_come_to(tmp_path: Path, task: str) -> None:
    fill(tmp_path, POSITIONS)
    index, _, parallelism = task.partition(" of ")
    units = [(series, number) for series, number in NAMES["units"]]
    found = current_tables.read_positions(
        current_tables.files_at(tmp_path), int(index), int(parallelism), units
    )
    assert lacking(plain(found), POSITIONS["tasks"][task]) == []


def test_a_reader_finds_the_files_that_were_found(tmp_path: Path) -> None:
    fill(tmp_path, POSITIONS)
    assert (
        lacking(plain(current_tables.read_files_found(current_tables.files_at(tmp_path))), POSITIONS["found"])
        == []
    )


def test_names_of_files_say_what_they_said() -> None:
    for name, said in NAMES["names"].items():
        assert plain(current_tables.names_of(name)) == said, name


def test_each_unit_is_read_by_the_task_that_read_it() -> None:
    for parallelism, owners in NAMES["owners"].items():
        found = [current_tables.owner_of_unit(series, at, int(parallelism)) for series, at in NAMES["units"]]
        assert found == owners


def test_the_same_run_has_the_same_id() -> None:
    assert current_tables.run_id(NAMES["run"]) == NAMES["run id"]
