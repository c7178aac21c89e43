"""KinesisSink: a bolt that puts a record for each tuple into a stream of Amazon Kinesis.

    builder.set_bolt("put", KinesisSink("clicks", key="user", region="eu-central-1")).shuffle_grouping("clicks")

Must not know: clients, calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.aws.calls import service_problems
from squall_io.aws.kinesis_stream import stream_problem
from squall_io.kit.codecs import Encode, MessageCodec, format_problem
from squall_io.kit.payloads import chosen_of, chosen_problems, missing_fields, used_names
from squall_io.kit.publishing import Publisher, PublishingSink
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Fields


class KinesisSink(PublishingSink):
    """Puts a record for each tuple, at least once. Needs the extra `aws`.

    A tuple is acked when the service has its record; one that it refuses fails alone. Credentials come from the environment,
    the files or the role of the worker, as boto3 finds them.

    stream: the name of the stream.
    key: the field that is the partition key, text or a whole number: records with the same key are in one shard.
    region: the region, "eu-central-1"; None: that of the environment.
    endpoint_url: another service than Amazon's, "http://localhost:4566".
    fields: the field that is the data, or a list of fields, which are written as one object; None: an object of all fields.
    encode: how the data becomes bytes: "json", "str", "bytes", a function, or a codec with a schema registry.
    """

    def __init__(
        self,
        stream: str,
        *,
        key: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
    ) -> None:
        problems = [
            *filter(None, [stream_problem(stream), format_problem("encode", encode)]),
            *service_problems(region, endpoint_url),
            *chosen_problems(fields),
        ]
        if not isinstance(key, str):
            problems.append(f"key is {typed(key)}: give the name of the field that is the partition key")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.stream, self.key = stream, key
        self.region, self.endpoint_url = region, endpoint_url
        self.fields = chosen_of(fields)
        self.encode = encode

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        return missing_fields(inputs, self.used_fields())

    def used_fields(self) -> list[str]:
        """Return the fields that arguments name."""
        return used_names(self.fields, self.key)

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task."""
        from squall_io.aws.kinesis_publishing import KinesisPublisher

        return KinesisPublisher(self, context)
