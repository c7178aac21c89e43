"""A process that uses Spark Connect, for test_sink_connect_hdfs.

`python -m tests.hdfs.connect_hdfs_script FOLDER TABLE WEBHDFS`: it starts the server, and kills it while a batch is
written to local files (tests/spark/connect_script.py). Then it writes to HDFS: it makes the file FOLDER/now when it begins to
write its second batch, and continues when FOLDER/killed exists. It writes its findings as JSON to FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from local_cluster import bolt_run
from local_cluster.testing import run_bolt
from squall_io.spark import SparkSink, read_committed, register
from squall_io.spark.manifest.state import read_state
from squall_io.spark.reading.summary import verify
from squall_io.spark.session.sessions import shared_session
from squall_io.spark.sink import bolt as sink
from squall_io.spark.stores import WEBHDFS, open_files
from tests.spark.connect_script import examine
from tests.spark.connect_servers import ConnectServer
from tests.zookeeper_servers import eventually

GIVEN = [(number, "Zürich") for number in range(30)]


def store_on_hdfs(server: str, table: str, webhdfs: str, folder: Path) -> dict[str, Any]:
    """Store rows in three batches, and read them."""
    steps: list[str] = []

    def at(step: str) -> None:
        steps.append(step)
        if step == "write" and steps.count("write") == 2:
            (folder / "now").touch()
            eventually((folder / "killed").exists)

    sink.at_step = at
    conf = {WEBHDFS: webhdfs, "spark.hadoop.dfs.replication": "2"}
    bolt = SparkSink(
        table, "number int, place string", partition_by="place", batch_size=10, master=server, conf=conf
    )
    acked = run_bolt(bolt, GIVEN, source_fields=("number", "place")).acked()
    with shared_session(server, {"spark.hadoop.dfs.replication": "2"}) as lease:
        lease.session.conf.set(WEBHDFS, webhdfs)
        rows = sorted(map(tuple, read_committed(lease.session, table).collect()))
        register(lease.session)
        by_source = sorted(map(tuple, lease.session.read.format("squall").load(table).collect()))
        by_stream = streamed(lease.session, table, folder)
    with open_files(table, conf=conf) as files:
        verified = verify(files)
        batches = len(read_state(files).entries)
    return {
        "acked": acked == GIVEN,
        "stored": rows == GIVEN,
        "read by the source": by_source == GIVEN,
        "streamed": by_stream == GIVEN,
        "problems": [*map(str, (*verified.problems, *verified.strays, *verified.unreadable))],
        "batches": batches,
        "writes": steps.count("write"),
    }


def streamed(session: Any, table: str, folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows that a query gets in several runs, a batch at a time."""
    target = f"file://{folder}/streamed"
    stream = session.readStream.format("squall").option("maxFilesPerTrigger", 1).load(table)
    for _ in range(2):
        writer = stream.writeStream.format("parquet").option(
            "checkpointLocation", f"file://{folder}/checkpoint"
        )
        assert writer.trigger(availableNow=True).start(target).awaitTermination(200)
    return sorted(map(tuple, session.read.parquet(target).collect()))


def main(folder: Path, table: str, webhdfs: str) -> None:
    """Start a server and use it."""
    bolt_run.TIMEOUT = 250.0
    server = ConnectServer(folder)
    try:
        server.start()
        found = {"local": examine(server, folder)}
        found["hdfs"] = store_on_hdfs(server.url, table, webhdfs, folder)
    finally:
        server.kill()
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
