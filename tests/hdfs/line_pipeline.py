"""The whole pipeline on one HDFS: lines of files, a bolt, rows in a table. With importable classes, for worker processes."""

from __future__ import annotations

import time

from squall_io.spark import HdfsLines, SparkSink
from topology_api import Bolt, Topology, TopologyBuilder, Tuple

SCHEMA = "number int, part string"
#: For the workers' sessions: small, with a short timeout for a NameNode that does not answer.
CONF = {
    "spark.driver.memory": "512m",
    "spark.hadoop.dfs.replication": "2",
}


class Parse(Bolt):
    """A row of a line, not too fast, so that faults come in the middle."""

    outputs = ("number", "part")

    def execute(self, tup: Tuple) -> None:
        time.sleep(0.005)
        number = int(tup["line"].split()[0])
        self.emit((number, "ab"[number % 2]))


def topology(lines: str, table: str, java: str) -> Topology:
    """Reads the lines at one path into a table at another. `java`: options of the sinks' Java."""
    # No tree times out while the NameNode is frozen for 30 seconds, or the machine is slow: trees wait, and that is asserted.
    waits = {"topology.max.spout.pending": 400, "topology.message.timeout.secs": 300}
    builder = TopologyBuilder("pipeline", conf={"topology.workers": 1, **waits})
    source = HdfsLines(lines, split_bytes=4096, conf={"spark.hadoop.dfs.replication": "2"})
    builder.set_spout("lines", source, parallelism=2)
    builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    conf = {**CONF, "spark.driver.extraJavaOptions": java}
    sink = SparkSink(
        table, SCHEMA, partition_by="part", batch_size=150, batch_interval=2.0, master="local[1]", conf=conf
    )
    builder.set_bolt("sink", sink, parallelism=2).shuffle_grouping("parse")
    return builder.build()
