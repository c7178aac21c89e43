"""FileSink on HDFS and S3, simulated: files that are complete when they are visible, whatever ends between the steps."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import check_staged_sink
from squall.stores.files import Files, FilesUnavailable
from squall.stores.paths import TMP
from squall_io.files import FileSink
from squall_io.files.staging import STAGING
from tests.flaky_files import FlakyFiles
from tests.local_cluster.words_with_state import Finite, Pass, words_to_rows
from tests.squall_io.memory_files import MemoryFiles, MemoryStore
from tests.squall_io.object_files import ObjectFiles, ObjectStore
from topology_api import InvalidConfig, SquallError

LINEAGE = "0123456789abcdef"
OPEN = "squall_io.files.store_staging.open_steady"
KINDS: dict[str, Callable[[], Files]] = {
    "hdfs://namenode:9000/out": lambda: MemoryFiles(MemoryStore()),
    "s3://bucket/out": lambda: ObjectFiles(ObjectStore()),
}


class Closing:
    """`Files` that a sink may close."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.closed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(folder: str, monkeypatch: pytest.MonkeyPatch) -> Closing:
    """What every sink with this folder writes to."""
    made = Closing(KINDS[folder]())
    monkeypatch.setattr(OPEN, lambda path, conf: made)
    return made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that waits does not wait."""
    monkeypatch.setattr("squall_io.files.store_staging.sleep", lambda seconds: None)


def opened(folder: str, **more: Any) -> FileSink:
    sink = FileSink(folder, **more)
    sink.lineage = LINEAGE
    sink.prepare(context_of("out", 0, 1, Surroundings()))
    return sink


def visible(files: Any) -> dict[str, bytes]:
    return {each.name: files.read(each.path) for each in files.list("") if not each.is_folder}


def staged(files: Any) -> int:
    return len([each for folder in (STAGING, TMP) for each in files.list(folder)])


def lines(files: Any) -> Iterator[str]:
    for content in visible(files).values():
        yield from content.decode().splitlines()


@pytest.mark.parametrize("format", ["lines", "jsonl"])
def test_the_sink_keeps_its_contract(files: Closing, folder: str, format: str) -> None:
    check_staged_sink(
        lambda: FileSink(folder, format),
        lambda number: {"text": f"row {number}"},
        lambda: ((line,) if format == "lines" else json.loads(line) for line in lines(files)),
        staged=lambda: staged(files),
    )


def test_parquet_has_the_columns_of_the_schema(files: Closing, folder: str) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    sink = opened(folder, format="parquet", schema="word string, times bigint")
    sink.commit(7, sink.stage(7, [("be", 2), ("to", 3)]))
    [(name, content)] = visible(files).items()
    assert name == f"out-0-{LINEAGE}-000000000007.parquet"
    table = parquet.read_table(arrow.BufferReader(content))
    assert table.to_pylist() == [{"word": "be", "times": 2}, {"word": "to", "times": 3}]


def test_if_both_files_are_gone_the_error_names_them(files: Closing, folder: str) -> None:
    sink = opened(folder)
    handle = sink.stage(7, [b"a"])
    files.delete(STAGING)
    with pytest.raises(SquallError, match=rf"/{STAGING}/{handle['staged']} is gone, and there is no "):
        sink.commit(7, handle)


def test_a_file_with_other_rows_is_not_replaced(files: Closing, folder: str) -> None:
    sink = opened(folder)
    handle = sink.stage(7, [b"a"])
    files.replace(handle["name"], b"other\n")
    with pytest.raises(SquallError, match="is there already, with other rows"):
        sink.commit(7, handle)
    assert visible(files) == {handle["name"]: b"other\n"}
    files.replace(handle["name"], b"a\n")
    sink.commit(7, handle)
    assert staged(files) == 0


def test_what_a_killed_process_was_writing_is_removed_with_a_later_commit(
    files: Closing, folder: str
) -> None:
    sink = opened(folder)
    handle = sink.stage(7, [b"a"])
    half = f"{TMP}/{handle['staged'].replace('07.', '06.')}.1234"
    files.replace(half, b"half")
    files.replace(f"{TMP}/another-0-{LINEAGE}-000000000006.txt.5.6", b"of another")
    sink.commit(7, handle)
    assert not files.exists(half)
    assert [each.name.partition("-")[0] for each in files.list(TMP)] == ["another"]


def test_names_are_such_that_hdfs_takes_them(files: Closing) -> None:
    sink = FileSink("hdfs://namenode:9000/out")
    sink.lineage = LINEAGE
    sink.prepare(context_of("to: 100%", 0, 1, Surroundings()))
    sink.commit(1, sink.stage(1, [b"a"]))
    assert list(visible(files)) == [f"to%3A 100%25-0-{LINEAGE}-000000000001.txt"]


def test_a_store_that_is_away_is_waited_for_and_a_stopped_task_gives_up(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = Closing(flaky := FlakyFiles(KINDS[folder]()))
    monkeypatch.setattr(OPEN, lambda path, conf: away)
    flaky.away, pauses = True, []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        flaky.away = len(pauses) < 20

    monkeypatch.setattr("squall_io.files.store_staging.sleep", sleep)
    sink = opened(folder)
    handle = sink.stage(1, [b"a"])
    assert 20 <= len(pauses) < 60 and max(pauses) <= 0.2
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.partition(":")[0] for text in warned] == [f"waits for {folder.partition(':')[0]}"]

    flaky.away = True
    monkeypatch.setattr("squall_io.files.store_staging.sleep", lambda seconds: None)
    sink._files._stopped = lambda: True  # type: ignore[union-attr]
    with pytest.raises(FilesUnavailable):
        sink.commit(1, handle)
    sink.cleanup()
    assert away.closed == 1


@pytest.mark.parametrize("seed", range(4))
def test_each_tuple_is_in_one_file_after_restarts_with_lost_answers(
    tmp_path: Path, folder: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, store = random.Random(seed), KINDS[folder]()
    flaky = FlakyFiles(store, random.Random(seed), chance=0.3)
    monkeypatch.setattr(OPEN, lambda path, conf: Closing(flaky))
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.5,
        "topology.workers": 2,
        "topology.require": "exactly-once",
    }
    for last in (False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Finite(300, 100), Pass(0.05), FileSink(folder, "jsonl")), conf)
            cluster.advance(60 if last else draw.uniform(0.1, 2.0))
    assert sorted(json.loads(line)["number"] for line in lines(store)) == list(range(300))
    assert len(flaky.failed) > 5


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"folder": "s3://bucket"}, "it is the root of a file system"),
        ({"folder": "hdfs://namenode:9000/a*"}, "would not take '*' in it literally"),
        ({"folder": "s3://bucket/table/_squall/data"}, "the folder that a table keeps its own files in"),
        ({"folder": "s3://user:secret@bucket/a"}, "it contains a password"),
        ({"folder": "abfss://box@account/a"}, "cannot be written to"),
        ({"conf": {"squall.s3.endpont": "http://minio:9000"}}, "did you mean 'squall.s3.endpoint'?"),
        ({"conf": {"squall.webhdfs.address": "hdfs://namenode"}}, "is not a WebHDFS address"),
        ({"conf": 5}, "conf is 5: give a dict of settings"),
        ({"folder": "/out", "conf": {}}, "it is for a folder of a store"),
        ({"folder": "out"}, "or name a store"),
    ],
)
def test_wrong_arguments_are_named(more: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        FileSink(**{"folder": "s3://bucket/out", **more})
    assert text in str(caught.value)
