"""A process with a Spark session whose Hadoop knows S3, for test_sink_s3: it writes a table by a sink, and reads it.

Arguments: the table's path, the address of the S3 server, the jars with commas between them, and the file for the findings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from local_cluster import LocalCluster
from squall_io.spark import SparkSink, committed_files, read_committed
from squall_io.spark.session.sessions import shared_session
from tests.spark_classes import SMALL_JAVA
from topology_api import Fields, Spout, TopologyBuilder


class Days(Spout):
    """Emits numbers and their days."""

    outputs = Fields("number", "day")
    next = 0

    def next_tuple(self) -> None:
        if self.next == 60:
            return self.finish()
        self.emit((self.next, self.next % 3), message_id=self.next)
        self.next += 1
        return None


def main(path: str, endpoint: str, jars: str, out: Path) -> None:
    """Run the topology, then read what it has stored."""
    conf = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SMALL_JAVA,
        "spark.jars": jars,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "squall.s3.endpoint": endpoint,
    }
    builder = TopologyBuilder("days")
    builder.set_spout("numbers", Days())
    stored = SparkSink(
        path, "number int, day int", partition_by="day", batch_size=30, master="local[1]", conf=conf
    )
    builder.set_bolt("store", stored).shuffle_grouping("numbers")
    with shared_session("local[1]", conf) as lease:
        with LocalCluster() as cluster:
            cluster.submit(builder.build())
            cluster.wait("days", timeout=400)
            status = cluster.status("days").components["numbers"]
        lease.session.conf.set("squall.s3.endpoint", endpoint)
        rows = read_committed(lease.session, path).collect()
    found = {
        "settled": [status.acked, status.failed],
        "rows": sorted([row["number"], row["day"]] for row in rows),
        "files": committed_files(path, conf),
    }
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
