"""The Delta log of a table: what its versions and checkpoints hold, and what is left alone."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from squall_io.spark.delta import following
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.comparing import LogState, compare_log
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.delta.following import NoDeltaLog, catch_up, enable, rebuild
from squall_io.spark.delta.log_names import checkpoint_path, version_path
from squall_io.spark.manifest.entries import BatchEntry, DataFile, encode_entry
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.manifest.tables import RESULTS, ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.rows.partitions import partition_values
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.memory_files import MemoryFiles

WRITER = WriterId.of("words-1", "sink", 0)
DDL = "n bigint NOT NULL, day string"


def table(ddl: str = DDL, partition_by: tuple[str, ...] = ("day",)) -> MemoryFiles:
    files = MemoryFiles()
    open_table(files, TableRecord(ROWS, "parquet", partition_by))
    agree_on_schema(files, parse_schema(ddl))
    return files


def commit(
    files: MemoryFiles, number: int, *paths: str, replaces: tuple[str, ...] = (), schema: int = 1
) -> BatchEntry:
    """A committed batch with a file in each of these folders."""
    batch = BatchName(WRITER, 1, number)
    data = tuple(
        DataFile(f"{folder}/{batch.data_file(1, at, '.parquet')}", 10, "sha256:0")
        for at, folder in enumerate(paths)
    )
    entry = BatchEntry(
        batch, "words", "words-1", "sink", (1, 0), schema, 1, data, 1_700_000_000.0 + number, replaces
    )
    assert files.put_if_absent(batch.commit, encode_entry(entry))
    return entry


def wall() -> Callable[[], float]:
    moments = itertools.count(1_700_000_000)
    return lambda: float(next(moments))


def lines(files: MemoryFiles, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.read(version_path(version)).splitlines()]


def only(found: list[dict[str, Any]], kind: str) -> list[Any]:
    return [line[kind] for line in found if kind in line]


def test_the_first_version_has_the_schema_as_delta_writes_it() -> None:
    ddl = (
        "a tinyint, b smallint, c int NOT NULL, d bigint, e decimal(10,2), f timestamp COMMENT 'when', day string, "
        "g array<struct<x: int, y: map<string, double>>>"
    )
    files = table(ddl)
    assert enable(files, wall()) and not enable(files, wall())
    [metadata] = only(lines(files, 0), "metaData")
    assert metadata["partitionColumns"] == ["day"] and metadata["format"] == {
        "provider": "parquet",
        "options": {},
    }
    fields = json.loads(metadata["schemaString"])["fields"]
    assert [field["type"] for field in fields[:6]] == [
        "byte",
        "short",
        "integer",
        "long",
        "decimal(10,2)",
        "timestamp",
    ]
    assert fields[5]["metadata"] == {"comment": "when"} and all(field["nullable"] for field in fields)
    inner = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
    assert fields[7]["type"]["elementType"]["fields"][1]["type"] == inner
    assert only(lines(files, 0), "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]


def test_a_batch_is_added_with_its_partition_size_and_transaction() -> None:
    files = table()
    enable(files, wall())
    commit(files, 1, "day=a%3Ab c", "day=__HIVE_DEFAULT_PARTITION__")
    assert catch_up(files, wall()).added == 2
    found = lines(files, 1)
    one, other = only(found, "add")
    # The name of the folder is escaped once more, as in a URI.
    assert one["path"] == "day=a%253Ab%20c/squall-words-1.sink.0.1.1-1-00000.parquet"
    assert (one["partitionValues"], one["size"], one["modificationTime"]) == (
        {"day": "a:b c"},
        10,
        1_700_000_001_000,
    )
    assert other["partitionValues"] == {"day": None}
    [txn] = only(found, "txn")
    assert (txn["appId"], txn["version"]) == ("words-1.sink.0.1", 1)
    assert catch_up(files, wall()).version == 1  # nothing is left to add


def test_rows_that_were_merged_leave_and_come_in_one_version() -> None:
    files = table()
    enable(files, wall())
    small = [commit(files, number, "day=1") for number in (1, 2)]
    catch_up(files, wall())
    merged = commit(files, 3, "day=1", replaces=tuple(str(entry.batch) for entry in small))
    caught = catch_up(files, wall())
    assert (caught.version, caught.added, caught.removed) == (2, 1, 2)
    found = lines(files, 2)
    assert {remove["path"] for remove in only(found, "remove")} == {
        file.path for each in small for file in each.files
    }
    assert not any(remove["dataChange"] for remove in only(found, "remove"))
    log = DeltaLog(files)
    log.refresh()
    assert set(log.live) == merged.paths


def test_new_columns_and_what_they_demand_come_before_their_rows() -> None:
    files = table()
    enable(files, wall())
    commit(files, 1, "day=1")
    catch_up(files, wall())
    agree_on_schema(files, parse_schema(f"{DDL}, at timestamp_ntz"))
    commit(files, 2, "day=1", schema=2)
    catch_up(files, wall())
    found = lines(files, 2)
    [protocol] = only(found, "protocol")
    assert protocol["readerFeatures"] == protocol["writerFeatures"] == ["timestampNtz"]
    assert next(line for line in found if "metaData" in line or "add" in line).keys() == {"metaData"}
    assert only(found, "metaData")[0]["id"] == only(lines(files, 0), "metaData")[0]["id"]


def test_versions_have_a_limited_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_FILES", 3)
    files = table()
    enable(files, wall())
    for number in range(1, 6):
        commit(files, number, "day=1", "day=2")
    assert catch_up(files, wall()).version == 5
    assert [len(only(lines(files, version), "add")) for version in range(1, 6)] == [2] * 5


def test_a_log_is_the_same_from_a_checkpoint_and_old_versions_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "CHECKPOINT_EVERY", 3)
    files = table()
    enable(files, wall())
    for number in range(1, 4):
        commit(files, number, f"day={number}%25")
        catch_up(files, wall())
    before = DeltaLog(files)
    before.refresh()
    assert (before.version, before.checkpoint) == (3, 3)
    files.store.clock += following.RETAINED
    for number in range(4, 7):
        commit(files, number, "day=x")
        catch_up(files, wall())
    versions = {version_path(version) for version in (4, 5, 6)}
    hint = {"_delta_log/_last_checkpoint"}
    assert {status.path for status in files.list("_delta_log")} == versions | {checkpoint_path(6)} | hint
    after = DeltaLog(files)
    after.refresh()
    before.refresh()
    assert (after.version, after.live, after.txns, after.metadata) == (
        6,
        before.live,
        before.txns,
        before.metadata,
    )
    assert json.loads(files.read("_delta_log/_last_checkpoint"))["version"] == 6
    assert compare_log(files) == LogState(6)


ADD = {"path": "part-1.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
FEATURES = ["deletionVectors"]
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": FEATURES,
    "writerFeatures": FEATURES,
}
FOREIGN = {
    "a file of another program": json.dumps({"add": ADD}),
    "an action that is unknown": json.dumps({"domainMetadata": {"domain": "x", "configuration": ""}}),
    "a protocol that is unknown": json.dumps({"protocol": PROTOCOL}),
    "half a line": '{"add":{"path":"squall-words-1.sink.0.1.1',
}


@pytest.mark.parametrize("line", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_squall_has_not_written_is_named_left_alone_and_rebuilt_by_command(line: str) -> None:
    files = table()
    enable(files, wall())
    commit(files, 1, "day=1")
    catch_up(files, wall())
    files.put_if_absent(version_path(2), line.encode())
    kept = dict(files.store.files)
    with pytest.raises(ForeignLog, match=r"_delta_log/0{19}2\.json"):
        catch_up(files, wall())
    assert files.store.files == kept
    found = compare_log(files)
    assert found is not None and f"{2:020d}.json" in found.problem

    entry = commit(files, 2, "day=2")
    assert rebuild(files, wall()) == 3
    log = DeltaLog(files)
    log.refresh()
    assert (log.version, len(log.live)) == (3, 2) and entry.paths <= log.live.keys()
    commit(files, 3, "day=2")
    assert catch_up(files, wall()).added == 1
    assert all(
        files.store.files[path] == data for path, data in kept.items()
    )  # nothing was deleted or changed


def test_a_version_that_was_deleted_is_named() -> None:
    files = table()
    enable(files, wall())
    for number in (1, 2):
        commit(files, number, "day=1")
        catch_up(files, wall())
    files.delete(version_path(1))
    with pytest.raises(ForeignLog, match=rf"{1:020d}\.json is missing, and version 2 is there"):
        catch_up(files, wall())


def test_a_log_that_is_ahead_of_its_manifest_is_named() -> None:
    files = table()
    enable(files, wall())
    entry = commit(files, 1, "day=1")
    catch_up(files, wall())
    files.delete(entry.batch.commit)  # the manifest is from an older copy
    with pytest.raises(ForeignLog, match="has a file of no committed batch, such as day=1/squall-words-1"):
        catch_up(files, wall())


@pytest.mark.parametrize(
    ("record", "ddl", "why"),
    [
        (TableRecord(ROWS, "orc", ()), DDL, "its files are orc"),
        (TableRecord(RESULTS, "parquet", ()), DDL, "versions of a result"),
        (TableRecord(ROWS, "parquet", ()), "`a b` int", "no column 'a b'"),
        (TableRecord(ROWS, "parquet", ()), "a struct<`x,y`: int>", "no column 'x,y'"),
        (TableRecord(ROWS, "parquet", ()), None, "no schema yet"),
    ],
)
def test_a_table_that_cannot_have_a_log_says_why(record: TableRecord, ddl: str | None, why: str) -> None:
    files = MemoryFiles()
    open_table(files, record)
    if ddl is not None:
        agree_on_schema(files, parse_schema(ddl))
    with pytest.raises(NoDeltaLog, match=why):
        enable(files, wall())
    assert not files.list("_delta_log")
    assert catch_up(files, time.time).version == -1


def test_partition_values_are_those_of_the_folders() -> None:
    found = partition_values("a=1/B%3D=x%2Fy/squall-x.parquet", ("a", "B="))
    assert found == {"a": "1", "B=": "x/y"}
    assert partition_values("data/a=1/B%3D=x%2Fy/squall-x.parquet", ("a", "B=")) == found
    assert partition_values("squall-x.parquet", ()) == {}
