"""Spouts read files and tables on S3 without Java, and keep their positions there."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import Any

import pytest

from local_cluster.testing import complete_topology
from squall.stores.java.hadoop import Jvm
from squall.stores.s3 import S3Files
from squall_io.spark import CommittedRows, HdfsLines
from squall_io.spark.stores import S3_ENDPOINT
from tests.s3_servers import S3Server
from tests.spark.batches import SinkTask
from tests.squall_io.compacted_tables import DDL, put
from topology_api import Spout, Topology, TopologyBuilder


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here starts a Java."""

    def refused(*given: Any) -> None:
        raise AssertionError("a JVM is started")

    monkeypatch.setattr(Jvm, "own", refused)


def topology(spout: Spout, tasks: int = 2) -> Topology:
    builder = TopologyBuilder("reader")
    builder.set_spout("source", spout, parallelism=tasks)
    return builder.build()


def test_each_line_of_files_is_emitted_once(s3: S3Server, s3_path: str) -> None:
    wanted = [f"file {number} line {line} {'x' * (line % 37)}" for number in range(3) for line in range(80)]
    with S3Files(s3_path, s3.url) as files:
        for number in range(3):
            data = "".join(f"{each}\n" for each in wanted[number * 80 :][:80]).encode()
            files.replace(*(f"in/{number}.txt", data) if number else ("in/0.txt.gz", gzip.compress(data)))
    spout = HdfsLines(f"{s3_path}/in", split_bytes=1024, conf={S3_ENDPOINT: s3.url})
    done = complete_topology(topology(spout))
    assert Counter(line for (line,) in done.emitted("source")) == Counter(wanted)
    assert not done.failed("source")


def test_a_second_topology_continues_where_the_positions_are(s3: S3Server, s3_path: str) -> None:
    conf = {S3_ENDPOINT: s3.url}

    def emitted() -> list[tuple[Any, ...]]:
        spout = HdfsLines(f"{s3_path}/in", positions=f"{s3_path}/read", conf=conf)
        return sorted(complete_topology(topology(spout, 1)).emitted("source"))

    with S3Files(s3_path, s3.url) as files:
        files.replace("in/0.txt", b"one\ntwo\n")
        assert emitted() == [("one",), ("two",)]
        files.replace("in/1.txt", b"three\n")
        assert emitted() == [("three",)]


def test_committed_rows_are_emitted_once(s3: S3Server, s3_path: str) -> None:
    with S3Files(s3_path, s3.url) as files:
        task = SinkTask(files, DDL, partition_by=["day"])
        for number in range(2):
            put(task, float(number))
    spout = CommittedRows(s3_path, ["n", "day"], conf={S3_ENDPOINT: s3.url})
    done = complete_topology(topology(spout))
    rows = sorted(done.emitted("source"))
    assert rows == [
        (second * 1000 + at * 100 + row, day)
        for second in range(2)
        for at, day in enumerate("ab")
        for row in range(3)
    ]
