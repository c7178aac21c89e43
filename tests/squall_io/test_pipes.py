"""A topology from addresses: how they are read, what goes through, and what is refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import run_bolt
from squall_io.files import FileSink, FileSpout
from squall_io.kafka import KafkaSink, KafkaSpout
from squall_io.mqtt import MqttSink, MqttSpout
from squall_io.pipes import Pipe, topology_of
from squall_io.pipes.addresses import WrongAddress, arguments_of, parse_address
from squall_io.pipes.ends import sink_of, source_of
from squall_io.pipes.rows import MapRows
from squall_io.postgres import PostgresChanges
from squall_io.rabbitmq import RabbitSink, RabbitSpout
from squall_io.redis import RedisSink, RedisStreamSink, RedisStreamSpout
from squall_io.spark import CommittedRows, HdfsLines, SparkSink
from squall_io.sql import SqlSink, SqlTable
from topology_api import InvalidConfig, TopologyFailed


class Connector:
    """Has arguments of every kind."""

    def __init__(
        self,
        place: str,
        *,
        names: Sequence[str] = (),
        columns: Mapping[str, str] | Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        size: int = 1,
        wait: float | None = None,
        start: int | str = "",
        follow: bool = True,
        made: object = None,
    ) -> None: ...


def arguments(options: str) -> dict[str, Any]:
    return arguments_of(Connector, parse_address(f"x:y?{options}"), {"place"})


def test_the_parts_of_an_address() -> None:
    address = parse_address("kafka://a:9092,b:9092/a%20topic?start=latest&size=3")
    assert (address.scheme, address.authority, address.below) == ("kafka", "a:9092,b:9092", "a topic")
    assert address.options == (("start", "latest"), ("size", "3"))
    assert [parse_address(text).path for text in ("file:/a/*.log", "file:///a%3F", "FILE:/b")] == [
        "/a/*.log",
        "/a?",
        "/b",
    ]


def test_options_become_arguments_by_their_annotations() -> None:
    assert arguments(
        "names=a,b&size=3&wait=0.5&start=7&follow=no&settings.linger.ms=5&settings.acks=all"
    ) == {
        "names": ("a", "b"),
        "size": 3,
        "wait": 0.5,
        "start": 7,
        "follow": False,
        "settings": {"linger.ms": "5", "acks": "all"},
    }
    assert arguments("start=latest&names=one&columns=a,b") == {
        "start": "latest",
        "names": ("one",),
        "columns": ("a", "b"),
    }
    assert arguments("columns.id=order&columns.price=cost") == {"columns": {"id": "order", "price": "cost"}}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("sise=3", "there is no option 'sise'; did you mean 'size'?; Connector takes 'names', 'columns',"),
        ("place=z", "there is no option 'place'"),
        ("size=x", "size is 'x': give a whole number"),
        ("follow=maybe", "follow is 'maybe': give true or false"),
        ("made=1", "made is '1': an address cannot give it"),
        ("size=1&size=2", "size is given twice"),
        ("size=x&sise=3", "size is 'x'.*\n.*no option 'sise'"),
    ],
)
def test_options_that_do_not_fit_are_named(options: str, why: str) -> None:
    with pytest.raises(WrongAddress, match=why.replace("?", r"\?")):
        arguments(options)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/var/log/app.log", "is no address"),
        ("file:/a?", "write %3F"),
        ("file:/a?x", "NAME=VALUE"),
        ("kafak://h/t", "no scheme 'kafak'; sources: file:/PATH, hdfs://HOST:PORT/PATH"),
    ],
)
def test_a_text_that_is_no_address_says_what_one_is(text: str, why: str) -> None:
    with pytest.raises(WrongAddress, match=why):
        source_of(text)


def test_each_scheme_names_its_connector() -> None:
    source, fields = source_of("file:/in/*.log?fields=line,file")
    assert isinstance(source, FileSpout) and source.path == "/in/*.log" and fields == ("line", "file")
    lines = source_of("hdfs://n:9000/logs").spout
    assert isinstance(lines, HdfsLines) and lines.path == "hdfs://n:9000/logs"
    rows = source_of("spark+file:/tables/t?fields=id,price").spout
    assert (
        isinstance(rows, CommittedRows) and rows.path == "file:///tables/t" and rows.fields == ("id", "price")
    )
    sink, wanted, _ = sink_of("file:/out?format=jsonl")
    assert isinstance(sink, FileSink) and sink.folder == "/out" and wanted is None
    table, columns, _ = sink_of("spark+hdfs://n:9000/t?schema=id long, price double&partition_by=id")
    assert isinstance(table, SparkSink) and columns == ("id", "price")
    assert table.settings.path == "hdfs://n:9000/t"
    with pytest.raises(WrongAddress, match="names no sink, only a source; sinks: file:/PATH"):
        sink_of("hdfs://n:9000/t")
    with pytest.raises(InvalidConfig, match="format is 'xml'"):
        sink_of("file:/out?format=xml")


def test_queues_and_exchanges_of_rabbitmq() -> None:
    source = source_of("amqps://app@b:5673/shop/orders?password=env:PW&max_in_flight=50")
    spout = source.spout
    assert isinstance(spout, RabbitSpout)
    assert (spout.queue, spout.server.url, spout.max_in_flight) == ("orders", "amqps://app@b:5673/shop", 50)
    assert source.fields is None
    named = source_of("amqp://b/orders%2Fnew?fields=routing_key,value")
    assert named.fields == ("routing_key", "value")
    assert isinstance(named.spout, RabbitSpout) and named.spout.queue == "orders/new"
    sink, wanted, whole = sink_of("amqp://b/%2F/orders?routing_key=new")
    assert isinstance(sink, RabbitSink)
    assert (sink.exchange, sink.routing_key, sink.server.url) == ("orders", "new", "amqp://b/%2F")
    assert (wanted, whole) == ((), "value")
    queue = sink_of("amqp://b/shop/?routing_key=orders&fields=id,price")
    assert isinstance(queue.bolt, RabbitSink)
    assert (queue.bolt.exchange, queue.bolt.server.url, queue.fields) == (
        "",
        "amqp://b/shop",
        ("id", "price"),
    )


def test_topics_of_mqtt() -> None:
    source = source_of("mqtts://app@b:8884/shop/+/orders,a/#?group=g&tls.ca=/ca.pem&password=env:PW")
    spout = source.spout
    assert isinstance(spout, MqttSpout)
    assert spout.topics == ("shop/+/orders", "a/#")
    assert (spout.broker.url, spout.group, source.fields) == ("mqtts://app@b:8884", "g", None)
    assert source_of("mqtt://b/t?fields=topic,value").fields == ("topic", "value")
    sink, wanted, whole = sink_of("mqtt://b/shop/orders?retain=true")
    assert isinstance(sink, MqttSink)
    assert (sink.topic, sink.retain, wanted, whole) == ("shop/orders", True, (), "value")
    assert sink_of("mqtt://b/t?fields=id,price")[1:] == (("id", "price"), None)


def test_kafka_and_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    source, fields = source_of(
        "kafka://a:9092,b:9092/orders,clicks?group=shop&start=latest&settings.client.id=x"
    )
    assert isinstance(source, KafkaSpout) and source.topics == ("orders", "clicks") and fields is None
    assert (source.servers, source.group, source.settings) == ("a:9092,b:9092", "shop", {"client.id": "x"})
    assert source_of("kafka://a:9092/t?schema=id long").fields == ("id",)
    timed = source_of("kafka://a:9092/t?start=2026-11-29T10:00:00Z").spout
    assert isinstance(timed, KafkaSpout)
    assert timed.start == datetime(2026, 11, 29, 10, tzinfo=timezone.utc)
    for wrong, why in (
        ("yesterday", "a datetime or ISO text"),
        ("2026-11-29T10:00:00", "without a time zone"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            source_of(f"kafka://a:9092/t?start={wrong}")
    assert source_of("kafka://a:9092/t?fields=key,value").fields == ("key", "value")
    sink, wanted, whole = sink_of("kafka://a:9092/totals?key=id")
    assert isinstance(sink, KafkaSink) and (sink.topic, wanted, whole) == ("totals", ("id",), "value")
    assert sink_of("kafka://a:9092/totals?key=id&fields=id,price")[1:] == (("id", "price"), None)
    url = (
        "postgresql+psycopg://app@db/shop?sslmode=require&table=orders&columns=id,price&key=id&password=env:P"
    )
    table, columns, _ = sink_of(url)
    assert isinstance(table, SqlSink) and columns == ("id", "price") and table.key == ("id",)
    assert table.url == "postgresql+psycopg://app@db/shop?sslmode=require" and table.password == "env:P"
    renamed = sink_of("sqlite:////tmp/x.db?table=t&columns.id=order").bolt
    assert isinstance(renamed, SqlSink) and renamed.columns == {"id": "order"}
    changes = source_of(
        "postgresql://app@db/shop?slot=squall&publication=all&create=true&tables=public.a"
    ).spout
    assert (
        isinstance(changes, PostgresChanges) and changes.create and changes.url == "postgresql://app@db/shop"
    )
    rows = source_of("sqlite:////tmp/x.db?table=t&columns=id,price&order_by=id&follow=false&lag=0.5")
    assert isinstance(rows.spout, SqlTable) and rows.fields == ("id", "price") and not rows.spout.follow
    for text, why in (
        ("sqlite:////tmp/x.db?table=t", "SqlSink needs columns="),
        ("postgresql://app@db/shop?slot=a", "PostgresChanges needs publication="),
        ("sqlite:////tmp/x.db", "SqlSink needs table=, columns="),
    ):
        with pytest.raises(WrongAddress, match=why):
            (source_of if "slot" in text else sink_of)(text)


def test_redis() -> None:
    source, fields = source_of("redis://app@a:6379/2/orders,clicks?group=shop&password=env:P&client_name=x")
    assert isinstance(source, RedisStreamSpout) and source.streams == ("orders", "clicks") and fields is None
    assert (source.url, source.password) == ("redis://app@a:6379/2?client_name=x", "env:P")
    assert source_of("rediss://a/0/t?schema=id long").fields == ("id",)
    watched = source_of("redis+sentinel://app@a,b:1/main/2/orders%20new").spout
    assert isinstance(watched, RedisStreamSpout)
    assert (watched.url, watched.streams) == ("redis+sentinel://app@a,b:1/main/2", ("orders new",))
    assert source_of("redis://a/0/t?field=value&decode=json").fields is None
    assert source_of("redis://a/0/t?field=value").fields == ("value",)
    keys, wanted, whole = sink_of("redis://a/0/count:{word}?value=count&ttl=60")
    assert isinstance(keys, RedisSink) and (keys.key, keys.ttl) == ("count:{word}", 60)
    assert (wanted, whole) == (("word", "count"), None)
    stream, wanted, whole = sink_of("redis://a/0/out?maxlen=1000")
    assert isinstance(stream, RedisStreamSink) and (stream.stream, stream.field, stream.maxlen) == (
        "out", "value", 1000,
    )  # fmt: skip
    assert (wanted, whole) == ((), "value")
    assert sink_of("redis://a/0/out?fields=id,price")[1:] == (("id", "price"), None)
    for text in ("redis://a/orders", "redis://a/0", "redis://a/0/"):
        with pytest.raises(WrongAddress, match="give the number of the database and a key"):
            source_of(text)
    with pytest.raises(InvalidConfig, match="a topology holds no secrets"):
        source_of("redis://app:secret@a/0/orders")


# What goes through.


def test_a_row_may_go_as_a_whole_beside_its_key() -> None:
    bolt = MapRows(["id"], lambda row: {**row, "more": 1}, whole="value")
    found = run_bolt(bolt, [{"id": 5, "word": "a"}])
    assert list(bolt.fields) == ["id"] and found.emitted("default") == [
        (5, {"id": 5, "word": "a", "more": 1})
    ]


def written(folder: Path) -> list[Any]:
    return [
        json.loads(line)
        for path in sorted(folder.iterdir())
        if path.is_file()
        for line in path.read_text().splitlines()
    ]


def run(pipe: Pipe) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology_of([pipe]))
        cluster.wait("pipe", 60)


@pytest.fixture
def source(tmp_path: Path) -> str:
    rows = [{"id": number, "word": word} for number, word in enumerate("abc")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file:{tmp_path}/in.jsonl?format=jsonl&schema=id long, word string&follow=false"


def test_rows_go_through_as_they_are(source: str, tmp_path: Path) -> None:
    topology = topology_of([Pipe(source, f"file:{tmp_path}/out?format=jsonl")])
    assert [component.id for component in topology.components] == ["source", "sink"]
    run(Pipe(source, f"file:{tmp_path}/out?format=jsonl"))
    assert written(tmp_path / "out") == [{"id": n, "word": word} for n, word in enumerate("abc")]


def test_a_function_changes_drops_and_multiplies_rows(source: str, tmp_path: Path) -> None:
    def function(row: dict[str, Any]) -> Any:
        return [{"word": row["word"].upper()}] * row["id"] if row["id"] != 1 else None

    run(Pipe(source, f"file:{tmp_path}/out?format=jsonl&fields=word", function))
    assert written(tmp_path / "out") == [{"word": "C"}] * 2


def test_a_row_without_a_field_fails_alone_and_a_function_that_returns_no_row_is_named(
    source: str, tmp_path: Path
) -> None:
    def forgetful(row: dict[str, Any]) -> Any:
        return {} if row["id"] == 0 else 5 if row["id"] == 1 else {"word": "kept"}

    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            topology_of([Pipe(source, f"file:{tmp_path}/out?format=jsonl&fields=word", forgetful)])
        )
        cluster.advance(600.0)
        status = cluster.last_status("pipe")
    assert written(tmp_path / "out") == [{"word": "kept"}]
    assert status.components["source"].failed == 2
    texts = [report.text for report in status.errors]
    assert "given up: failed in map[2] after 3 attempts: the row has no 'word'; it has none" in texts
    assert any("forgetful returned 5 (int): return a dict, several dicts, or None" in text for text in texts)


def test_what_does_not_fit_is_refused_before_anything_runs(source: str, tmp_path: Path) -> None:
    with pytest.raises(WrongAddress, match=r"out\?fields=wrod writes 'wrod', and .* has 'id', 'word'"):
        topology_of([Pipe(source, "file:/out?fields=wrod")])
    with pytest.raises(WrongAddress, match=r"say which to write, with fields=A,B"):
        topology_of([Pipe(source, "file:/out?format=jsonl", dict)])
    with pytest.raises(InvalidConfig, match=r"tasks is 0 .*\n?.*"):
        Pipe(source, "file:/out", tasks=0)


def test_several_pipes_are_one_topology(source: str, tmp_path: Path) -> None:
    pipes = [Pipe(source, f"file:{tmp_path}/out{number}?format=jsonl", tasks=2) for number in range(2)]
    topology = topology_of(pipes, "both", {"topology.workers": 2})
    assert [each.id for each in topology.components] == ["source-1", "sink-1", "source-2", "sink-2"]
    assert {each.parallelism for each in topology.components} == {2} and topology.conf[
        "topology.workers"
    ] == 2


def test_a_source_that_finds_nothing_fails_the_topology(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology_of([Pipe(f"file:{tmp_path}/none?follow=false", f"file:{tmp_path}/out")]))
        with pytest.raises(TopologyFailed, match="there is nothing to read"):
            cluster.wait("pipe", 60)
