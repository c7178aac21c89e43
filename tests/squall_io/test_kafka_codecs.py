"""Codecs with a schema registry in the Kafka spout: a registry that is away loses no message. The registry is a stand-in."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from squall_io.kafka import KafkaSink, KafkaSpout
from squall_io.kit.codecs import CodecAway
from squall_io.kit.schemas import Avro
from tests.kafka_servers import ANSWER_SECS, KafkaServer
from tests.registry_stand_in import StandIn, registry
from tests.zookeeper_servers import eventually

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")
pytestmark = pytest.mark.slow

SCHEMA = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize("epochs", [False, True])
def test_messages_wait_for_their_registry(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch, epochs: bool
) -> None:
    topic = kafka.create()
    around = Surroundings()
    if not epochs:
        around.without_epochs()
    with registry() as there:
        url, port = there.url, int(there.url.rpartition(":")[2])
        sink = KafkaSink(topic, servers=kafka.servers, encode=Avro(url, schema=SCHEMA))
        sink.prepare(context_of("write", 0, 1, around))
        sink.execute_batch(tuples_of([{"id": number} for number in range(3)]))
        assert list(there.subjects) == [f"{topic}-value"]
        [waiting] = tuples_of([{"id": 3}])
    later = KafkaSink(topic, servers=kafka.servers, encode=Avro(url, schema=SCHEMA))
    later.prepare(context_of("write", 0, 1, around))
    with pytest.raises(CodecAway):
        later.row(waiting)

    spout = KafkaSpout(topic, servers=kafka.servers, decode=Avro(url))
    shown: list[Any] = []
    emitted: list[Any] = []
    context = context_of("read", 0, 1, around)
    context._progress = shown.append
    spout.open(context)
    if epochs:
        spout.rewind(None)
    monkeypatch.setattr(spout, "emit_many", lambda rows, **more: emitted.extend(values[0] for values in rows))

    def called(until: Any) -> None:
        def once() -> bool:
            spout.next_tuple()
            return bool(until())

        eventually(once, ANSWER_SECS, every=0.05)

    called(lambda: any("does not answer" in str(text) for text in shown))
    assert emitted == []
    with registry(port, StandIn()) as back:
        back.add(f"{topic}-value", SCHEMA)
        assert later.row(waiting)
        called(lambda: len(emitted) >= 3)
    assert emitted == [{"id": number} for number in range(3)]
    assert shown[-1] == ""
    spout.close()
    for each in (sink, later):
        each.cleanup()
    around.end()
