"""Every connector of a topology with epochs keeps its contract: see `local_cluster.testing.check_...`."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from local_cluster.contracts import token_sinks
from local_cluster.testing import check_rewindable_spout, check_staged_sink, check_token_sink
from squall_io.files import FileSink, FileSpout
from squall_io.kafka import KafkaSink, KafkaSpout
from squall_io.redis import RedisSink, RedisStreamSink, RedisStreamSpout
from squall_io.spark import CommittedRows, HdfsLines
from squall_io.spark.stores import open_files
from squall_io.sql import SqlSink
from tests.kafka_servers import KafkaServer
from tests.redis_servers import RedisServer
from tests.spark.batches import SinkTask
from tests.sql_servers import PostgreSQL

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER NOT NULL CHECK (price > 0))"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in range(5):
        (folder / f"{name}.log").write_text("".join(f"{name} {number}\n" for number in range(12)))
    (folder / "0.log.gz").write_bytes(gzip.compress(b"packed 1\npacked 2\npacked 3"))
    return folder


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("follow", [True, False])
def test_file_spout(source: Path, follow: bool, parallelism: int) -> None:
    lines = [(f"{name} {number}",) for name in range(5) for number in range(12)]
    packed = [] if follow else [("packed 1",), ("packed 2",), ("packed 3",)]
    check_rewindable_spout(
        lambda: FileSpout(source, follow=follow),
        lines + packed,
        parallelism=parallelism,
        lose=lambda: shutil.rmtree(source),
    )


@pytest.mark.parametrize("parallelism", [1, 2])
def test_hdfs_lines(source: Path, parallelism: int) -> None:
    (source / "0.log.gz").unlink()
    check_rewindable_spout(
        lambda: HdfsLines(f"file://{source}"),
        [(f"{name} {number}",) for name in range(5) for number in range(12)],
        parallelism=parallelism,
        lose=lambda: shutil.rmtree(source),
    )


def committed_rows(table: Path) -> list[tuple[Any, ...]]:
    """Commit the rows of two tasks to a table, as a sink does; return them."""
    pytest.importorskip("pyspark")  # it has to be installed where a table is read; it is not started
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = open_files(str(table))
    tasks = [SinkTask(files, "line string, number long", index=index) for index in range(2)]
    rows = [(f"line {number}", number) for number in range(30)]
    for batch in range(6):
        own = rows[5 * batch : 5 * batch + 5]
        data = io.BytesIO()
        columns = {"line": [line for line, _ in own], "number": [number for _, number in own]}
        parquet.write_table(pyarrow.table(columns), data)
        tasks[batch % 2].put({"part-0.parquet": data.getvalue()}, rows=len(own), committed=float(batch))
    return rows


@pytest.mark.parametrize(
    ("follow", "parallelism"),
    [
        (True, 2),
        (False, 1),
        *(pytest.param(*more, marks=pytest.mark.soak) for more in ((True, 1), (False, 2))),
    ],
)
def test_committed_rows(tmp_path: Path, follow: bool, parallelism: int) -> None:
    rows = committed_rows(tmp_path / "table")
    check_rewindable_spout(
        lambda: CommittedRows(f"{tmp_path}/table", ["number", "line"], follow=follow),
        [(number, line) for line, number in rows],
        parallelism=parallelism,
        lose=lambda: shutil.rmtree(tmp_path / "table"),
    )


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a disk keeps without power is no part of this suite; waiting for it is most of the time."""
    monkeypatch.setattr("squall_io.files.staging.os.fsync", lambda file: None)


def file_lines(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_file():
            yield from path.read_text().splitlines()


@pytest.mark.parametrize("format", ["lines", "jsonl"])
def test_file_sink(tmp_path: Path, format: str, no_sync: None) -> None:
    values: Callable[[int], dict[str, Any]] = lambda number: {"text": f"row {number}"}  # noqa: E731
    folder = tmp_path / "out"
    folder.mkdir()

    def visible() -> Iterator[Any]:
        return ((line,) if format == "lines" else json.loads(line) for line in file_lines(folder))

    def staged() -> int:
        return len(list((folder / ".staging").iterdir())) if (folder / ".staging").exists() else 0

    check_staged_sink(lambda: FileSink(folder, format), values, visible, staged=staged)


def test_file_sink_of_parquet(tmp_path: Path, no_sync: None) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "out"
    folder.mkdir()

    def visible() -> list[Any]:
        tables = [parquet.read_table(path) for path in folder.iterdir() if path.is_file()]
        return [row for table in tables for row in table.to_pylist()]

    check_staged_sink(
        lambda: FileSink(folder, "parquet", schema="text string"),
        lambda number: {"text": f"row {number}"},
        visible,
    )


def check_sql(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(ORDERS)

    def written() -> list[Any]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql("SELECT id, price FROM orders")]

    try:
        check_token_sink(
            lambda: SqlSink(url, "orders", ["id", "price"]),
            lambda number: {"id": number, "price": number + 1},
            written,
            refused=lambda number: {"id": number, "price": -1 - number},
        )
    finally:
        engine.dispose()


def test_sql_sink_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sync(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", without_sync)
    try:
        check_sql(f"sqlite:///{tmp_path}/shop.db")
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "connect", without_sync)


#: Promises that are tried at each line of the sink: there each of hundreds of tries begins new transactions.
AT_EACH_LINE = (
    "two processes may write at once",
    "rows may be made while write runs",
    "a process may be killed in write",
    "write may raise at any line",
    "a process may be killed while rows are refused",
)
#: The usual run tries the others, and all of them on SQLite, whose transactions cost least; `--soak` all on every server.
WHOLE = pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)


@pytest.fixture
def promises(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """The promises of sinks with tokens that a test tries."""
    if whole:
        return
    left = {name: each for name, each in token_sinks.PROMISES.items() if name not in AT_EACH_LINE}
    assert len(left) == len(token_sinks.PROMISES) - len(AT_EACH_LINE)
    monkeypatch.setattr(token_sinks, "PROMISES", left)


@pytest.mark.slow
@WHOLE
def test_sql_sink_on_postgresql(postgresql_database: PostgreSQL, promises: None) -> None:
    check_sql(postgresql_database.url)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2])
def test_kafka_spout(kafka: KafkaServer, parallelism: int) -> None:
    topic = kafka.create(partitions=3)
    for partition in range(3):
        kafka.send(topic, [f'"{partition} {number}"' for number in range(12)], partition=partition)
    check_rewindable_spout(
        lambda: KafkaSpout(topic, servers=kafka.servers),
        [(f"{partition} {number}",) for partition in range(3) for number in range(12)],
        parallelism=parallelism,
        lose=lambda: kafka.delete(topic),
    )


@pytest.mark.slow
@WHOLE
def test_kafka_sink(kafka: KafkaServer, promises: None) -> None:
    topic = kafka.create(partitions=2, settings={"max.message.bytes": "2000"})
    check_token_sink(
        lambda: KafkaSink(topic, servers=kafka.servers, key="k", fields="v", encode="str"),
        lambda number: {"k": str(number), "v": f"row {number}"},
        lambda: [(message.key().decode(), message.value().decode()) for message in kafka.read(topic)],
        refused=lambda number: {"k": str(number), "v": "x" * 3000},
    )


@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_redis_stream_spout(redis_server: RedisServer, parallelism: int) -> None:
    streams = [redis_server.name() for _ in range(4)]
    for number, stream in enumerate(streams):
        redis_server.add(stream, *(f"{number} {each}" for each in range(9)))
    check_rewindable_spout(
        lambda: RedisStreamSpout(streams, url=redis_server.url, field="value"),
        [(f"{number} {each}",) for number in range(4) for each in range(9)],
        parallelism=parallelism,
        lose=lambda: redis_server.client.delete(*streams),
    )


def test_redis_sink(redis_server: RedisServer) -> None:
    base, wrong = redis_server.name("counts"), redis_server.name("wrong")
    redis_server.client.set(f"{wrong}:x", "no hash")
    client = redis_server.client

    def written() -> list[Any]:
        keys = client.keys(f"{base}:*")
        with client.pipeline() as pipe:
            for key in keys:
                pipe.hgetall(key)
            return [(base, key.rpartition(":")[2], row["n"]) for key, row in zip(keys, pipe.execute())]

    check_token_sink(
        lambda: RedisSink("{base}:{word}", url=redis_server.url, fields=["n"]),
        lambda number: {"base": base, "word": str(number), "n": str(number + 1)},
        written,
        refused=lambda number: {"base": wrong, "word": "x", "n": str(number)},
    )


@WHOLE  # RedisSink has the same transactions
def test_redis_stream_sink(redis_server: RedisServer, promises: None) -> None:
    stream, wrong = redis_server.name("out"), redis_server.name("wrong")
    redis_server.client.set(wrong, "no stream")
    check_token_sink(
        lambda: RedisStreamSink("{to}", url=redis_server.url),
        lambda number: {"to": stream, "text": f"row {number}"},
        lambda: [(entry["to"], entry["text"]) for _, entry in redis_server.client.xrange(stream)],
        refused=lambda number: {"to": wrong, "text": f"row {number}"},
    )
