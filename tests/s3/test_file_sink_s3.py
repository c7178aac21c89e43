"""FileSink on S3: each file is there once, whatever the server honours and whatever it answers; HdfsLines reads it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.contracts import staged_sinks
from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import check_staged_sink, complete_topology
from squall.stores.files import Files, FilesRefused
from squall.stores.s3 import S3Files
from squall_io.files import FileSink
from squall_io.files.staging import STAGING
from squall_io.spark import HdfsLines
from squall_io.spark.stores import S3_ENDPOINT
from tests.local_cluster.words_with_state import Finite, Pass, words_to_rows
from tests.s3_servers import COPIES, IGNORES, PARTS, S3Server
from topology_api import TopologyBuilder

#: Promises that are no loop over the lines of the sink, as tests/squall_io/test_file_sink_in_stores.py has them all.
IN_FEW_CALLS = (
    "rows are hidden until their commit",
    "aborted rows never become visible, and abort may be made again",
    "an epoch that is staged again is committed once",
    "rows without an epoch become visible",
)


def sink_at(path: str, s3: S3Server, format: str = "jsonl") -> FileSink:
    return FileSink(path, format, conf={S3_ENDPOINT: s3.url})


def opened(path: str, s3: S3Server) -> FileSink:
    sink = sink_at(path, s3)
    sink.lineage = "0123456789abcdef"
    sink.prepare(context_of("out", 0, 1, Surroundings()))
    return sink


def rows(files: Files) -> Iterator[Any]:
    for each in files.list(""):
        if not each.is_folder:
            yield from map(json.loads, files.read(each.path).splitlines())


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_the_sink_keeps_its_contract(
    s3: S3Server, s3_path: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(
            staged_sinks, "PROMISES", {name: staged_sinks.PROMISES[name] for name in IN_FEW_CALLS}
        )
    with S3Files(s3_path, s3.url) as files:
        check_staged_sink(
            lambda: sink_at(s3_path, s3),
            lambda number: {"text": f"row {number}"},
            lambda: rows(files),
            staged=lambda: len(files.list(STAGING)),
        )


@pytest.mark.parametrize("bucket", [COPIES, PARTS])
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_file_is_there_once_though_answers_are_lost(
    s3: S3Server, s3_path: str, bucket: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.files.store_staging.sleep", lambda seconds: None)
    path = s3_path.replace(COPIES, bucket) + f"-{how}"
    sink = opened(path, s3)
    s3.fails(("PUT", STAGING, how))
    handle = sink.stage(3, [b'{"a": 1}'])
    assert s3.faults() == []
    copy = ("PUT", f"{handle['name']}?") if bucket == COPIES else ("POST", "uploadId")
    s3.fails((*copy, how), ("DELETE", STAGING, how))
    sink.commit(3, handle)
    assert s3.faults() == []
    sink.commit(3, handle)
    sink.cleanup()
    with S3Files(path, s3.url) as files:
        assert list(rows(files)) == [{"a": 1}]
        assert files.list(STAGING) == []


def test_a_server_that_overwrites_what_others_have_put_is_refused(s3: S3Server, s3_path: str) -> None:
    with pytest.raises(FilesRefused, match="this server overwrites existing objects"):
        opened(s3_path.replace(COPIES, IGNORES), s3).stage(1, [b"{}"])


def test_a_topology_writes_each_row_once_and_another_one_reads_it(
    s3: S3Server, s3_path: str, tmp_path: Path
) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    for number in range(2):
        with LocalCluster() as cluster:
            cluster.submit(words_to_rows(Finite(300, 1_000), Pass(0.0), sink_at(s3_path, s3)), conf)
            if number:
                cluster.wait("words", timeout=60)
    builder = TopologyBuilder("again")
    schema = "number long, word string"
    lines = HdfsLines(s3_path, format="jsonl", schema=schema, conf={S3_ENDPOINT: s3.url})
    builder.set_spout("lines", lines, parallelism=2)
    done = complete_topology(builder.build()).emitted("lines")
    assert sorted(number for number, _ in done) == list(range(300))
