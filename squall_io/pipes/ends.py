"""The table of schemes: which connector an address names, as the source and as the sink of a pipe.

Connectors are imported where an address names them, so that a pipe needs no other library than its own.
Must not know: topologies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

from squall_io.pipes.addresses import PipeAddress, WrongAddress, arguments_of, parse_address
from topology_api import Bolt, Fields, Spout
from topology_api.wording import listed, shown

#: What an address begins with if it names a table that Spark writes: `spark+hdfs://`, `spark+file:`.
SPARK: Final = "spark+"


class SinkEnd(NamedTuple):
    """A sink, and the fields that it takes; None: those of the stream, whatever they are. whole: the field in which it takes a
    row as a whole."""

    bolt: Bolt
    fields: tuple[str, ...] | None
    whole: str | None = None


class SourceEnd(NamedTuple):
    """A spout, and the fields of its rows; None: its tuples have one value, a dict, whose keys are the fields."""

    spout: Spout
    fields: tuple[str, ...] | None


class Scheme(NamedTuple):
    """What addresses of some schemes name. form: how they are written, for people."""

    form: str
    source: Callable[[PipeAddress], SourceEnd] | None
    sink: Callable[[PipeAddress], SinkEnd] | None


def source_of(text: str) -> SourceEnd:
    """Return the source that an address names. Raises WrongAddress, or what the connector raises for its arguments."""
    address = parse_address(text)
    scheme = _scheme(address)
    if scheme.source is None:
        raise WrongAddress(
            f"{shown(text)}: {address.scheme}: names no source, only a sink; sources: {_forms(True)}"
        )
    return scheme.source(address)


def sink_of(text: str) -> SinkEnd:
    """Return the sink that an address names. Raises as `source_of` does."""
    address = parse_address(text)
    scheme = _scheme(address)
    if scheme.sink is None:
        raise WrongAddress(
            f"{shown(text)}: {address.scheme}: names no sink, only a source; sinks: {_forms(False)}"
        )
    return scheme.sink(address)


def _scheme(address: PipeAddress) -> Scheme:
    if address.scheme.startswith(SPARK):
        return SCHEMES[SPARK]
    found = SCHEMES.get(address.scheme.partition("+")[0])
    if found is None:
        raise WrongAddress(
            f"{shown(address.text)}: there is no scheme {address.scheme!r}; sources: {_forms(True)}; sinks: {_forms(False)}"
        )
    return found


def _forms(source: bool) -> str:
    ends = [each for each in SCHEMES.values() if (each.source if source else each.sink) is not None]
    return listed(dict.fromkeys(each.form for each in ends)).replace("'", "")


def _made(component: Callable[..., Any], address: PipeAddress, *given: Any, **named: Any) -> Any:
    """Return a connector: `given` are its first arguments, `named` others, as the address' place says."""
    import inspect

    first = list(inspect.signature(component).parameters)[: len(given)]
    options = arguments_of(component, address, {*first, *named})  # type: ignore[arg-type]
    return component(*given, **named, **options)


def _with_fields(spout: Spout) -> SourceEnd:
    outputs = spout.outputs
    assert isinstance(outputs, Fields)
    return SourceEnd(spout, tuple(outputs))


# Files.


def _file_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.files import FileSpout

    return _with_fields(_made(FileSpout, address, address.path))


def _files(address: PipeAddress) -> SinkEnd:
    from squall_io.files import FileSink

    sink = _made(FileSink, address, address.path)
    return SinkEnd(sink, sink.fields)


def _hdfs_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import HdfsLines

    return _with_fields(_made(HdfsLines, address, f"{address.scheme}:{address.place}"))


# Tables that Spark writes.


def _spark_path(address: PipeAddress) -> str:
    scheme = address.scheme.removeprefix(SPARK)
    return f"file://{address.path}" if scheme == "file" else f"{scheme}:{address.place}"


def _committed_rows(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import CommittedRows

    return _with_fields(_made(CommittedRows, address, _spark_path(address)))


def _spark_table(address: PipeAddress) -> SinkEnd:
    from squall_io.spark import SparkSink

    sink = _made(SparkSink, address, _spark_path(address))
    return SinkEnd(sink, tuple(column.name for column in sink.settings.schema.columns))


# Kafka.

#: The field in which a `KafkaSink` or a `RedisStreamSink` gets whole rows.
_WHOLE: Final = "value"


def _kafka_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.kafka import KafkaSpout

    topics = tuple(address.below.split(","))
    spout = _made(KafkaSpout, address, topics, servers=address.authority)
    rows = spout.schema is None and "value" in spout.fields and spout.decode == "json"
    return SourceEnd(spout, None if rows and len(spout.fields) == 1 else tuple(spout.outputs["default"]))


def _kafka_topic(address: PipeAddress) -> SinkEnd:
    from squall_io.kafka import KafkaSink

    if any(name == "fields" for name, _ in address.options):
        sink = _made(KafkaSink, address, address.below, servers=address.authority)
        return SinkEnd(sink, tuple(sink.shape.used()))
    sink = _made(KafkaSink, address, address.below, servers=address.authority, fields=_WHOLE)
    return SinkEnd(sink, tuple(name for name in sink.shape.used() if name != _WHOLE), _WHOLE)


# MQTT.

_MQTT: Final = "mqtt://HOST/TOPIC"


def _mqtt_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.mqtt import MqttSpout

    topics = tuple(address.below.split(","))
    spout = _made(MqttSpout, address, topics, url=f"{address.scheme}://{address.authority}")
    return SourceEnd(spout, None if _are_rows(spout) else spout.fields)


def _mqtt_topic(address: PipeAddress) -> SinkEnd:
    from squall_io.mqtt import MqttSink

    url = f"{address.scheme}://{address.authority}"
    return _with_payloads(MqttSink, address, address.below, url=url)


def _are_rows(spout: Any) -> bool:
    """Whether each tuple is one value of JSON, which is a row."""
    return tuple(spout.fields) == (_WHOLE,) and spout.decode == "json"


def _with_payloads(component: type, address: PipeAddress, *given: Any, **named: Any) -> SinkEnd:
    """Return a sink whose messages are made of `fields=`, or of whole rows."""
    if any(name == "fields" for name, _ in address.options):
        sink = _made(component, address, *given, **named)
        return SinkEnd(sink, tuple(sink.used_fields()))
    sink = _made(component, address, *given, **named, fields=_WHOLE)
    return SinkEnd(sink, tuple(name for name in sink.used_fields() if name != _WHOLE), _WHOLE)


# RabbitMQ.

_RABBITMQ: Final = "amqp://HOST:PORT/VHOST/NAME"


def _rabbitmq_url(address: PipeAddress) -> tuple[str, str]:
    """Return the URL of the server with its virtual host, and the queue or exchange. Without a virtual host it is the default
    one."""
    server, _, path = address.place[2:].partition("/")
    vhost, mark, name = path.partition("/")
    if not mark:
        vhost, name = "", vhost
    return f"{address.scheme}://{server}/{vhost}", unquote(name)


def _rabbitmq_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.rabbitmq import RabbitSpout

    url, queue = _rabbitmq_url(address)
    spout = _made(RabbitSpout, address, queue, url=url)
    return SourceEnd(spout, None if _are_rows(spout) else spout.fields)


def _rabbitmq_exchange(address: PipeAddress) -> SinkEnd:
    from squall_io.rabbitmq import RabbitSink

    url, exchange = _rabbitmq_url(address)
    return _with_payloads(RabbitSink, address, exchange, url=url)


# Redis.


def _redis_url(address: PipeAddress) -> tuple[PipeAddress, str, str]:
    """Return an address without the options of the server, the URL of the server, and what follows the database."""
    from squall_io.redis.address import OPTIONS, SENTINEL

    server, _, path = address.place[2:].partition("/")
    master, _, path = path.partition("/") if address.scheme.endswith(SENTINEL) else ("", "", path)
    database, _, key = path.partition("/")
    own = [each for each in address.options if each[0] not in OPTIONS]
    others = [each for each in address.options if each[0] in OPTIONS]
    if not database.isdecimal() or not key:
        raise WrongAddress(
            f"{shown(address.text)}: give the number of the database and a key: redis://HOST:PORT/0/orders"
        )
    url = f"{address.scheme}://{server}/{master}{'/' if master else ''}{database}"
    return (
        address._replace(options=tuple(own)),
        f"{url}{'?' if others else ''}{urlencode(others)}",
        unquote(key),
    )


def _redis_streams(address: PipeAddress) -> SourceEnd:
    from squall_io.redis import RedisStreamSpout

    own, url, keys = _redis_url(address)
    spout = _made(RedisStreamSpout, own, tuple(keys.split(",")), url=url)
    rows = (
        spout.schema is None
        and spout.fields == ("value",)
        and (spout.field is None or spout.decode == "json")
    )
    return SourceEnd(spout, None if rows else tuple(spout.outputs["default"]))


def _redis_keys(address: PipeAddress) -> SinkEnd:
    """Return a sink of keys if the key has fields in braces, else one of a stream: without `fields`, an entry has the whole row
    as JSON."""
    from squall_io.redis import RedisSink, RedisStreamSink

    own, url, key = _redis_url(address)
    if "{" in key:
        sink = _made(RedisSink, own, key, url=url)
        return SinkEnd(sink, tuple(sink.used()))
    named = {name for name, _ in own.options}
    if "fields" in named:
        entries = _made(RedisStreamSink, own, key, url=url)
        return SinkEnd(entries, tuple(entries.used()))
    given = {} if "field" in named else {"field": _WHOLE}
    return SinkEnd(_made(RedisStreamSink, own, key, url=url, fields=_WHOLE, **given), (), _WHOLE)


# Databases.


def _sql_table(address: PipeAddress) -> SinkEnd:
    from squall_io.sql import SqlSink

    sink = _of_database(SqlSink, address, "table", "columns")
    return SinkEnd(sink, tuple(sink.columns.values()))


def _sql_rows(address: PipeAddress) -> SourceEnd:
    from squall_io.sql import SqlTable

    return _with_fields(_of_database(SqlTable, address, "table", "columns", "order_by"))


def _of_postgresql(address: PipeAddress) -> SourceEnd:
    """Return rows of a table if the address names one, else the changes of a publication."""
    from squall_io.postgres import PostgresChanges

    if any(name == "table" for name, _ in address.options):
        return _sql_rows(address)
    return _with_fields(_of_database(PostgresChanges, address, "slot", "publication"))


def _of_database(component: type, address: PipeAddress, *needed: str) -> Any:
    """Return a connector of a database, whose URL has the options that are no arguments of the connector: the driver's."""
    own, url = _options_of(component, address)
    given = {name.partition(".")[0] for name, _ in own.options}
    if missing := [f"{name}=" for name in needed if name not in given]:
        raise WrongAddress(f"{shown(address.text)}: {component.__name__} needs {', '.join(missing)}")
    return _made(component, own, url)


def _options_of(component: type, address: PipeAddress) -> tuple[PipeAddress, str]:
    """Return an address with the options that are arguments of a connector, and a URL with all others: those of the driver."""
    import inspect

    known = inspect.signature(component).parameters
    own = [(name, text) for name, text in address.options if name.partition(".")[0] in known]
    others = [each for each in address.options if each not in own]
    url = f"{address.scheme}:{address.place}{'?' if others else ''}{urlencode(others)}"
    return address._replace(options=tuple(own)), url


#: By the part of the scheme before "+"; tables of Spark by `SPARK`.
SCHEMES: Final[dict[str, Scheme]] = {
    "file": Scheme("file:/PATH", _file_lines, _files),
    "hdfs": Scheme("hdfs://HOST:PORT/PATH", _hdfs_lines, None),
    "kafka": Scheme("kafka://HOST:PORT/TOPIC", _kafka_messages, _kafka_topic),
    "mqtt": Scheme(_MQTT, _mqtt_messages, _mqtt_topic),
    "mqtts": Scheme(_MQTT, _mqtt_messages, _mqtt_topic),
    "amqp": Scheme(_RABBITMQ, _rabbitmq_messages, _rabbitmq_exchange),
    "amqps": Scheme(_RABBITMQ, _rabbitmq_messages, _rabbitmq_exchange),
    "redis": Scheme("redis://HOST:PORT/DATABASE/KEY", _redis_streams, _redis_keys),
    "rediss": Scheme("redis://HOST:PORT/DATABASE/KEY", _redis_streams, _redis_keys),
    "postgresql": Scheme("postgresql://USER@HOST/DATABASE", _of_postgresql, _sql_table),
    "mysql": Scheme("mysql+DRIVER://USER@HOST/DATABASE", _sql_rows, _sql_table),
    "sqlite": Scheme("sqlite:///PATH", _sql_rows, _sql_table),
    SPARK: Scheme("spark+hdfs://HOST:PORT/PATH or spark+file:/PATH", _committed_rows, _spark_table),
}
