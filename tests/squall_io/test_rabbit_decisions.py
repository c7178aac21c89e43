"""What RabbitMQ's connectors decide without a server: acknowledgements, errors, confirmations, and arguments."""

from __future__ import annotations

import pytest

from squall_io.kit.publishing import Confirmations
from squall_io.rabbitmq import RabbitSink, RabbitSpout
from squall_io.rabbitmq.confirming import RabbitMessage, Sending
from squall_io.rabbitmq.faults import RabbitAway, RabbitRefused, explained, largest_of
from squall_io.rabbitmq.settling import acknowledgements
from topology_api import InvalidConfig


def test_acks_are_sent_as_one_where_no_message_before_them_is_open() -> None:
    assert acknowledgements([1, 2, 3], [2, 1]) == [(2, True)]
    assert acknowledgements([1, 2, 3], [1]) == [(1, False)]
    assert acknowledgements([4, 5, 6, 7], [7, 4, 5]) == [(5, True), (7, False)]
    assert acknowledgements([4, 5], [5]) == [(5, False)]
    assert acknowledgements([], []) == []


@pytest.mark.parametrize(
    ("code", "text", "kind", "words"),
    [
        (320, "CONNECTION_FORCED - broker forced connection closure", RabbitAway, "broker forced"),
        (541, "INTERNAL_ERROR", RabbitAway, "INTERNAL_ERROR"),
        (404, "NOT_FOUND - home node 'r@h' of durable queue 'q' is down or inaccessible", RabbitAway, "home node"),
        (404, "NOT_FOUND - no exchange 'x' in vhost '/'", RabbitRefused, "MQ has no exchange 'x' in vhost '/': declare"),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", RabbitRefused, "another client has it"),
        (
            406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out.", RabbitRefused, "consumer_timeout",
        ),
        (540, "NOT_IMPLEMENTED - x", RabbitRefused, "MQ refuses it: x (540)"),
    ],
)  # fmt: skip
def test_what_the_server_says_is_waited_for_or_explained(
    code: int, text: str, kind: type, words: str
) -> None:
    found = explained("MQ", code, text)
    assert type(found) is kind and words in str(found)


def test_wrong_arguments_of_the_spout_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        RabbitSpout(
            "", url="amqp://app:pw@h", fields=["key"], decode="xml", password="pw", tls={"ca": "ca.pem"}, failed="drop",
            max_in_flight=0,
        )  # fmt: skip
    text = str(found.value)
    for part in (
        "queue is ''", "url has a password", "password has the secret itself", "absolute paths", "max_in_flight is 0",
        "fields are", "decode is", "failed is 'drop'",
    ):  # fmt: skip
        assert part in text
    for url in ("http://h", "amqp://", "amqp://h:x"):
        with pytest.raises(InvalidConfig, match="amqp://HOST:PORT"):
            RabbitSpout("q", url=url)
    with pytest.raises(InvalidConfig, match="write %2F"):
        RabbitSpout("q", url="amqp://h/a/b")


def test_the_largest_message_is_read_from_what_the_server_says() -> None:
    assert (
        largest_of(406, "PRECONDITION_FAILED - message size 200002 is larger than configured max size 100000")
        == 100_000
    )
    assert largest_of(406, "PRECONDITION_FAILED - message size 2 is larger than max size 1") == 1
    assert largest_of(406, "PRECONDITION_FAILED - unknown delivery tag 7") is None
    assert largest_of(404, "larger than max size 1") is None


def made(*bodies: str) -> list[RabbitMessage]:
    return [RabbitMessage("key", body.encode(), {}, None, None) for body in bodies]


def test_confirmations_and_returns_find_their_messages() -> None:
    confirmations = Confirmations(6)
    sending = Sending("x", made("a", "b", "a", "c", "d", "e"), [0, 1, 2, 3, 4, 5], confirmations, 11)
    assert [each.body for each in sending.due()] == [b"a", b"b", b"a", b"c", b"d", b"e"]
    sending.returned(made("a")[0].content, "NO_ROUTE")
    sending.returned(made("a")[0].content, "NO_ROUTE")
    sending.confirmed(13, True)
    assert list(confirmations.reasons) == [0, 2] and confirmations.left == [3, 4, 5]
    sending.refused_for_now(14, False)
    sending.confirmed(16, False)
    assert (confirmations.left, sending.put_off, sending.is_done) == ([3, 4], 1, False)
    sending.confirmed(15, False)
    assert (confirmations.left, sending.is_done, sending.next_number) == ([3], True, 17)


def test_wrong_arguments_of_the_sink_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        RabbitSink(
            "x" * 256, url="amqp://app:pw@h", routing_key=7, fields=[], encode="xml", headers="", message_id=3,  # type: ignore[arg-type]
            persistent=1, password="pw",  # type: ignore[arg-type]
        )  # fmt: skip
    text = str(found.value)
    for part in (
        "exchange is 'xxx", "url has a password", "routing_key is 7", "or a function from the tuple", "fields is []",
        "encode is", "headers is ''", "message_id is 3", "persistent is 1", "password has the secret itself",
    ):  # fmt: skip
        assert part in text
    with pytest.raises(InvalidConfig, match="give the name of a queue"):
        RabbitSink("", url="amqp://h")
