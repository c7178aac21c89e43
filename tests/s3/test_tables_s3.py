"""What works on a table on S3 without Java: commits, readers, commands, the Delta log, spouts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import FilesRefused, OpenStore
from squall.stores.java.hadoop import Jvm
from squall.stores.paths import nested, overlap
from squall_cli.main import squall
from squall_io.spark import committed_files
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.manifest.layout import COMMITS
from squall_io.spark.manifest.state import read_state
from squall_io.spark.stores import S3_ENDPOINT, open_files
from squall_io.spark.stores.opening import UNSAFE
from tests.s3_servers import IGNORES, S3Server
from tests.spark.batches import SinkTask
from tests.squall_io.compacted_tables import DDL, put, rows_by_batch


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here starts a Java."""

    def refused(*given: Any) -> None:
        raise AssertionError("a JVM is started")

    monkeypatch.setattr(Jvm, "own", refused)


@pytest.fixture
def conf(s3: S3Server) -> dict[str, str]:
    return {S3_ENDPOINT: s3.url}


@pytest.fixture
def files(s3_path: str, conf: dict[str, str]) -> Iterator[OpenStore]:
    with open_files(s3_path, conf=conf) as opened:
        yield opened


def run(files: OpenStore, s3: S3Server, command: str, *arguments: str) -> Result:
    """A command on the table."""
    result = CliRunner().invoke(
        squall, [command, files.root, *arguments, "--conf", f"{S3_ENDPOINT}={s3.url}"], prog_name="squall"
    )
    assert result.exit_code == 0, result.output
    return result


def test_a_table_is_written_listed_compacted_and_vacuumed(
    files: OpenStore, s3: S3Server, conf: dict[str, str]
) -> None:
    task = SinkTask(files, DDL, partition_by=["day"])
    enable(files, time.time)
    for number in range(3):
        put(task, float(number))
    catch_up(files, time.time)
    before = rows_by_batch(files, conf=conf)
    assert [len(rows) for rows in before.values()] == [6, 6, 6]
    paths = committed_files(files.root, conf)
    assert len(paths) == 6 and all(path.startswith(f"{files.root}/data/day=") for path in paths)
    verified = run(files, s3, "table", "--verify").output
    assert "18" in verified and "6 files" in verified

    done = json.loads(run(files, s3, "compact", "--json").stdout)
    assert (done["files_before"], done["files_after"]) == (6, 2)
    assert rows_by_batch(files, conf=conf) == before
    assert len(committed_files(files.root, conf)) == 2
    assert "optimize" in run(files, s3, "table", "--versions", "1").output

    vacuumed = json.loads(run(files, s3, "vacuum", "--retention", "0", "--allow-short", "--json").stdout)
    assert vacuumed["files"] == 6
    assert rows_by_batch(files, conf=conf) == before
    left = [status.path for status in files.walk("data") if not status.is_folder]
    assert sorted(f"{files.root}/{path}" for path in left) == sorted(committed_files(files.root, conf))


def test_what_a_dead_task_has_moved_is_swept(files: OpenStore, s3: S3Server) -> None:
    task = SinkTask(files, DDL, partition_by=["day"])
    put(task, 1.0)
    name = task.next_name()
    for day in ("a", "b"):
        files.put_if_absent(f"{name.attempt(1)}/day={day}/part-0.parquet", b"rows")
    commit = task.commit_of(name, 2)

    def dies(step: str) -> None:
        if step == "publish":
            raise KeyboardInterrupt

    commit.at = dies
    with pytest.raises(KeyboardInterrupt):
        commit.run()
    moved = {status.path for status in files.walk("data") if name.data_prefix in status.path}
    assert len(moved) == 2
    SinkTask(files, DDL, partition_by=["day"], incarnation=(2, 0))
    run(files, s3, "table", "--sweep", "--older-than", "0")
    assert not moved & {status.path for status in files.walk("data")}
    assert len(read_state(files).entries) == 1


def test_a_server_without_conditions_gets_no_table(s3: S3Server, s3_keys: None, conf: dict[str, str]) -> None:
    with open_files(f"s3a://{IGNORES}/table", conf=conf) as files:
        with pytest.raises(FilesRefused, match="this server overwrites existing objects"):
            SinkTask(files, DDL)
        assert files.list(COMMITS) == []


def test_sparks_source_reads_it_without_hadoops_client(files: OpenStore, s3: S3Server) -> None:
    source = pytest.importorskip("squall_io.spark.source.data_source")
    task = SinkTask(files, DDL, partition_by=["day"])
    put(task, 1.0)
    options = {"path": files.root.replace("s3:", "s3a:"), S3_ENDPOINT: s3.url}
    found = source.SquallSource(options)
    assert "text" in found.schema()
    with found.opened() as opened:
        assert opened.root == options["path"]
    assert sum(each.size for each in found.ranges()) == sum(
        status.size for status in files.walk("data") if not status.is_folder
    )


def test_two_schemes_name_one_place() -> None:
    assert overlap("s3://b/t", "s3a://b/t") is not None
    assert nested("s3a://b/t/x", "s3://b/t") is not None
    assert overlap("s3://b/t", "s3://c/t") is None


def test_hadoops_client_still_reads_where_boto3_is_missing_and_writes_with_the_unsafe_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        "squall.stores.java.hadoop.HadoopFiles",
        lambda path, jvm, read_only: opened.append((path, read_only)),
    )
    jvm: Any = SimpleNamespace(lent=lambda: None)
    open_files("s3a://b/t", jvm=jvm, conf={UNSAFE: "true"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    open_files("s3a://b/t", jvm=jvm)
    assert opened[0] == ("s3a://b/t", None)
    assert opened[1][0] == "s3a://b/t" and "its extra `s3`" in str(opened[1][1])
