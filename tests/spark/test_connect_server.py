"""Replays and compactions by a Spark Connect server give what they give in a session of the process itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall_io.spark.reading.committed import read_committed
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.spark.connect_servers import ConnectServer, run_script
from tests.spark.replays_anywhere import replayed
from tests.spark.test_compacted_reading import drop_replaced, rows
from tests.spark.test_replay_command_spark import BOLTS, TOPOLOGY
from tests.squall_cli.run_process import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    made = ConnectServer(tmp_path_factory.mktemp("connect"))
    made.start()
    yield made
    made.kill()


def squall(cwd: Path, *arguments: str) -> str:
    """Run a command of Squall's in a process of its own, which has no other session."""
    done = subprocess.run(
        [sys.executable, "-m", "squall_cli", *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_replay_gives_what_a_session_of_the_process_gives(
    server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    run_script("tests.spark.replays_anywhere", server.url, tmp_path, "{}")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found == json.loads(json.dumps(replayed(spark)))
    assert found["words"]["executed"]["count"] == [9000, len(found["words"]["outputs"]["count"])]
    assert len(found["points"]["errors"]) == 1


def test_the_command_ships_its_modules_to_the_server(
    server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "replayed.py").write_text(TOPOLOGY)
    (tmp_path / "replayed_bolts.py").write_text(BOLTS)
    (tmp_path / "lines.txt").write_text("a b\na c a\n" * 50)
    wanted = ("--source", "lines=lines.txt", "--output", "count=counts", "--master", server.url)
    said = squall(tmp_path, "replay", "replayed.py", *wanted)
    assert "count: 3 rows published as version 1" in said
    counts = read_committed(spark, str(tmp_path / "counts")).collect()
    assert sorted(map(tuple, counts)) == [("a", 150), ("b", 50), ("c", 50)]


@pytest.mark.parametrize("file_format", ["orc", "json", "csv"])
def test_a_table_that_only_spark_merges_is_compacted(
    server: ConnectServer, spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    schema = "n bigint, day string, text string"
    with open_files(str(tmp_path / "a table")) as files:
        task = SinkTask(files, schema, file_format=file_format, partition_by=["day"])
        for number in range(4):
            given = [(at, "ab"[at % 2], f"{number} {at}\n,\"'é") for at in range(6)]
            task.write(spark, given, committed=10.0 + number)
        reads: list[dict[str, Any]] = [{}, {"key": "n"}, {"since": 11, "until": 13}]
        before = [rows(read_committed(spark, files.root, **read)) for read in reads]
        said = json.loads(squall(tmp_path, "compact", "a table", "--master", server.url, "--json"))
        assert (said["files_before"], said["files_after"], said["rows"]) == (8, 2, 24)
        drop_replaced(files)
        assert [rows(read_committed(spark, files.root, **read)) for read in reads] == before
        assert not files.list("_squall/staging")
