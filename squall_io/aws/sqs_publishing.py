"""How one task of an SqsSink sends: as many messages in a call as SQS takes, and of each what the service says.

Must not know: tuples' streams, how calls are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.aws.calls import AwsAway, AwsRefused, AwsService
from squall_io.aws.sqs_queue import MOST_BYTES, MOST_ENTRIES, explained, name_of, url_of
from squall_io.kit.codecs import encoder
from squall_io.kit.payloads import payload_maker, text_of, value_of
from squall_io.kit.publishing import Confirmations, Publisher
from topology_api import FailTuple
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.aws.sqs_sink import SqsSink
    from topology_api import Context, Tuple

#: Characters that SQS takes in no body.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: What ids of groups and of deduplication are.
_ID: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


class SqsPublisher(Publisher):
    """The queue of one task."""

    def __init__(self, sink: SqsSink, context: Context) -> None:
        self._sink = sink
        self._service = AwsService(type(sink).__name__, "sqs", sink.region, sink.endpoint_url)
        self.what = f"queue {name_of(sink.queue)} of SQS at {self._service.where}"
        self._payload = payload_maker(sink.fields, encoder(sink.encode, f"{name_of(sink.queue)}-value"))
        self._url = ""
        self._most_bytes = MOST_BYTES

    def message(self, tup: Tuple) -> dict[str, Any]:
        """Return the entry of a tuple in a call. Raises FailTuple."""
        sink = self._sink
        entry: dict[str, Any] = {"MessageBody": _body(self._payload(tup))}
        attributes = {
            name: made
            for name, field in sink.attributes.items()
            if (made := _attribute(field, value_of(tup, field))) is not None
        }
        if attributes:
            entry["MessageAttributes"] = attributes
        if sink.group is not None:
            entry["MessageGroupId"] = _id(tup, sink.group)
        if sink.deduplication is not None:
            entry["MessageDeduplicationId"] = _id(tup, sink.deduplication)
        return entry

    def connect(self) -> None:
        """Find the queue, and the most bytes that it takes."""
        self._url = url_of(self._service, self._sink.queue)
        try:
            answer = self._call("get_queue_attributes", AttributeNames=["MaximumMessageSize"])
            self._most_bytes = int(answer.get("Attributes", {}).get("MaximumMessageSize", MOST_BYTES))
        except AwsRefused as error:
            if "Denied" not in error.code:
                raise

    def publish(self, messages: Sequence[Any], confirmations: Confirmations) -> None:
        """Send messages. Raises AwsAway for those that the service could not take now."""
        for part in self._parts(messages, confirmations):
            entries = [{"Id": str(at), **messages[at]} for at in part]
            answer = self._call("send_message_batch", Entries=entries)
            for each in answer.get("Successful", []):
                confirmations.sent(int(each["Id"]))
            delayed = ""
            for each in answer.get("Failed", []):
                why = f"{each['Code']}: {each.get('Message', '')}"
                if each.get("SenderFault"):
                    confirmations.refused(int(each["Id"]), f"{self.what} refuses the message: {why}")
                else:
                    delayed = why
            if delayed:  # what follows waits, so that groups stay in order as far as a call keeps it
                raise AwsAway(delayed)

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _parts(self, messages: Sequence[Any], confirmations: Confirmations) -> Iterator[list[int]]:
        """Yield the positions of messages that go together. Refuses those that are too large."""
        part: list[int] = []
        total = 0
        for at, message in enumerate(messages):
            size = size_of(message)
            if size > self._most_bytes:
                confirmations.refused(
                    at,
                    f"the message has {size} bytes, and {self.what} takes {self._most_bytes} (MaximumMessageSize)",
                )
                continue
            if part and (len(part) == MOST_ENTRIES or total + size > MOST_BYTES):
                yield part
                part, total = [], 0
            part.append(at)
            total += size
        if part:
            yield part

    def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._service.call(operation, QueueUrl=self._url, **arguments)
        except AwsRefused as error:
            raise explained(error, self._sink.queue, self._service) from None


def size_of(entry: Mapping[str, Any]) -> int:
    """Return the bytes of a message: its body, and names, types and values of attributes."""
    size = len(entry["MessageBody"].encode())
    for name, given in entry.get("MessageAttributes", {}).items():
        value = given.get("BinaryValue") or given.get("StringValue", "").encode()
        size += len(name.encode()) + len(given["DataType"]) + len(value)
    return size


def _body(data: bytes | None) -> str:
    if not data:
        raise FailTuple("SQS takes no message without a body")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise FailTuple("the body is no text in UTF-8: encode it as text, for example by base64") from None
    if (found := _FORBIDDEN.search(text)) is not None:
        raise FailTuple(
            f"the body has the character {found[0]!r} at {found.start()}, which SQS does not take"
        )
    return text


def _attribute(field: str, value: object) -> dict[str, object] | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float, bytes)):
        raise FailTuple(f"field {field!r} is {typed(value)}: an attribute is text, a number, bytes or None")
    if not value and isinstance(value, (str, bytes)):
        raise FailTuple(f"field {field!r} is empty: an attribute of SQS is not; None leaves it out")
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": value}
    return {"DataType": "String" if isinstance(value, str) else "Number", "StringValue": str(value)}


def _id(tup: Tuple, field: str) -> str:
    value = value_of(tup, field)
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else text_of(tup, field)
    if not _ID.fullmatch(text):
        raise FailTuple(
            f"field {field!r} is {typed(value)}: an id of SQS has 1 to 128 letters, digits and punctuation"
        )
    return text
