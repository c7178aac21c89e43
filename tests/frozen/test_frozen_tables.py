"""Every later release reads existing tables unchanged: which files count, who owned what, how far readers are."""

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
from tests.frozen.table_folders import fill, reader_of, value_read

TABLES: dict[str, Any] = load("tables")
MUTATED: dict[str, Any] = load("mutated_tables")
POSITIONS: dict[str, Any] = load("positions")
NAMES: dict[str, Any] = load("table_names")
PART = base64.b64decode(NAMES["part of a checkpoint"])


@pytest.mark.parametrize(
    ("table", "what"), [(table, what) for table in TABLES for what in TABLES[table]["told"]]
)
def test_a_frozen_table_is_read_unchanged(table: str, what: str) -> None:
    assert lacking(value_read(TABLES[table], what), TABLES[table]["told"][what]) == []


def test_all_queries_of_a_table_are_frozen() -> None:
    assert {what for table in TABLES.values() for what in table["told"]} == current_tables.READ_TABLE.keys()
    assert MUTATED.keys() == current_tables.READ_RECORD_OF.keys()


@pytest.mark.parametrize("kind", MUTATED)
def test_an_invalid_record_is_read_or_refused_as_before(kind: str) -> None:
    check_mutations(kind, reader_of(kind, PART), MUTATED[kind])


@pytest.mark.parametrize("kind", MUTATED)
def test_a_record_with_a_wrong_hash_is_refused_and_a_newer_one_is_recognised(
    tmp_path: Path, kind: str
) -> None:
    path, read = current_tables.READ_RECORD_OF[kind]
    sound = resealed(MUTATED[kind]["data"].encode())
    newer = sound.replace(b'"format":1', b'"format":3')
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
def test_a_task_continues_where_the_frozen_tasks_ended(tmp_path: Path, task: str) -> None:
    fill(tmp_path, POSITIONS)
    index, _, parallelism = task.partition(" of ")
    units = [(series, number) for series, number in NAMES["units"]]
    found = current_tables.read_positions(
        current_tables.files_at(tmp_path), int(index), int(parallelism), units
    )
    assert lacking(plain(found), POSITIONS["tasks"][task]) == []


def test_a_reader_finds_the_frozen_list_of_files(tmp_path: Path) -> None:
    fill(tmp_path, POSITIONS)
    assert (
        lacking(plain(current_tables.read_files_found(current_tables.files_at(tmp_path))), POSITIONS["found"])
        == []
    )


def test_names_of_files_have_their_earlier_meaning() -> None:
    for name, said in NAMES["names"].items():
        assert plain(current_tables.names_of(name)) == said, name


def test_each_unit_is_read_by_its_earlier_task() -> None:
    for parallelism, owners in NAMES["owners"].items():
        found = [current_tables.owner_of_unit(series, at, int(parallelism)) for series, at in NAMES["units"]]
        assert found == owners


def test_the_same_run_has_the_same_id() -> None:
    assert current_tables.run_id(NAMES["run"]) == NAMES["run id"]
