"""A process with Spark sessions of its own, for test_sessions_shared: that of the tests' own process is not affected.

It writes its findings as JSON to the file that its second argument names; the first is a folder for a table.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster
from squall.stores.java.jvm import JavaFailed
from squall_io.spark import SparkSink, read_committed
from squall_io.spark.session import sessions
from squall_io.spark.session.sessions import SessionMismatch, shared_session
from squall_io.spark.sink import bolt as sink
from tests.spark_classes import small_java
from topology_api import Fields, Spout, TopologyBuilder

CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": small_java(),
}


PLACES = ("Zürich", "東京", "Rome")


class Numbers(Spout):
    """Emits numbers, tracked."""

    outputs = Fields("number", "place")
    next = 0

    def next_tuple(self) -> None:
        if self.next == 60:
            return self.finish()
        self.emit((self.next, PLACES[self.next % 3]), message_id=self.next)
        self.next += 1
        return None


def jvm_process() -> Any:
    """The Java process of the session."""
    assert sessions._process.jvm is not None
    return sessions._process.jvm.process


def store_numbers(
    table: Path, master: str, conf: Mapping[str, str], trouble: Callable[[], object]
) -> tuple[int, int]:
    """Run a topology whose sinks meet faults in their second write; return the numbers of trees acked and failed."""
    jobs = []

    def at(step: str) -> None:
        jobs.append(step)
        if jobs.count("write") == 2 and step == "write":
            trouble()

    sink.at_step = at
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", Numbers())
    stored = SparkSink(
        str(table),
        "number int, place string",
        partition_by="place",
        batch_size=10,
        batch_interval=0.5,
        master=master,
        conf=conf,
    )
    builder.set_bolt("store", stored, parallelism=2).shuffle_grouping("numbers")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("numbers", timeout=250)
        status = cluster.status("numbers").components["numbers"]
    return status.acked, status.failed


def main(table: Path, out: Path) -> None:
    """Take a lease, have it refused to others, kill Java under it, release it."""
    found: dict[str, Any] = {}
    before = signal.getsignal(signal.SIGINT)
    try:
        shared_session("local[1]", {"spark.driver.memory": "a lot"})
    except JavaFailed as error:
        found["wrong memory"] = str(error)
    with shared_session("local[1]", CONF) as lease:
        first, broken = jvm_process(), lease.session
        try:
            shared_session("local[2]", CONF)
        except SessionMismatch as error:
            found["mismatch"] = str(error)
        found["settled"] = store_numbers(
            table, "local[1]", CONF, lambda: os.kill(jvm_process().pid, signal.SIGKILL)
        )
        found["same process"] = jvm_process() is first
        found["first has ended"] = first.poll() is not None
        session = lease.renew(broken)
        found["renewed by the sink"] = session is lease.session and session is not broken
        rows = read_committed(session, str(table)).collect()
        found["numbers"] = sorted(row["number"] for row in rows)
        found["places"] = sorted({row["place"] for row in rows})
        found["folders"] = sorted(each.name for each in (table / "data").glob("place=*"))
        second = jvm_process()
    found["second has ended"] = second.poll() is not None
    found["interrupt"] = signal.getsignal(signal.SIGINT) is before
    found["threads"] = [thread.name for thread in threading.enumerate() if thread.name.startswith("squall")]
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
