"""The SQS spout against moto: deleted when acked, invisible while in flight, given back when failed."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from squall_io.aws import SqsSpout
from squall_io.aws.calls import AwsAway, AwsRefused, AwsService
from tests.aws_servers import REGION, AwsServer
from tests.squall_io.queue_tasks import SpoutTask
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("moto")


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that finds nothing ends soon."""
    monkeypatch.setattr("squall_io.aws.sqs_client.POLL_SECONDS", 0)
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 0.5)


def task(aws: AwsServer, queue: str, **more: Any) -> SpoutTask:
    given = {"region": REGION, "endpoint_url": aws.url, "decode": "str", **more}
    return SpoutTask(SqsSpout(queue, **given))


@pytest.mark.parametrize("by_url", [False, True])
def test_a_message_is_deleted_when_it_is_acked(aws: AwsServer, by_url: bool) -> None:
    queue = aws.queue()
    aws.send(queue, map(str, range(25)))
    with task(aws, aws.queue_url(queue) if by_url else queue) as one:
        assert sorted(one.read(25), key=int) == [str(n) for n in range(25)]
        assert aws.left(queue) == 25
        one.ack()
        one.until(lambda: aws.left(queue) == 0)


def test_no_more_than_max_in_flight_are_received(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, map(str, range(20)))
    with task(aws, queue, max_in_flight=12) as one:
        one.read(12)
        one.nothing_more()
        one.ack(0, 1, 2)
        one.read(15)


def test_a_message_in_flight_stays_invisible_to_others(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, ["1"])
    with task(aws, queue, visibility_timeout=3) as one:
        one.read(1)
        aws.requests()
        names: list[str] = []

        def prolonged_twice() -> bool:
            names.extend(aws.requests())
            return names.count("ChangeMessageVisibilityBatch") >= 2

        eventually(prolonged_twice, 30)
        other = aws.client("sqs").receive_message(QueueUrl=aws.queue_url(queue))
        assert "Messages" not in other
        one.ack()
        one.until(lambda: aws.left(queue) == 0)


def test_a_message_of_a_worker_that_was_killed_is_delivered_again(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, ["1"])
    killed = task(aws, queue, visibility_timeout=3)
    killed.read(1)
    killed.close()  # without an ack, as a killed worker
    with task(aws, queue) as other:
        assert other.read(1) == ["1"]


def test_a_message_that_failed_goes_to_the_dead_letters_of_the_queue(aws: AwsServer) -> None:
    dead = aws.queue()
    found = aws.client("sqs").get_queue_attributes(QueueUrl=aws.queue_url(dead), AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": found["Attributes"]["QueueArn"], "maxReceiveCount": 2}
    queue = aws.queue(RedrivePolicy=json.dumps(policy))
    aws.send(queue, ["1"])
    with task(aws, queue, fields=["value", "receives"]) as one:
        for number in range(2):
            one.read(number + 1)
            one.fail(number, "failed")
        one.until(lambda: aws.left(dead) == 1)
        assert [values for _, values, _ in one.emitted] == [("1", 1), ("1", 2)]
        assert one.metrics.counts["messages rejected"] == 2


def test_without_a_redrive_policy_a_failed_message_waits_for_its_timeout(
    aws: AwsServer, caplog: pytest.LogCaptureFixture
) -> None:
    queue = aws.queue()
    aws.send(queue, ["1", "2"])
    with task(aws, queue) as one:
        one.read(2)
        assert "has no redrive policy" in caplog.text
        one.fail(0, "failed")
        one.fail(1, "stopped")
        one.nothing_more()
    assert aws.left(queue) == 2


def test_failed_messages_can_be_deleted(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, ["1"])
    with task(aws, queue, failed="delete") as one:
        one.read(1)
        one.fail(0, "failed")
        one.until(lambda: aws.left(queue) == 0)


def test_groups_of_a_fifo_queue_come_in_order(aws: AwsServer) -> None:
    queue = aws.queue(fifo=True)
    aws.send(queue, ["1", "2", "3"], MessageGroupId="a")
    with task(aws, queue, fields=["value", "group"]) as one:
        one.read(3)
        assert [values for _, values, _ in one.emitted] == [("1", "a"), ("2", "a"), ("3", "a")]
        one.ack()


def test_a_task_has_what_it_asks_for_of_a_message(aws: AwsServer) -> None:
    queue = aws.queue()
    attributes = {
        "text": {"DataType": "String", "StringValue": "x"},
        "whole": {"DataType": "Number", "StringValue": "7"},
        "part": {"DataType": "Number.float", "StringValue": "7.5"},
        "data": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }
    aws.send(queue, ['{"n": 1}'], MessageAttributes=attributes)
    with task(aws, queue, decode="json", fields=["id", "value", "attributes", "sent"]) as one:
        one.read(1)
        [(_, (number, value, found, sent), _)] = one.emitted
        assert (len(number), value) == (36, {"n": 1})
        assert found == {"text": "x", "whole": 7, "part": 7.5, "data": b"\xff"}
        assert abs((datetime.now(timezone.utc) - sent).total_seconds()) < 3600
        one.ack()


def test_what_cannot_be_decoded_is_emitted_beside(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, ["{"])
    with task(aws, queue, decode="json", failed="delete") as one:
        one.until(lambda: one.values("unreadable"))
        one.until(lambda: one.errors)
        assert "it is no JSON" in one.errors[0]
        assert one.emitted[0][1][1] == "{"
        one.ack()
        one.until(lambda: aws.left(queue) == 0)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("400 AccessDenied", "check the credentials of the workers"),
        ("403 InvalidClientTokenId", "check the credentials of the workers"),
        ("400 QueueDoesNotExist", "there is no queue"),
    ],
)
def test_what_waiting_does_not_help_is_an_error_and_tried_again(
    aws: AwsServer, fault: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.kit.queue_task.RETRY_SECONDS", 0.0)
    queue = aws.queue()
    aws.send(queue, ["1"])
    aws.fails(("GetQueueUrl", fault))
    with task(aws, queue) as one:
        one.until(lambda: one.errors)
        assert says in one.errors[0]
        assert one.read(1) == ["1"]


@pytest.mark.parametrize("fault", ["500 InternalFailure", "400 ThrottlingException", "after"])
def test_what_passes_is_waited_for(aws: AwsServer, fault: str) -> None:
    queue = aws.queue()
    with task(aws, queue) as one:
        one.connects()
        aws.fails(("ReceiveMessage", fault), ("ReceiveMessage", fault))
        one.until(lambda: one.shown.startswith(f"waiting for queue {queue} of SQS"))
        aws.send(queue, ["1"])
        assert one.read(1) == ["1"]
        assert (one.shown, one.errors) == ("", [])
        one.ack()


@pytest.mark.parametrize("fault", [AwsAway("away"), AwsRefused("denied")])
def test_what_was_received_before_a_failure_is_emitted(
    aws: AwsServer, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    original, calls = AwsService.call, list[str]()

    def call(service: AwsService, operation: str, /, **arguments: Any) -> Any:
        if operation == "receive_message":
            calls.append(operation)
            if len(calls) == 2:
                raise fault
        return original(service, operation, **arguments)

    monkeypatch.setattr(AwsService, "call", call)
    queue = aws.queue()
    aws.send(queue, map(str, range(20)))
    with task(aws, queue, visibility_timeout=600) as one:
        assert len(set(one.read(20))) == 20


def test_messages_that_could_not_be_deleted_are_deleted_later(aws: AwsServer) -> None:
    queue = aws.queue()
    aws.send(queue, ["1"])
    with task(aws, queue) as one:
        one.read(1)
        aws.fails(*[("DeleteMessageBatch", "500 InternalFailure")] * 3)
        one.ack()
        one.until(lambda: aws.left(queue) == 0)
        assert aws.client("sqs") and one.errors == []


def test_wrong_arguments_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        SqsSpout(
            "or/ders", region="Europe", endpoint_url="ftp://h", fields=["key"], decode="xml", visibility_timeout=0,
            failed="drop", max_in_flight=0,
        )  # fmt: skip
    text = str(found.value)
    for part in (
        "queue is 'or/ders'", "region is 'Europe'", "endpoint_url is 'ftp://h'", "fields are", "decode is",
        "visibility_timeout is 0", "failed is 'drop'", "max_in_flight is 0",
    ):  # fmt: skip
        assert part in text
    with pytest.raises(InvalidConfig, match="endpoint_url has a user"):
        SqsSpout("orders", endpoint_url="https://key:secret@h")
    for queue in (
        "https://u:secret@sqs.eu/1/orders",
        "https://u:se/secret@h",
        "https://sqs.eu/1/or?key=secret",
    ):
        with pytest.raises(InvalidConfig, match="queue has a user") as found:
            SqsSpout(queue)
        assert "secret" not in str(found.value)
    for url in ("http://[x", "http://h:99999999", "http://h:0", "http://"):
        with pytest.raises(InvalidConfig, match="endpoint_url is"):
            SqsSpout("orders", endpoint_url=url)
        with pytest.raises(InvalidConfig, match="queue is"):
            SqsSpout(f"{url}/1/orders")
    with pytest.raises(InvalidConfig, match="endpoint_url has a user"):
        SqsSpout("orders", endpoint_url="ftp://key:se/cret@h")
