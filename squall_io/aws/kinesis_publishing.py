"""How one task of a KinesisSink puts records: as many in a call as Kinesis takes, and of each what the service says.

Must not know: tuples' streams, how calls are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from squall_io.aws.calls import AwsAway, AwsRefused, AwsService
from squall_io.aws.kinesis_stream import MOST_BYTES, MOST_BYTES_OF_A_CALL, MOST_KEY, MOST_RECORDS
from squall_io.aws.kinesis_task import explained_stream
from squall_io.kit.codecs import encoder
from squall_io.kit.payloads import payload_maker, text_of, value_of
from squall_io.kit.publishing import Confirmations, Publisher
from topology_api import FailTuple

if TYPE_CHECKING:
    from squall_io.aws.kinesis_sink import KinesisSink
    from topology_api import Context, Tuple

#: Failures of single records that pass.
_PASSING: Final = ("ProvisionedThroughputExceededException", "InternalFailure")


class KinesisRecord(NamedTuple):
    """A record to put."""

    data: bytes
    key: str

    @property
    def size(self) -> int:
        """The bytes that Kinesis counts."""
        return len(self.data) + len(self.key.encode())


class KinesisPublisher(Publisher):
    """The stream of one task."""

    def __init__(self, sink: KinesisSink, context: Context) -> None:
        self._sink = sink
        self._service = AwsService(type(sink).__name__, "kinesis", sink.region, sink.endpoint_url)
        self.what = f"stream {sink.stream} of Kinesis at {self._service.where}"
        self._payload = payload_maker(sink.fields, encoder(sink.encode, f"{sink.stream}-value"))

    def message(self, tup: Tuple) -> KinesisRecord:
        """Return the record of a tuple. Raises FailTuple."""
        field = self._sink.key
        key = value_of(tup, field)
        text = str(key) if isinstance(key, int) and not isinstance(key, bool) else text_of(tup, field)
        if not 0 < len(text) <= MOST_KEY:
            raise FailTuple(
                f"field {field!r} has {len(text)} characters: a partition key has 1 to {MOST_KEY}"
            )
        record = KinesisRecord(self._payload(tup) or b"", text)
        if record.size > MOST_BYTES:
            raise FailTuple(
                f"the record has {record.size} bytes with its key, and Kinesis takes {MOST_BYTES}"
            )
        return record

    def connect(self) -> None:
        """Nothing: the first call opens a connection."""

    def publish(self, messages: Sequence[KinesisRecord], confirmations: Confirmations) -> None:
        """Put records. Raises AwsAway for those that the service could not take now."""
        for part in _parts(messages):
            records = [{"Data": messages[at].data, "PartitionKey": messages[at].key} for at in part]
            answer = self._call("put_records", Records=records)
            delayed = ""
            for at, each in zip(part, answer["Records"], strict=True):
                code = each.get("ErrorCode")
                if code is None:
                    confirmations.sent(at)
                elif code in _PASSING:
                    delayed = f"{code}: {each.get('ErrorMessage', '')}"
                else:
                    confirmations.refused(
                        at, f"{self.what} refuses the record: {code}: {each.get('ErrorMessage', '')}"
                    )
            if delayed:  # what follows waits, so that keys stay in order as far as a call keeps it
                raise AwsAway(delayed)

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._service.call(operation, StreamName=self._sink.stream, **arguments)
        except AwsRefused as error:
            raise explained_stream(error, self._sink.stream, self._service.where) from None


def _parts(messages: Sequence[KinesisRecord]) -> Iterator[list[int]]:
    """Yield the positions of records that go together."""
    part: list[int] = []
    total = 0
    for at, record in enumerate(messages):
        if part and (len(part) == MOST_RECORDS or total + record.size > MOST_BYTES_OF_A_CALL):
            yield part
            part, total = [], 0
        part.append(at)
        total += record.size
    if part:
        yield part
