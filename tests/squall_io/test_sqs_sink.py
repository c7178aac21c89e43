"""The SQS sink against moto: what the service has is acked, what it refuses fails alone, what passes is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from squall_io.aws import SqsSink
from squall_io.aws.calls import AwsService
from tests.aws_servers import REGION, AwsServer
from tests.squall_io.sinks_that_publish import SinkTask
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("moto")


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not answer is found away soon."""
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 0.5)


def task(aws: AwsServer, queue: str, **more: Any) -> SinkTask:
    given = {"region": REGION, "endpoint_url": aws.url, "fields": "v", "encode": "str", **more}
    return SinkTask(SqsSink(queue, **given))


def rows(*values: Any) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


def test_each_tuple_is_a_message(aws: AwsServer) -> None:
    queue = aws.queue()
    with task(aws, queue) as one:
        assert one.write(rows(*map(str, range(25)))) == {}
    assert sorted(aws.bodies(queue), key=int) == [str(n) for n in range(25)]


def test_what_is_refused_fails_alone(aws: AwsServer) -> None:
    queue = aws.queue(MaximumMessageSize="262144")
    with task(aws, queue) as one:
        failed = one.write(rows("a", "x" * 270_000, "", "\x01", "b"))
    assert set(failed) == {1, 2, 3}
    assert "has 270000 bytes, and queue" in failed[1] and "takes 262144 (MaximumMessageSize)" in failed[1]
    assert failed[2] == "SQS takes no message without a body"
    assert "has the character '\\x01' at 0" in failed[3]
    assert sorted(aws.bodies(queue)) == ["a", "b"]


def test_a_call_has_no_more_bytes_than_sqs_takes(aws: AwsServer) -> None:
    queue = aws.queue()
    with task(aws, queue) as one:
        assert one.write(rows(*("x" * 100_000 for _ in range(5)))) == {}
    assert len(aws.bodies(queue)) == 5


def test_of_a_call_only_what_the_service_could_not_take_is_sent_again(
    aws: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = AwsService.call, list[list[str]]()

    def call(service: AwsService, operation: str, /, **arguments: Any) -> Any:
        if operation != "send_message_batch":
            return original(service, operation, **arguments)
        entries = arguments["Entries"]
        calls.append([each["MessageBody"] for each in entries])
        if len(calls) > 1:
            return original(service, operation, **arguments)
        answer: Any = original(service, operation, **{**arguments, "Entries": entries[:1]})
        late = {"Id": entries[1]["Id"], "Code": "InternalError", "SenderFault": False}
        wrong = {"Id": entries[2]["Id"], "Code": "Strange", "Message": "no", "SenderFault": True}
        return {**answer, "Failed": [late, wrong]}

    monkeypatch.setattr(AwsService, "call", call)
    queue = aws.queue()
    with task(aws, queue) as one:
        failed = one.write(rows("0", "1", "2"))
    assert calls == [["0", "1", "2"], ["1"]]
    assert list(failed) == [2]
    assert failed[2].endswith("refuses the message: Strange: no")
    assert sorted(aws.bodies(queue)) == ["0", "1"]


def test_groups_of_a_fifo_queue_stay_in_order_and_twice_the_same_is_once(aws: AwsServer) -> None:
    queue = aws.queue(fifo=True)
    sent = [{"v": str(n), "g": n % 2, "d": f"id-{n}"} for n in range(12)]
    with task(aws, queue, group="g", deduplication="d") as one:
        aws.fails(("SendMessageBatch", "after"))
        assert one.write(sent) == {}
        assert one.write(sent[:3]) == {}
    found = aws.bodies(queue)
    assert [body for body in found if int(body) % 2 == 0] == ["0", "2", "4", "6", "8", "10"]
    assert len(found) == 12


def test_a_wrong_group_fails_its_tuple(aws: AwsServer) -> None:
    queue = aws.queue(fifo=True, ContentBasedDeduplication="true")
    with task(aws, queue, group="g") as one:
        failed = one.write([{"v": "1", "g": "a b"}, {"v": "2", "g": None}, {"v": "3", "g": "c"}])
    assert set(failed) == {0, 1}
    assert "an id of SQS has 1 to 128 letters" in failed[0]
    assert aws.bodies(queue) == ["3"]


def test_attributes_have_the_types_of_their_values(aws: AwsServer) -> None:
    queue = aws.queue()
    with task(aws, queue, attributes={"a": "text", "b": "number", "c": "data", "d": "none"}) as one:
        row = {"v": "x", "text": "t", "number": 1.5, "data": b"\x00", "none": None}
        failed = one.write([row, {**row, "text": [1]}])
        assert failed == {1: "field 'text' is [1] (list): an attribute is text, a number, bytes or None"}
    [message] = aws.client("sqs").receive_message(
        QueueUrl=aws.queue_url(queue), MessageAttributeNames=["All"]
    )["Messages"]
    assert {name: each["DataType"] for name, each in message["MessageAttributes"].items()} == {
        "a": "String", "b": "Number", "c": "Binary",
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["killed", "frozen", "throttled"])
def test_a_service_that_is_away_is_waited_for(aws: AwsServer, fault: str) -> None:
    queue = aws.queue()
    with task(aws, queue) as one:
        assert one.write(rows("0")) == {}
        if fault == "throttled":
            aws.fails(*[("SendMessageBatch", "400 RequestThrottled")] * 3)
        else:
            (aws.kill if fault == "killed" else aws.freeze)()
        thread = one.writing(rows("1", "2"))
        try:
            eventually(lambda: any("waiting for queue" in text for text in one.shown), 60)
        finally:
            if fault != "throttled":
                (aws.start if fault == "killed" else aws.thaw)()
        thread.join(60)
        assert not thread.is_alive()
        assert one.failed == {}
    assert set(aws.bodies(queue)) == {"0", "1", "2"}


def test_a_missing_queue_is_an_error_that_says_so(aws: AwsServer) -> None:
    with (
        task(aws, "no-such-queue") as one,
        pytest.raises(Exception, match="there is no queue 'no-such-queue' at"),
    ):
        one.write(rows("1"))


def test_wrong_arguments_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        SqsSink("orders", fields=[], encode="xml", attributes=[], group="g")  # type: ignore[arg-type]
    text = str(found.value)
    for part in (
        "fields is []",
        "encode is",
        "attributes is []",
        "group and deduplication are for a FIFO queue",
    ):
        assert part in text
    with pytest.raises(InvalidConfig, match=r"orders\.fifo is a FIFO queue: give group="):
        SqsSink("orders.fifo")
    with pytest.raises(InvalidConfig, match="queue has a user") as found:
        SqsSink("https://u:se/secret@h", group="g")
    assert "secret" not in str(found.value)
    for name in ("a b!", "", ".a", "a.", "a..b", "AWS.a", "amazon.a", "x" * 257, "a\n"):
        with pytest.raises(InvalidConfig, match="the name of an attribute has 1 to 256"):
            SqsSink("orders", attributes={name: "field"})
    SqsSink("orders", attributes={"a-1.b_2": "field", "x" * 256: "field"})
