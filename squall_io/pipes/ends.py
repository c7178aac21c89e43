"""The table of schemes: which connector an address names, as the source and as the sink of a pipe.

Connectors are imported where an address names them, so that a pipe needs no other library than its own.
Must not know: topologies.
"""

from __future__ import annotations

from typing import Final

from squall_io.pipes import of_databases, of_files, of_messages, of_requests
from squall_io.pipes.addresses import PipeAddress, WrongAddress, parse_address
from squall_io.pipes.making import Scheme, SinkEnd, SourceEnd
from squall_io.pipes.of_files import SPARK
from topology_api.wording import listed, shown


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


#: By the part of the scheme before "+"; tables of Spark by `SPARK`.
SCHEMES: Final[dict[str, Scheme]] = {
    "file": Scheme("file:/PATH", of_files.file_lines, of_files.file_folder),
    "hdfs": Scheme("hdfs://HOST:PORT/PATH", of_files.store_lines, of_files.store_files),
    "s3": Scheme("s3://BUCKET/PATH", of_files.store_lines, of_files.store_files),
    "s3a": Scheme("s3://BUCKET/PATH", of_files.store_lines, of_files.store_files),
    "kafka": Scheme("kafka://HOST:PORT/TOPIC", of_messages.kafka_messages, of_messages.kafka_topic),
    "mqtt": Scheme(of_messages.MQTT, of_messages.mqtt_messages, of_messages.mqtt_topic),
    "mqtts": Scheme(of_messages.MQTT, of_messages.mqtt_messages, of_messages.mqtt_topic),
    "nats": Scheme(of_messages.NATS, of_messages.nats_messages, of_messages.nats_subject),
    "amqp": Scheme(of_messages.RABBITMQ, of_messages.rabbitmq_messages, of_messages.rabbitmq_exchange),
    "amqps": Scheme(of_messages.RABBITMQ, of_messages.rabbitmq_messages, of_messages.rabbitmq_exchange),
    "redis": Scheme("redis://HOST:PORT/DATABASE/KEY", of_databases.redis_streams, of_databases.redis_keys),
    "rediss": Scheme("redis://HOST:PORT/DATABASE/KEY", of_databases.redis_streams, of_databases.redis_keys),
    "http": Scheme("http://HOST:PORT/PATH", of_requests.received_posts, of_requests.sent_posts),
    "https": Scheme("https://HOST/PATH", None, of_requests.sent_posts),
    "postgresql": Scheme(
        "postgresql://USER@HOST/DATABASE", of_databases.postgresql_rows, of_databases.sql_table
    ),
    "kinesis": Scheme("kinesis://REGION/STREAM", of_messages.kinesis_records, of_messages.kinesis_stream),
    "sqs": Scheme("sqs://REGION/QUEUE", of_messages.sqs_messages, of_messages.sqs_queue),
    "mysql": Scheme("mysql+DRIVER://USER@HOST/DATABASE", of_databases.sql_rows, of_databases.sql_table),
    "sqlite": Scheme("sqlite:///PATH", of_databases.sql_rows, of_databases.sql_table),
    SPARK: Scheme(
        "spark+hdfs://HOST:PORT/PATH or spark+file:/PATH", of_files.committed_rows, of_files.spark_table
    ),
}
