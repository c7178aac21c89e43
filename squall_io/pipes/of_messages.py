"""The ends of pipes that are topics, queues and streams of messages.

Must not know: topologies.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from squall_io.pipes.addresses import PipeAddress, WrongAddress
from squall_io.pipes.making import (
    WHOLE,
    SinkEnd,
    SourceEnd,
    are_rows,
    made,
    with_payloads,
)
from topology_api.wording import shown


def kafka_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.kafka import KafkaSpout

    topics = tuple(address.below.split(","))
    spout = made(KafkaSpout, address, topics, servers=address.authority)
    rows = spout.schema is None and "value" in spout.fields and spout.decode == "json"
    return SourceEnd(spout, None if rows and len(spout.fields) == 1 else tuple(spout.outputs["default"]))


def kafka_topic(address: PipeAddress) -> SinkEnd:
    from squall_io.kafka import KafkaSink

    if any(name == "fields" for name, _ in address.options):
        sink = made(KafkaSink, address, address.below, servers=address.authority)
        return SinkEnd(sink, tuple(sink.shape.used()))
    sink = made(KafkaSink, address, address.below, servers=address.authority, fields=WHOLE)
    return SinkEnd(sink, tuple(name for name in sink.shape.used() if name != WHOLE), WHOLE)


MQTT: Final = "mqtt://HOST/TOPIC"


def mqtt_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.mqtt import MqttSpout

    topics = tuple(address.below.split(","))
    spout = made(MqttSpout, address, topics, url=f"{address.scheme}://{address.authority}")
    return SourceEnd(spout, None if are_rows(spout) else spout.fields)


def mqtt_topic(address: PipeAddress) -> SinkEnd:
    from squall_io.mqtt import MqttSink

    url = f"{address.scheme}://{address.authority}"
    return with_payloads(MqttSink, address, address.below, url=url)


RABBITMQ: Final = "amqp://HOST:PORT/VHOST/NAME"


def rabbitmq_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.rabbitmq import RabbitSpout

    url, queue = _rabbitmq_url(address)
    spout = made(RabbitSpout, address, queue, url=url)
    return SourceEnd(spout, None if are_rows(spout) else spout.fields)


def rabbitmq_exchange(address: PipeAddress) -> SinkEnd:
    from squall_io.rabbitmq import RabbitSink

    url, exchange = _rabbitmq_url(address)
    return with_payloads(RabbitSink, address, exchange, url=url)


def _rabbitmq_url(address: PipeAddress) -> tuple[str, str]:
    """Return the URL of the server with its virtual host, and the queue or exchange. Without a virtual host it is the default
    one."""
    server, _, path = address.place[2:].partition("/")
    vhost, mark, name = path.partition("/")
    if not mark:
        vhost, name = "", vhost
    return f"{address.scheme}://{server}/{vhost}", unquote(name)


NATS: Final = "nats://HOST/NAME"


def _nats_url(address: PipeAddress) -> str:
    return f"{'tls' if address.scheme.endswith('+tls') else 'nats'}://{address.authority}"


def nats_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.nats import NatsSpout

    if not any(name == "consumer" for name, _ in address.options):
        raise WrongAddress(f"{shown(address.text)}: NatsSpout needs consumer=")
    spout = made(NatsSpout, address, address.below, url=_nats_url(address))
    return SourceEnd(spout, None if are_rows(spout) else spout.fields)


def nats_subject(address: PipeAddress) -> SinkEnd:
    from squall_io.nats import NatsSink

    return with_payloads(NatsSink, address, address.below, url=_nats_url(address))


def kinesis_records(address: PipeAddress) -> SourceEnd:
    from squall_io.aws import KinesisSpout

    spout = made(KinesisSpout, address, address.below, region=address.authority or None)
    return SourceEnd(spout, None if are_rows(spout) else spout.fields)


def kinesis_stream(address: PipeAddress) -> SinkEnd:
    from squall_io.aws import KinesisSink

    if all(name != "key" for name, _ in address.options):
        raise WrongAddress(
            f"{shown(address.text)}: KinesisSink needs key=, the field that is the partition key"
        )
    return with_payloads(KinesisSink, address, address.below, region=address.authority or None)


def sqs_messages(address: PipeAddress) -> SourceEnd:
    from squall_io.aws import SqsSpout

    spout = made(SqsSpout, address, address.below, region=address.authority or None)
    return SourceEnd(spout, None if are_rows(spout) else spout.fields)


def sqs_queue(address: PipeAddress) -> SinkEnd:
    from squall_io.aws import SqsSink

    return with_payloads(SqsSink, address, address.below, region=address.authority or None)
