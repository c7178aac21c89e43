"""How one task of an SqsSpout reads its queue: it receives, keeps messages invisible to others, deletes them, and gives back
those that failed.

Must not know: tuples' streams, replays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from squall_io.aws.calls import AwsAway, AwsRefused, AwsService
from squall_io.aws.sqs_queue import MOST_ENTRIES, explained, name_of, parts_of, url_of
from squall_io.aws.sqs_spout import DELETE
from squall_io.kit.message_fields import values_maker
from squall_io.kit.queue_client import QueueClient, Received

if TYPE_CHECKING:
    from squall_io.aws.sqs_spout import SqsSpout
    from topology_api import Context

#: Seconds of a long poll: the longest time for which a message that was acked waits to be deleted.
POLL_SECONDS: Final = 2
#: The most calls of one receive.
_MOST_CALLS: Final = 10
#: The attributes of the service that fields are made of.
_ATTRIBUTES: Final = {
    "group": "MessageGroupId",
    "sent": "SentTimestamp",
    "receives": "ApproximateReceiveCount",
}


class SqsClient(QueueClient):
    """The queue of one task."""

    keeps_ids = True  # a receipt handle is valid on any connection

    def __init__(self, spout: SqsSpout, context: Context) -> None:
        self._spout = spout
        self._service = AwsService(type(spout).__name__, "sqs", spout.region, spout.endpoint_url)
        self.what = f"queue {name_of(spout.queue)} of SQS at {self._service.where}"
        self._log = context.log
        self._now = context.now
        #: Prolonged twice before it ends.
        self.keep_alive_interval = spout.visibility_timeout / 3
        self._values = values_maker(
            spout.fields,
            spout.decode,
            lambda message: message["Body"].encode("utf-8", "surrogatepass"),
            {
                "id": lambda message: message["MessageId"],
                "attributes": _attributes,
                "group": lambda message: message.get("Attributes", {}).get("MessageGroupId"),
                "sent": _sent,
                "receives": lambda message: int(message["Attributes"]["ApproximateReceiveCount"]),
            },
        )
        self._url = ""
        #: When messages become visible again, by their handles.
        self._visible_at: dict[str, float] = {}
        self._rejected = context.counter("messages rejected")
        #: Whether the queue moves what is received too often; None: it does not say.
        self._redrives: bool | None = None
        self._counts = True

    def connect(self) -> None:
        """Find the queue, and whether it has a redrive policy."""
        self._url = url_of(self._service, self._spout.queue)
        if self._spout.failed == DELETE or self._redrives is not None:
            return
        found = self._attribute_of_queue("RedrivePolicy")
        self._redrives = found is not None and "RedrivePolicy" in found
        if found is not None and not self._redrives:
            self._log.warning(
                "%s has no redrive policy: a message that fails for good comes again after %d s, for ever. Give the queue a"
                ' dead-letter queue, or the spout failed="delete"',
                self.what, self._spout.visibility_timeout,
            )  # fmt: skip

    def receive(self, most: int, seconds: float) -> list[Received]:
        """Return the next messages; wait for the first one by a long poll."""
        spout, found = self._spout, list[Received]()
        wanted = [name for field, name in _ATTRIBUTES.items() if field in spout.fields]
        for call in range(_MOST_CALLS):
            count = min(MOST_ENTRIES, most - len(found))
            now = self._now()
            try:
                answer = self._call(
                    "receive_message",
                    MaxNumberOfMessages=count,
                    WaitTimeSeconds=POLL_SECONDS if call == 0 else 0,
                    VisibilityTimeout=spout.visibility_timeout,
                    MessageSystemAttributeNames=wanted,
                    MessageAttributeNames=["All"] if "attributes" in spout.fields else [],
                )
            except (AwsAway, AwsRefused):
                if found:  # these are in flight: without them they would wait for their timeout
                    break
                raise
            messages = answer.get("Messages", [])
            for message in messages:
                self._visible_at[message["ReceiptHandle"]] = now + spout.visibility_timeout
                found.append(Received(message["ReceiptHandle"], message))
            if len(messages) < MOST_ENTRIES or len(found) >= most:
                break
        return found

    def acknowledge(self, ids: Sequence[Any]) -> None:
        """Delete messages."""
        for part in parts_of(ids):
            self._batch("delete_message_batch", part, {})
        self._forget(ids)

    def reject(self, ids: Sequence[Any], reason: str) -> None:
        """Give messages back, or delete them, as the spout says."""
        self._rejected.add(len(ids))
        self._log.warning("%d message(s) of %s are given up: %s", len(ids), self.what, reason)
        if self._spout.failed == DELETE:
            self.acknowledge(ids)
            return
        if self._redrives:  # otherwise it would come again at once, for ever
            for part in parts_of(ids):
                self._batch("change_message_visibility_batch", part, {"VisibilityTimeout": 0})
        self._forget(ids)

    def values(self, message: Any) -> Sequence[object]:
        """Return the values of a tuple."""
        return self._values(message)

    def raw(self, message: Any) -> Sequence[object]:
        """Return the id and the body."""
        return message["MessageId"], message["Body"]

    def keep_alive(self, ids: Sequence[Any]) -> None:
        """Prolong the visibility of what is in flight and would be visible before the call after the next."""
        timeout = self._spout.visibility_timeout
        soon = self._now() + 2 * timeout / 3
        ending = [each for each in ids if self._visible_at.get(each, soon) <= soon]
        for part in parts_of(ending):
            now = self._now()
            self._batch("change_message_visibility_batch", part, {"VisibilityTimeout": timeout})
            self._visible_at.update(dict.fromkeys(part, now + timeout))

    def waiting(self) -> int | None:
        """Return about how many messages wait in the queue."""
        if not self._counts:
            return None
        found = self._attribute_of_queue("ApproximateNumberOfMessages")
        self._counts = found is not None
        return None if found is None else int(found["ApproximateNumberOfMessages"])

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _batch(self, operation: str, ids: Sequence[str], more: dict[str, Any]) -> None:
        """Make a call for up to ten messages. Raises AwsAway if the service could not do it for one."""
        entries = [{"Id": str(at), "ReceiptHandle": each, **more} for at, each in enumerate(ids)]
        failed = self._call(operation, Entries=entries).get("Failed", [])
        for each in failed:
            if each.get("SenderFault"):  # its visibility has ended: it is delivered again
                self._log.info(
                    "%s: %s of a message: %s", self.what, operation, each.get("Message", each["Code"])
                )
            else:
                raise AwsAway(f"{operation}: {each['Code']}: {each.get('Message', '')}")

    def _forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._visible_at.pop(each, None)

    def _attribute_of_queue(self, name: str) -> dict[str, str] | None:
        """Return an attribute of the queue in a dict, if it has it; None: the worker may not ask."""
        try:
            answer = self._call("get_queue_attributes", AttributeNames=[name])
        except AwsRefused as error:
            if "Denied" in error.code:
                return None
            raise
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._service.call(operation, QueueUrl=self._url, **arguments)
        except AwsRefused as error:
            raise explained(error, self._spout.queue, self._service) from None


def _attributes(message: Any) -> dict[str, object]:
    """Return the attributes that the sender has set: text, numbers and bytes."""
    return {name: _attribute(given) for name, given in message.get("MessageAttributes", {}).items()}


def _attribute(given: Any) -> object:
    kind = given["DataType"].partition(".")[0]
    if kind == "Binary":
        return bytes(given["BinaryValue"])
    text: str = given["StringValue"]
    if kind != "Number":
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


def _sent(message: Any) -> datetime:
    return datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, timezone.utc)
