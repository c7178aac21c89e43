"""A Spark driver that a sink or a command starts gives no answer to a client without its secret."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: Types of messages of Spark's network protocol.
REQUEST, RESPONSE, FAILURE = 3, 4, 5
CAP = 30.0


def serialized_question(spark: SparkSession) -> bytes:
    """Whether the driver has a certain endpoint, as Spark asks it itself: an object in Java's serialization."""
    context: Any = spark.sparkContext
    java = context._jvm.java
    kind = java.lang.Class.forName("org.apache.spark.rpc.netty.RpcEndpointVerifier$CheckExistence")
    arguments = context._gateway.new_array(java.lang.Object, 1)
    arguments[0] = "HeartbeatReceiver"
    out = java.io.ByteArrayOutputStream()
    objects = java.io.ObjectOutputStream(out)
    objects.writeObject(kind.getConstructors()[0].newInstance(arguments))
    objects.flush()
    return bytes(out.toByteArray())


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def asked(port: int, question: bytes) -> tuple[int, bytes]:
    """The type and the bytes of the driver's answer to a stranger."""
    receiver = b"\1" + text("127.0.0.1") + struct.pack(">i", port) + text("endpoint-verifier")
    body = b"\0" + receiver + question  # no address of the sender
    message = struct.pack(">BqI", REQUEST, 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), CAP) as connection:
        connection.settimeout(CAP)
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        answer = connection.recv(4096)
    return answer[8], answer


def test_the_driver_of_a_local_master_answers_no_stranger(spark: SparkSession) -> None:
    port = int(str(spark.sparkContext.getConf().get("spark.driver.port")))
    kind, answer = asked(port, serialized_question(spark))
    assert kind == FAILURE, "without authentication the answer is a serialized `true`"
    assert b"SaslMessage" in answer
    assert b"java.lang.Boolean" not in answer
