"""KafkaSpout and KafkaSink over TLS, on a real broker that asks for a certificate."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.contracts.opened import Surroundings, context_of
from squall_io.kafka import KafkaSink, KafkaSpout
from squall_io.kafka.client import KafkaRefused
from tests.certificates import make_certificates
from tests.kafka_servers import KafkaServer, values_of
from tests.squall_io.kafka_tasks import KafkaSpoutTask

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow


def over_tls(kafka: KafkaServer, **more: str) -> dict[str, Any]:
    settings = {
        "security.protocol": "SSL",
        "ssl.ca.location": kafka.certificates.ca,
        "ssl.certificate.location": kafka.certificates.certificate,
        "ssl.key.location": kafka.certificates.key,
        **more,
    }
    return {"servers": kafka.tls_servers, "settings": settings}


def test_messages_are_read_and_written_over_tls(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, ["a", "b"])
    with KafkaSpoutTask(KafkaSpout(topic, decode="str", **over_tls(kafka))) as task:
        assert task.read(2) == ["a", "b"]
    around = Surroundings()
    sink = KafkaSink(topic, fields="v", encode="str", **over_tls(kafka))
    try:
        sink.prepare(context_of("write", 0, 1, around))
        assert sink.write(1, [(b"c", None)], 0, topic)
    finally:
        sink.cleanup()
        around.end()
    assert values_of(kafka.read(topic)) == [b"a", b"b", b"c"]


def test_a_certificate_of_another_authority_is_an_error_that_says_so(
    kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_certificates(tmp_path_factory.mktemp("other"))
    topic = kafka.create("orders")
    kafka.send(topic, ["a"])
    wrong = over_tls(kafka, **{"ssl.ca.location": other.ca})
    with KafkaSpoutTask(KafkaSpout(topic, decode="str", **wrong)) as task:
        task.until(lambda: task.errors)
        assert "check `security.protocol` and the `ssl.*` settings" in task.errors[0]
    around = Surroundings()
    sink = KafkaSink(topic, fields="v", encode="str", **wrong)
    try:
        sink.prepare(context_of("write", 0, 1, around))
        with pytest.raises(KafkaRefused, match=r"check `security.protocol` and the `ssl\.\*` settings"):
            sink.read_token("t")
    finally:
        sink.cleanup()
        around.end()
