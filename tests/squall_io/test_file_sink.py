"""FileSink: files that are complete when they are visible, whatever ends between the steps."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import signal
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout, run_bolt
from squall_io.files import FileSink
from tests.local_cluster.words_with_state import Finite, Pass, eventually, words_to_rows
from topology_api import Fields, InvalidConfig, InvalidTopology, SquallError, Topology, TopologyBuilder

LINEAGE = "0123456789abcdef"


def opened(folder: Path, lineage: str = LINEAGE, index: int = 0, **more: Any) -> FileSink:
    sink = FileSink(folder, **more)
    sink.lineage = lineage
    context: Any = SimpleNamespace(component="out", index=index, log=logging.getLogger("out"))
    sink.prepare(context)
    return sink


def visible(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.name != ".staging"}


def staged(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".staging").iterdir())


def test_a_file_is_visible_after_its_commit_however_often_that_is_made(tmp_path: Path) -> None:
    handle = opened(tmp_path).stage(7, [b"a", b"b"])
    assert visible(tmp_path) == {} and len(staged(tmp_path)) == 1
    for _ in range(3):
        opened(tmp_path).commit(7, json.loads(json.dumps(handle)))
        assert visible(tmp_path) == {f"out-0-{LINEAGE}-000000000007.txt": "a\nb\n"}
    assert staged(tmp_path) == []


def test_if_both_files_are_gone_the_error_names_them(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    handle = sink.stage(7, [b"a"])
    (tmp_path / ".staging" / handle["staged"]).unlink()
    with pytest.raises(SquallError) as caught:
        sink.commit(7, handle)
    assert (
        f"{tmp_path}/.staging/{handle['staged']} is gone, and there is no {tmp_path}/{handle['name']}"
        in str(caught.value)
    )


def test_a_file_with_other_rows_is_not_replaced(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    handle = sink.stage(7, [b"a"])
    (tmp_path / handle["name"]).write_text("other\n")
    with pytest.raises(SquallError, match="is there already, with other rows"):
        sink.commit(7, handle)
    (tmp_path / handle["name"]).write_text("a\n")
    sink.commit(7, handle)
    assert staged(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_what_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    sink = opened(tmp_path)

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(f"squall_io.files.staging.os.{call}", full)
        with pytest.raises(
            SquallError, match=rf"cannot write {tmp_path}/\.staging/out-0-.*: the disk is full"
        ):
            sink.stage(7, [b"a"])
    assert staged(tmp_path) == []
    sink.commit(7, sink.stage(7, [b"a"]))
    assert list(visible(tmp_path).values()) == ["a\n"]


def test_a_rename_that_fails_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(tmp_path)
    handle = sink.stage(7, [b"a"])
    with monkeypatch.context() as patched:
        patched.setattr(
            "squall_io.files.staging.os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "I/O"))
        )
        with pytest.raises(SquallError, match="cannot rename"):
            sink.commit(7, handle)
    opened(tmp_path).commit(7, handle)
    assert list(visible(tmp_path).values()) == ["a\n"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"folder": "out"}, "write it from the root"),
        ({"folder": 5}, "folder is 5"),
        ({"format": "csv"}, "format is 'csv' (str): give one of 'lines', 'jsonl', 'parquet'"),
        ({"format": "parquet"}, "format 'parquet' needs schema="),
        ({"format": "parquet", "schema": "a strin"}, "strin"),
        ({"format": "parquet", "schema": "a int", "fields": "a"}, "the names in schema say what is written"),
        ({"schema": "a int"}, "it is for format 'parquet', and the format is 'lines'"),
        ({"fields": ["a", "b"]}, "format 'lines' writes one field"),
        ({"fields": []}, "give names of fields"),
        ({"fields": [1], "format": "jsonl"}, "give names of fields"),
    ],
)
def test_wrong_arguments_are_named(more: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        FileSink(**{"folder": "/out", **more})
    assert text in str(caught.value)


def to_files(sink: FileSink, *fields: str) -> Topology:
    builder = TopologyBuilder("files")
    builder.set_spout("in", ScriptedSpout(Fields(*fields), []))
    builder.set_bolt("out", sink).shuffle_grouping("in")
    return builder.build()


def test_build_refuses_inputs_that_cannot_be_written() -> None:
    with pytest.raises(
        InvalidTopology, match="format 'lines' writes one field, and stream 'default' of component 'in' has 2"
    ):
        to_files(FileSink("/out"), "a", "b")
    with pytest.raises(InvalidTopology, match="stream 'default' of component 'in' has no field 'c' to write"):
        to_files(FileSink("/out", "jsonl", fields=["a", "c"]), "a", "b")
    to_files(FileSink("/out", fields="b"), "a", "b")
    to_files(FileSink("/out", "jsonl"), "a", "b")


@pytest.mark.parametrize(
    ("format", "value", "text"),
    [
        ("lines", 5, "field 'a': a line must be text, and the value is 5"),
        ("lines", "a\nb", "field 'a': the value has a line break"),
        ("lines", "\ud800", "field 'a': the text cannot be encoded as UTF-8"),
        ("jsonl", b"x", "field 'a': JSON does not have the value"),
        ("jsonl", float("nan"), "field 'a': JSON does not have the value"),
        ("jsonl", [{1: 2}], "field 'a': keys in JSON are text"),
        ("jsonl", "\ud800", "field 'a': the text cannot be encoded as UTF-8"),
    ],
)
def test_a_value_that_cannot_be_written_fails_with_a_reason(
    tmp_path: Path, format: str, value: Any, text: str
) -> None:
    run = run_bolt(FileSink(tmp_path, format), [{"a": value}, {"a": "good"}])
    [(_, failure)] = run.failed()
    assert text in str(failure.error)
    assert len(visible(tmp_path)) == 1 and "good" in "".join(visible(tmp_path).values())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_each_tuple_is_in_one_file_after_restarts(tmp_path: Path, seed: int, workers: int) -> None:
    draw, folder = random.Random(seed), tmp_path / "out"
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.5,
        "topology.workers": workers,
        "topology.require": "exactly-once",
    }
    for last in (False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Finite(300, 100), Pass(0.05), FileSink(folder, "jsonl")), conf)
            cluster.advance(60 if last else draw.uniform(0.1, 2.0))
    rows = [json.loads(line) for text in visible(folder).values() for line in text.splitlines()]
    assert sorted(row["number"] for row in rows) == list(range(300))
    assert set(rows[0]) == {"word", "number"}
    assert all("-rows-" in f"-{name}" for name in visible(folder))


@pytest.mark.slow
def test_each_tuple_is_in_one_file_when_the_worker_is_killed_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    with LocalCluster(processes=True) as cluster:
        cluster.submit(words_to_rows(Finite(3_000, 1_000), Pass(0.01), FileSink(folder, "jsonl")), conf)
        for _ in range(3):
            eventually(lambda: any(worker.opened for worker in cluster.workers("words")) and folder.is_dir())
            before = len(visible(folder))
            eventually(lambda before=before: len(visible(folder)) > before)  # type: ignore[misc]
            [worker] = cluster.workers("words")
            os.kill(worker.pid, signal.SIGKILL)
            eventually(lambda worker=worker: all(each.pid != worker.pid for each in cluster.workers("words")))  # type: ignore[misc]
        cluster.wait("words", 60)
    rows = [json.loads(line) for text in visible(folder).values() for line in text.splitlines()]
    assert sorted(row["number"] for row in rows) == list(range(3_000))


SCHEMA = "word string NOT NULL, times bigint, price decimal(10,2), at timestamp, tags array<string>"
GOOD: dict[str, Any] = {
    "word": "größe", "times": 2**40, "price": Decimal("12.50"), "at": datetime(2026, 11, 28, 12, tzinfo=timezone.utc),
    "tags": ["a", None],
}  # fmt: skip


def test_parquet_files_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    nothing = {**dict.fromkeys(GOOD), "word": ""}
    run = run_bolt(
        FileSink(tmp_path, "parquet", schema=SCHEMA), [{**GOOD, "more": 1}, {**nothing, "more": 2}]
    )
    assert run.failed() == []
    [path] = [path for path in tmp_path.iterdir() if path.name != ".staging"]
    assert path.name.endswith(".parquet")
    table = pq.read_table(path)
    assert table.to_pylist() == [GOOD, nothing]
    assert [str(field.type) for field in table.schema] == [
        "string", "int64", "decimal128(10, 2)", "timestamp[us, tz=UTC]", "list<element: string>",
    ]  # fmt: skip
    assert not table.schema.field("word").nullable


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("word", None, "field 'word'"),
        ("word", 5, "field 'word'"),
        ("times", 2**63, "field 'times'"),
        ("times", "7", "field 'times'"),
        ("price", Decimal("0.001"), "field 'price'"),
        ("at", datetime(2026, 11, 28), "field 'at'"),
        ("tags", ["a", 7], "field 'tags[1]'"),
    ],
)
def test_a_value_that_does_not_fit_its_column_fails_alone(
    tmp_path: Path, field: str, value: Any, text: str
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    run = run_bolt(FileSink(tmp_path, "parquet", schema=SCHEMA), [{**GOOD, field: value}, GOOD])
    [(_, failure)] = run.failed()
    assert text in str(failure.error)
    [path] = [path for path in tmp_path.iterdir() if path.name != ".staging"]
    assert pq.read_table(path).to_pylist() == [GOOD]


def test_without_pyarrow_the_sink_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.files.parquet.find_spec", lambda name: None)
    with pytest.raises(SquallError, match="install Squall with its extra `parquet`"):
        opened(tmp_path, format="parquet", schema="a int")


def test_build_refuses_inputs_without_a_column() -> None:
    with pytest.raises(InvalidTopology, match="has no field 'c' to write"):
        to_files(FileSink("/out", "parquet", schema="a int, c string"), "a", "b")
    to_files(FileSink("/out", "parquet", schema="b string"), "a", "b")


def test_each_tuple_is_in_one_parquet_file_after_restarts(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    draw, folder = random.Random(5), tmp_path / "out"
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.5,
        "topology.workers": 2,
    }
    for last in (False, False, True):
        sink = FileSink(folder, "parquet", schema="number bigint, word string")
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Finite(300, 100), Pass(0.05), sink), conf)
            cluster.advance(60 if last else draw.uniform(0.4, 1.5))
    names = sorted(path.name for path in folder.iterdir() if path.name != ".staging")
    assert sorted(pq.read_table(folder)["number"].to_pylist()) == list(range(300))
    assert len(names) > 3 and all(name.endswith(".parquet") for name in names)
