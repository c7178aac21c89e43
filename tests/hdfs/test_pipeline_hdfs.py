"""The whole pipeline of the documentation, on a cluster and a real HDFS: each step by a command of `squall`."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster.testing import complete_topology
from squall_io.spark.results.versions import kept_versions
from squall_io.spark.stores import WEBHDFS, open_files
from tests.hdfs_servers import HdfsServer
from tests.spark_classes import small_spark
from tests.squall_cli.dev_cluster import CAP, dev_cluster
from tests.squall_cli.run_process import ROOT
from tests.zookeeper_servers import eventually
from topology_api import TopologyBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SAMPLE = ROOT / "tests" / "examples" / "flights_sample.csv"


def state_of(status: str) -> str:
    """The state of a topology in the answer of `squall status --json`."""
    return str(json.loads(status)["state"])


def rows_of(path: str, webhdfs: str) -> list[dict[str, Any]]:
    """The rows of a result that was published once; times in seconds."""
    from pyarrow import parquet

    with open_files(path, conf={WEBHDFS: webhdfs}) as files:
        [version] = kept_versions(files)
        assert [status.name for status in files.list("_squall/results")] == [version.attempt]
        assert [files.digest(file.path) for file in version.files] == [file.digest for file in version.files]
        tables = [parquet.read_table(io.BytesIO(files.read(file.path))) for file in version.files]
    return [{**row, "hour": row["hour"].timestamp()} for table in tables for row in table.to_pylist()]


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    names = ("hour", "carrier", "flights", "cancelled", "minutes")
    return Counter(tuple(row[name] for name in names) for row in rows)


def recounted_by_a_loop() -> Counter[tuple[Any, ...]]:
    """The result of examples/reprocess_recount.py for the sample."""
    totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    with open(SAMPLE, newline="") as file:
        for flight in csv.DictReader(file):
            hour = datetime.fromisoformat(flight["time_hour"].replace("Z", "+00:00")).timestamp()
            counts = totals[hour, flight["carrier"]]
            counts[0] += 1
            counts[1] += flight["dep_delay"] == "NA"
            counts[2] += max(0 if flight["dep_delay"] == "NA" else int(flight["dep_delay"]), 0)
    return Counter((*key, *counts) for key, counts in totals.items())


def streamed_alone(example: Any) -> Counter[tuple[Any, ...]]:
    """The emissions of the example's own bolt for the sample, late rows included, without a cluster and without Spark."""
    builder = TopologyBuilder("alone")
    flights = builder.set_spout("flights", example.Flights(str(SAMPLE)))
    builder.set_bolt("delays", example.DelaysByHour(), parallelism=2).fields_grouping(flights, "carrier")
    emitted = complete_topology(builder.build()).emitted("delays")
    return Counter((hour.timestamp(), *rest) for hour, *rest in emitted)


def test_flights_are_stored_by_a_cluster_verified_counted_again_and_replayed(
    spark: SparkSession,
    hdfs: HdfsServer,
    hdfs_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("flights")
    flights, delays = f"{hdfs_path}/flights", f"{hdfs_path}/delays"
    recounted, replayed = f"{hdfs_path}-recounted", f"{hdfs_path}-replayed"
    # By WebHDFS a command that needs no Spark starts no Java; the first replay has both, a small Java and Spark's.
    by_webhdfs = ["--conf", f"{WEBHDFS}={hdfs.webhdfs}"]
    with dev_cluster(tmp_path, variables=small_spark()) as squall:
        assert squall.left(), "and not so afterwards"
        patient = ("-o", "topology.message.timeout.secs=300")  # so that a slow machine causes no replays
        squall.run(
            *("submit", "--wait", *patient, "examples/flights.py", "--", hdfs_path, str(SAMPLE), "local[1]")
        )
        eventually(
            lambda: state_of(squall.here("status", "flights", "--json")) == "COMPLETED", CAP, every=0.5
        )
        for table, rows in ((flights, 200), (delays, streamed_alone(example).total())):
            said = squall.here("table", table, "--verify", *by_webhdfs)
            assert said.startswith(f"{table}: batches of a stream, parquet")
            assert f"\n{rows} rows in " in said
            assert said.rstrip().endswith("all as committed")
        squall.here("kill", "flights", "--wait")  # the stored tables need no cluster

    recount = ["reprocess", f"{ROOT}/examples/reprocess_recount.py", "--input", flights]
    recount += ["--output", recounted, "--key", "id", *by_webhdfs, "--json"]
    outcome = json.loads(squall.here(*recount))
    assert (outcome["published"], outcome["version"], outcome["rows_in"]) == (True, 1, 200)
    assert json.loads(squall.here(*recount))["published"] is False
    assert counted(rows_of(recounted, hdfs.webhdfs)) == recounted_by_a_loop()

    small = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1"]
    replay = ["replay", f"{ROOT}/examples/flights.py", "--source", f"flights={flights}"]
    replay += ["--output", f"delays={replayed}", "--json"]
    outcome = json.loads(squall.run(*replay, *small, "--", hdfs_path))
    assert (outcome["errors"], outcome["outputs"]["delays"]["version"]) == (0, 1)
    assert counted(rows_of(replayed, hdfs.webhdfs)) == streamed_alone(example)
    assert "verified 1 file" in squall.here("table", replayed, "--verify", *by_webhdfs)
    # tests/spark/test_replay_command_spark.py shows it with local files.
    if request.config.getoption("--soak") is not None:
        again = json.loads(squall.run(*replay, *small, *by_webhdfs, "--", hdfs_path))
        assert again["outputs"]["delays"]["published"] is False
    assert squall.left() == []
