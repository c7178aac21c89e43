"""SqsSink: a bolt that sends a message for each tuple to a queue of Amazon SQS.

    builder.set_bolt("send", SqsSink("orders", region="eu-central-1", fields="order")).shuffle_grouping("orders")

Must not know: clients, calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall_io.aws.calls import service_problems
from squall_io.aws.sqs_queue import is_fifo, name_of, queue_problem
from squall_io.kit.codecs import Encode, MessageCodec, format_problem
from squall_io.kit.payloads import chosen_of, chosen_problems, missing_fields, used_names
from squall_io.kit.publishing import Publisher, PublishingSink
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology_api import Context, Fields

#: The most attributes of a message.
_MOST_ATTRIBUTES: Final = 10
_ATTRIBUTE: Final = re.compile(r"(?=.{1,256}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class SqsSink(PublishingSink):
    """Sends a message for each tuple, at least once. Needs the extra `aws`.

    Ten messages go in a call. A tuple is acked when the service has its message; one that it refuses fails alone. Credentials
    come from the environment, the files or the role of the worker, as boto3 finds them.

    queue: the name of the queue, or its URL.
    region: the region, "eu-central-1"; None: that of the environment.
    endpoint_url: another service than Amazon's, "http://localhost:9324".
    fields: the field that is the body, or a list of fields, which are written as one object; None: an object of all fields.
    encode: how the body becomes bytes, which are text in UTF-8: "json", "str", "bytes", a function, or a codec with a schema
        registry.
    attributes: the field of each attribute of the message, {"source": "host"}; fields have text, numbers, bytes or None.
    group: the field that is the group of a FIFO queue, which needs one: messages of a group stay in order, but for those that
        the service could not take at once.
    deduplication: the field that is the deduplication id of a FIFO queue; None: the queue has content-based deduplication.
    """

    def __init__(
        self,
        queue: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        deduplication: str | None = None,
    ) -> None:
        problems = [
            *filter(None, [queue_problem(queue), format_problem("encode", encode)]),
            *service_problems(region, endpoint_url),
            *chosen_problems(fields),
            *_attribute_problems(attributes),
            *_fifo_problems(queue, group, deduplication),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.queue = queue
        self.region, self.endpoint_url = region, endpoint_url
        self.fields = chosen_of(fields)
        self.encode = encode
        self.attributes = dict(attributes or {})
        self.group, self.deduplication = group, deduplication

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        return missing_fields(inputs, self.used_fields())

    def used_fields(self) -> list[str]:
        """Return the fields that arguments name."""
        return used_names(self.fields, *self.attributes.values(), self.group, self.deduplication)

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task."""
        from squall_io.aws.sqs_publishing import SqsPublisher

        return SqsPublisher(self, context)


def _attribute_problems(attributes: object) -> Iterator[str]:
    if attributes is None:
        return
    if not isinstance(attributes, Mapping) or not all(
        isinstance(each, str) for pair in attributes.items() for each in pair
    ):
        yield f"attributes is {typed(attributes)}: give a dict from the name of an attribute to a field"
        return
    for name in attributes:
        if not _ATTRIBUTE.fullmatch(name) or name.lower().startswith(("aws.", "amazon.")):
            yield (
                f"attributes has {typed(name)}: the name of an attribute has 1 to 256 letters, digits, '_', '-' and single '.'"
                " between them, and does not begin with 'AWS.' or 'Amazon.'"
            )
    if len(attributes) > _MOST_ATTRIBUTES:
        yield f"attributes has {len(attributes)} names: SQS takes {_MOST_ATTRIBUTES}"


def _fifo_problems(queue: object, group: object, deduplication: object) -> Iterator[str]:
    for name, field in (("group", group), ("deduplication", deduplication)):
        if field is not None and not isinstance(field, str):
            yield f"{name} is {typed(field)}: give the name of a field, or None"
    if not isinstance(queue, str) or queue_problem(queue) is not None:
        return
    if is_fifo(name_of(queue)) and group is None:
        yield f"{name_of(queue)} is a FIFO queue: give group=, the field that is the group of a message"
    if not is_fifo(name_of(queue)) and not (group is None and deduplication is None):
        yield f"group and deduplication are for a FIFO queue, whose name ends with .fifo; the queue is {name_of(queue)!r}"
