"""SqsSpout: the messages of a queue of Amazon SQS as a stream.

    builder.set_spout("orders", SqsSpout("orders", region="eu-central-1"), parallelism=4)

Must not know: clients, how messages are received.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from squall_io.aws.calls import service_problems
from squall_io.aws.sqs_queue import queue_problem
from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.message_fields import field_problems
from squall_io.kit.queue_spout import QueueSpout, queue_problems
from topology_api import InvalidConfig
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from squall_io.kit.queue_client import QueueClient
    from topology_api import Context, Replay

#: What a tuple can have of a message.
FIELDS: Final = ("value", "id", "attributes", "group", "sent", "receives")
#: The fields of the stream of messages that cannot be read, without the error.
RAW_FIELDS: Final = ("id", "value")
#: What may happen to a message that failed for good.
RETURN, DELETE = "return", "delete"
#: The least and the most seconds of `visibility_timeout`; the most is what SQS allows.
_VISIBILITY: Final = (3, 43_200)


class SqsSpout(QueueSpout):
    """The messages of a queue, one tuple each, at least once. Needs the extra `aws`.

    A message is deleted when its tree is acked. While it is in flight its visibility is prolonged, so that no other reader gets
    it. Credentials come from the environment, the files or the role of the worker, as boto3 finds them.

    queue: the name of the queue, or its URL.
    region: the region, "eu-central-1"; None: that of the environment.
    endpoint_url: another service than Amazon's, "http://localhost:9324".
    fields: which of "value", "id", "attributes" (a dict), "group" (of a FIFO queue), "sent" (a datetime) and "receives" (how
        often the message was received) a tuple has, in this order.
    decode: what a body becomes: "json", "str", "bytes", a function from bytes, or a codec with a schema registry.
    visibility_timeout: seconds after which the messages of a worker that was killed are delivered again.
    failed: what happens to a message that failed for good: "return" gives it back to the queue, whose redrive policy moves it
        to a dead-letter queue after some receives; "delete" deletes it.
    max_in_flight: the most messages of a task that are neither acked nor failed.
    replay: as `Spout.replay`.
    """

    def __init__(
        self,
        queue: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        fields: Sequence[str] = ("value",),
        decode: str | Decode | MessageCodec = "json",
        visibility_timeout: int = 60,
        failed: str = RETURN,
        max_in_flight: int = 1000,
        replay: Replay | None = QueueSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *filter(None, [queue_problem(queue)]),
            *service_problems(region, endpoint_url),
            *field_problems(names, FIELDS, decode),
            *queue_problems(max_in_flight, replay),
        ]
        least, most = _VISIBILITY
        if type(visibility_timeout) is not int or not least <= visibility_timeout <= most:
            problems.append(
                f"visibility_timeout is {typed(visibility_timeout)}: give seconds, {least} to {most}"
            )
        if failed not in (RETURN, DELETE):
            problems.append(f"failed is {typed(failed)}: give one of {listed((RETURN, DELETE))}")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.queue = queue
        self.region, self.endpoint_url = region, endpoint_url
        self.fields, self.decode = names, decode
        self.visibility_timeout = visibility_timeout
        self.failed = failed
        self.set_up(names, RAW_FIELDS, max_in_flight, replay)

    def make_client(self, context: Context) -> QueueClient:
        """Return the client of a task."""
        from squall_io.aws.sqs_client import SqsClient

        return SqsClient(self, context)
