"""`squall table --files` lists committed files; `--register` refuses what it cannot register before Spark is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark import committed_files
from squall_io.spark.manifest.tables import RESULTS, NoTable, TableRecord, open_table
from tests.spark.batches import SinkTask
from tests.squall_io.test_spark_table import result

SCHEMA = "word string, day string"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["table", "counts", *arguments], prog_name="squall")


def test_the_files_of_committed_batches_are_listed_in_the_order_of_their_commits(
    files: OpenStore, tmp_path: Path
) -> None:
    task = SinkTask(files, SCHEMA, partition_by=["day"])
    assert run("--files").output == "" and committed_files(tmp_path / "counts") == []
    second = task.put({"day=a%3Ab/a.parquet": b"12"}, 2, 20.0)
    first = task.put({"day=__HIVE_DEFAULT_PARTITION__/a.parquet": b"1"}, 1, 10.0)
    name = task.next_name()
    files.put_if_absent(f"{name.attempt(1)}/day=1/a.parquet", b"staged")
    files.put_if_absent(f"data/day=1/{name.data_file(1, 0, '.parquet')}", b"moved")
    paths = [f"{tmp_path}/counts/{entry.files[0].path}" for entry in (first, second)]
    assert run("--files").output.splitlines() == paths == committed_files("counts")
    assert all(Path(path).exists() for path in paths)
    assert json.loads(run("--files", "--json").output) == {
        "path": files.root,
        "rows": 3,
        "commits": [
            {
                "of": f"batch {entry.batch}",
                "rows": entry.rows,
                "committed": entry.committed,
                "files": [{"path": path, "bytes": entry.size, "partition": {"day": day}}],
            }
            for entry, path, day in zip((first, second), paths, (None, "a:b"))
        ],
    }


def test_of_a_table_of_results_the_files_of_the_newest_version_are_listed(files: OpenStore) -> None:
    open_table(files, TableRecord(RESULTS, "parquet", ("day",)))
    assert run("--files").output == ""
    result(files, 1)
    newest = result(files, 2)
    listed = [f"{files.root}/{file.path}".removeprefix("file://") for file in newest.files]
    assert run("--files").output.splitlines() == listed == committed_files("counts")
    [version] = json.loads(run("--files", "--json").output)["commits"]
    assert (version["of"], version["rows"]) == ("version 2", 2)
    assert [file["partition"] for file in version["files"]] == [{"day": "1"}, {"day": "2"}]


def test_a_table_without_a_readable_manifest_has_no_list(files: OpenStore, tmp_path: Path) -> None:
    missing = run("--files")
    assert missing.exit_code == 1 and "there is no Squall table at" in missing.stderr
    with pytest.raises(NoTable):
        committed_files(tmp_path / "nothing")
    entry = SinkTask(files, "word string").put({"a.parquet": b"1"})
    (tmp_path / "counts" / entry.batch.commit).write_text("{")
    damaged = run("--files")
    assert (damaged.exit_code, damaged.stdout) == (1, "")
    assert "has 1 record that cannot be read" in damaged.stderr


@pytest.mark.parametrize("other", ["--verify", "--key=word", "--sweep", "--enable-delta", "--register=t"])
def test_the_list_goes_with_no_other_option(files: OpenStore, other: str) -> None:
    refused = run("--files", other)
    assert refused.exit_code == 2
    assert "--files, --versions and --register each work alone: leave the other options out" in refused.stderr


@pytest.mark.parametrize("name", ["a.b.c", "a b", "", "`a`", "tabelle-ü"])
def test_what_is_no_name_in_a_catalog_is_refused_before_spark_is_started(files: OpenStore, name: str) -> None:
    SinkTask(files, SCHEMA)
    refused = run("--register", name)
    assert refused.exit_code == 1 and "starting Spark" not in refused.stderr
    assert "write TABLE or DATABASE.TABLE, of letters, digits and _" in refused.stderr


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (TableRecord(RESULTS, "parquet", ()), "holds versions of a result, parquet, not partitioned: only"),
        (TableRecord("rows", "csv", (), 2), "holds batches of a stream, csv, not partitioned: only batches"),
        (TableRecord("rows", "orc", (), 2), "has no schema yet: its sink is about to start"),
    ],
)
def test_a_table_that_cannot_be_registered_is_refused_before_spark_is_started(
    files: OpenStore, record: TableRecord, why: str
) -> None:
    open_table(files, record)
    refused = run("--register", "counts")
    assert refused.exit_code == 1 and "starting Spark" not in refused.stderr
    assert why in refused.stderr
