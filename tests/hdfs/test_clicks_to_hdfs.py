"""examples/clicks_to_hdfs.py keeps its promise on a cluster, with a real Kafka and a real HDFS: each click is in each table
once, though the worker and the broker are killed and the NameNode is frozen; and the batch has the same clicks."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall_io.spark import read_committed
from squall_io.spark.stores import WEBHDFS
from tests.hdfs_servers import HdfsServer
from tests.kafka_servers import KafkaServer
from tests.spark_classes import small_spark
from tests.squall_cli.dev_cluster import CAP, Commands, dev_cluster
from tests.squall_cli.run_process import ROOT
from tests.zookeeper_servers import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

Rows = Counter[tuple[Any, ...]]
NAME = "clicks-to-hdfs"
BEGAN = datetime(2026, 11, 29, 23, tzinfo=timezone.utc)
#: Pages as they come, and what `Clean` has to make of them.
CLEAN = {"/": "/", "/Shoes?from=mail": "/shoes", "/shoes/": "/shoes", "/?": "/"}
PAGES = list(CLEAN)
COLUMNS = ("id", "user", "page", "at", "day")
USERS = ["ada", "bela", "crawler-7", "chen"]


def click(number: int) -> dict[str, Any]:
    """The n-th click; after every fortieth all users pause for an hour."""
    at = BEGAN + timedelta(seconds=7 * number, hours=number // 40)
    page = PAGES[number // 4 % 4]
    return {
        "id": f"c{number}",
        "user": USERS[number % 4],
        "page": page,
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


def as_sent(count: int) -> Rows:
    """The rows of the first clicks."""
    return Counter(tuple(click(number).values()) for number in range(count))


def cleaned(count: int) -> Rows:
    """What `Clean` has to make of them, by another way."""
    return Counter(
        (id, user, CLEAN[page], at, at[:10])
        for id, user, page, at in as_sent(count)
        if not user.startswith("crawler")
    )


def visits(count: int) -> Rows:
    """User and clicks of each visit: what a user does between two pauses of all."""
    of_user = Counter((user, int(id[1:]) // 40) for id, user, *_ in cleaned(count))
    return Counter((user, clicks) for (user, _), clicks in of_user.items())


def rows(spark: SparkSession, table: str, *names: str) -> Rows:
    """The committed rows of a table, with times as in messages."""
    columns = [f"unix_timestamp({name}) {name}" if name == "at" else name for name in names]
    found = [row.asDict() for row in read_committed(spark, table).selectExpr(*columns).collect()]
    for row in found:
        if "at" in row:
            row["at"] = f"{datetime.fromtimestamp(row['at'], timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return Counter(tuple(row.values()) for row in found)


class Clicks:
    """Sends clicks, each user's to one partition, and says how many are in the tables."""

    def __init__(self, broker: KafkaServer, squall: Commands, path: str, webhdfs: str) -> None:
        self.broker, self.squall, self.path = broker, squall, path
        #: With it a command that needs no Spark starts no Java.
        self.by_webhdfs = ("--conf", f"{WEBHDFS}={webhdfs}")
        self.sent = 0

    def send(self, count: int) -> None:
        numbers, self.sent = range(self.sent, self.sent + count), self.sent + count
        for partition in range(3):
            own = [json.dumps(click(number)) for number in numbers if number % 4 % 3 == partition]
            self.broker.send("clicks", own, partition=partition)

    def stored(self, table: str) -> int:
        found = self.squall.here("table", f"{self.path}/{table}", *self.by_webhdfs, "--json")
        return int(json.loads(found)["rows"])

    def wait(self) -> None:
        """Wait until all of them are in both tables."""
        eventually(lambda: self.stored("raw") >= self.sent, CAP, every=0.3)
        eventually(lambda: self.stored("clicks") >= cleaned(self.sent).total(), CAP, every=0.3)


def stream(clicks: Clicks, hdfs: HdfsServer, state: Path) -> None:
    """Let the topology store clicks; kill or freeze what it needs."""
    squall = clicks.squall
    clicks.send(60)
    options = ["-o", f"topology.state.path=file://{state}", "-o", "topology.epoch.secs=1"]
    squall.run(
        *("submit", "--wait", *options, "examples/clicks_to_hdfs.py"),
        *("--", clicks.broker.servers, clicks.path, "local[1]"),
    )
    clicks.wait()
    clicks.broker.kill()
    clicks.broker.start()
    clicks.send(60)
    eventually(lambda: clicks.stored("raw") > 60, CAP, every=0.3)
    [pid] = squall.pids(NAME)
    hdfs.namenode.freeze()  # its restart takes a quarter of a minute: see test_file_sink_hdfs.py and test_sink_faults.py
    clicks.send(60)
    os.kill(pid, signal.SIGKILL)
    clicks.send(60)
    hdfs.namenode.thaw()
    clicks.wait()
    squall.here("kill", NAME, "--wait", "-w", "0")


def test_each_click_is_in_each_table_once_whatever_is_killed_and_the_batch_agrees(
    spark: SparkSession, troubled_hdfs: HdfsServer, hdfs_path: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with KafkaServer(tmp_path) as broker, dev_cluster(home, variables=small_spark()) as squall:
        broker.create_again("clicks", 3)
        clicks = Clicks(broker, squall, hdfs_path, troubled_hdfs.webhdfs)
        stream(clicks, troubled_hdfs, tmp_path / "state")
    sent, example = clicks.sent, f"{ROOT}/examples/clicks_to_hdfs.py"
    assert rows(spark, f"{hdfs_path}/raw", "id", "user", "page", "at") == as_sent(sent)
    assert rows(spark, f"{hdfs_path}/clicks", *COLUMNS) == cleaned(sent)

    again = [
        "replay",
        example,
        "--source",
        f"from-kafka={hdfs_path}/raw",
        "--output",
        f"clean={hdfs_path}-again",
    ]
    squall.here(*again)
    assert rows(spark, f"{hdfs_path}-again", *COLUMNS) == cleaned(sent)
    squall.here("reprocess", example, "--input", f"{hdfs_path}/clicks", "--output", f"{hdfs_path}-visits")
    assert rows(spark, f"{hdfs_path}-visits", "user", "clicks") == visits(sent)
