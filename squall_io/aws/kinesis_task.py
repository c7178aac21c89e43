"""The work of one task of a KinesisSpout: it finds its shards, reads them in turn, and emits their records.

While the service does not answer, or says that it is asked too often, it waits and says so.
Must not know: how shards are divided, how calls are made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timezone
from typing import TYPE_CHECKING, Any, Final

from squall_io.aws.calls import AwsAway, AwsRefused, AwsService
from squall_io.aws.kinesis_shards import LostRecords, Shard, TaskShards, iterator_arguments, shard_of
from squall_io.kit.codecs import CodecAway, UnreadableMessage
from squall_io.kit.message_fields import values_maker
from squall_io.kit.waiting import Waiting
from topology_api import SquallError
from topology_api.wording import class_name, message_of

if TYPE_CHECKING:
    from squall_io.aws.kinesis_spout import KinesisSpout
    from topology_api import Context

#: Seconds between two looks for shards.
LOOK_SECONDS: Final = 30.0
#: Seconds after which what the service has refused is tried again.
RETRY_SECONDS: Final = 5.0
#: Seconds between two reads of a shard that has more, of which the service takes five a second from all readers.
AGAIN_SECONDS: Final = 0.25
#: Seconds between two reads of a shard that has nothing more.
IDLE_SECONDS: Final = 1.0
#: The most records of a read.
AT_ONCE: Final = 1000
UNREADABLE: Final = "unreadable"

#: Emits values with a message id.
Emit = Callable[..., object]


class KinesisTask:
    """The shards of one task. All methods but gauges are called in the task's own thread."""

    def __init__(self, spout: KinesisSpout, context: Context) -> None:
        self._context = context
        self._stream = spout.stream
        self._service = AwsService(type(spout).__name__, "kinesis", spout.region, spout.endpoint_url)
        self._shards = TaskShards(context.index, context.parallelism, spout.start_millis(_now_millis()))
        what = f"stream {spout.stream} of Kinesis at {self._service.where}"
        self._waiting = Waiting(what, context.log, context.progress, context.now)
        self._codec_waits = Waiting("what the codec needs", context.log, context.progress, context.now)
        self._values = values_maker(
            spout.fields,
            spout.decode,
            lambda item: item[1]["Data"],
            {
                "key": lambda item: item[1]["PartitionKey"],
                "shard": lambda item: item[0],
                "sequence": lambda item: item[1]["SequenceNumber"],
                "time": lambda item: item[1]["ApproximateArrivalTimestamp"].astimezone(timezone.utc),
            },
        )
        self._iterators: dict[str, str] = {}
        #: When each shard is to be read again.
        self._read_at: dict[str, float] = {}
        self._behind: dict[str, float] = {}
        #: Records that were read and are not emitted: (shard, record).
        self._left: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._errors: deque[SquallError] = deque()
        self._look_at = self._retry_at = 0.0
        self._retention = 0
        self._left_out = context.counter("messages left out")
        self._unreadable_known: set[str] = set()
        context.gauge("seconds behind", lambda: max(list(self._behind.values()), default=0.0))
        context.gauge("shards", lambda: len(self._shards.places))

    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Go on at a position of a commit. Raises LostRecords."""
        self._shards.rewind(position)
        self._iterators.clear()
        self._read_at.clear()
        self._left.clear()
        try:
            self._look()
        except (AwsAway, AwsRefused):
            self._look_at = 0.0  # the next call says so

    def position(self) -> dict[str, list[Any]]:
        """Return where each shard goes on."""
        return self._shards.position()

    def next(self, emit: Emit) -> float | None:
        """Emit the next records; return the seconds until the next call (None: soon)."""
        if self._errors:
            raise self._errors.popleft()
        now = self._context.now()
        if now < self._retry_at:
            return self._retry_at - now
        try:
            if self._left:
                self._emit_left(emit)
                return None
            if now >= self._look_at:
                self._look()
            return self._read(emit)
        except (AwsRefused, LostRecords):
            self._retry_at = now + RETRY_SECONDS  # it may be put right meanwhile
            raise
        except CodecAway as error:
            return self._codec_waits.failed(str(error))
        except AwsAway as error:
            wait = self._waiting.failed(str(error))
            self._retry_at = now + wait
            return wait

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _look(self) -> None:
        """Find the shards. Raises LostRecords, AwsAway and AwsRefused."""
        if not self._retention:
            summary = self._call("describe_stream_summary")["StreamDescriptionSummary"]
            self._retention = int(summary["RetentionPeriodHours"]) * 3_600_000
        for doubt in self._shards.found(self._listed(), _now_millis(), self._retention):
            self._errors.append(LostRecords(doubt))
        self._look_at = self._context.now() + LOOK_SECONDS
        self._waiting.succeeded()

    def _listed(self) -> list[Shard]:
        found: list[Shard] = []
        more: dict[str, str] = {"StreamName": self._stream}
        while True:
            answer = self._service_call("list_shards", **more)
            found += map(shard_of, answer["Shards"])
            if (token := answer.get("NextToken")) is None:
                return found
            more = {"NextToken": token}

    def _read(self, emit: Emit) -> float | None:
        """Read the shard whose turn it is."""
        readable = self._shards.readable()
        if not readable:
            return max(0.0, min(IDLE_SECONDS, self._look_at - self._context.now()))
        name = min(readable, key=lambda each: self._read_at.get(each, 0.0))
        if (wait := self._read_at.get(name, 0.0) - self._context.now()) > 0:
            return wait
        answer = self._records_of(name)
        if answer is None:
            return None
        self._waiting.succeeded()
        records = answer["Records"]
        self._left.extend((name, record) for record in records)
        behind = self._behind[name] = answer.get("MillisBehindLatest", 0) / 1000
        self._read_at[name] = self._context.now() + (AGAIN_SECONDS if behind or records else IDLE_SECONDS)
        asked = _now_millis() - int(behind * 1000)
        following = answer.get("NextShardIterator")
        self._emit_left(emit)
        if following is None:
            self._shards.finished(name)
            self._iterators.pop(name, None)
            self._behind.pop(name, None)
            self._look_at = 0.0  # for its children
        else:
            self._iterators[name] = following
            if not behind:
                self._shards.read_until(name, asked)
        return None

    def _records_of(self, name: str) -> Any:
        """Return the answer of a read; None: the iterator was too old, and the next call makes another one."""
        if name not in self._iterators:
            place = iterator_arguments(self._shards.places[name])
            answer = self._call("get_shard_iterator", ShardId=name, **place)
            self._iterators[name] = answer["ShardIterator"]
        # Whatever happens to this call, the place of the shard says where the next iterator begins.
        iterator = self._iterators.pop(name)
        try:
            return self._service_call("get_records", ShardIterator=iterator, Limit=AT_ONCE)
        except AwsRefused as error:
            if "ExpiredIterator" in error.code:
                return None
            raise

    def _emit_left(self, emit: Emit) -> None:
        """Emit the records that are here. After an error, the next call goes on behind it."""
        left = self._left
        while left:
            name, record = left[0]
            fault = None
            try:
                values = self._values((name, record))
            except UnreadableMessage as error:
                fault = error
            except SquallError:  # it is about the codec: the record is decoded again
                raise
            except Exception as error:  # a codec of the user, or a library under one
                fault = UnreadableMessage(f"{class_name(error)}: {message_of(error)}")
            self._codec_waits.succeeded()
            left.popleft()
            sequence = record["SequenceNumber"]
            self._shards.read(name, sequence, int(record["ApproximateArrivalTimestamp"].timestamp() * 1000))
            if fault is None:
                emit(values, message_id=(name, sequence))
            else:
                self._leave_out(emit, name, record, fault)

    def _leave_out(self, emit: Emit, name: str, record: Mapping[str, Any], fault: UnreadableMessage) -> None:
        """Count a record that cannot be decoded, and emit it as it is, for who wants to keep it."""
        self._left_out.add()
        sequence = record["SequenceNumber"]
        if name not in self._unreadable_known:
            self._unreadable_known.add(name)
            self._errors.append(
                UnreadableMessage(
                    f"record {sequence} of {name} cannot be decoded: {fault}. It is counted as `messages left out` and emitted"
                    f" on the stream {UNREADABLE!r}, as are further ones of this shard without a report"
                )
            )
        values = (name, sequence, record["PartitionKey"], record["Data"], str(fault))
        emit(values, message_id=(name, sequence), stream=UNREADABLE)

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._service_call(operation, StreamName=self._stream, **arguments)

    def _service_call(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._service.call(operation, **arguments)
        except AwsRefused as error:
            raise explained_stream(error, self._stream, self._service.where) from None


def explained_stream(error: AwsRefused, stream: str, where: str) -> AwsRefused:
    """Return an error with what helps, if it is about a stream that is not there."""
    if "ResourceNotFound" not in error.code:
        return error
    return AwsRefused(
        f"there is no stream {stream!r} at {where}: create it, or correct stream= and region=", error.code
    )


def _now_millis() -> int:
    return int(time.time() * 1000)
