"""KinesisSpout: the records of a stream of Amazon Kinesis as a stream.

    builder.set_spout("clicks", KinesisSpout("clicks", region="eu-central-1"), parallelism=4)

Must not know: clients, how shards are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from squall_io.aws.calls import service_problems
from squall_io.aws.kinesis_shards import united_places
from squall_io.aws.kinesis_stream import stream_problem
from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.message_fields import field_problems
from squall_io.kit.replays import replay_problems
from squall_io.kit.starts import time_of, zone_problem
from topology_api import Fields, InvalidConfig, Replay, RewindableSpout
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.aws.kinesis_task import KinesisTask
    from topology_api import Context

#: What a tuple can have of a record.
FIELDS: Final = ("value", "key", "shard", "sequence", "time")
#: The fields of the stream of records that cannot be read.
_UNREADABLE_FIELDS: Final = ("shard", "sequence", "key", "value", "error")
TRIM_HORIZON, LATEST = "trim_horizon", "latest"


class KinesisSpout(RewindableSpout):
    """The records of a stream, one tuple each. Needs the extra `aws`.

    Shards are divided among the tasks by their ranges of hash keys. New shards are found while it runs, and read after their
    parents. Credentials come from the environment, the files or the role of the worker, as boto3 finds them.

    stream: the name of the stream.
    region: the region, "eu-central-1"; None: that of the environment.
    endpoint_url: another service than Amazon's, "http://localhost:4566".
    start: where to begin if no commit of the topology knows: "trim_horizon", with the oldest record that is kept; "latest",
        with what comes from now on; a datetime with a time zone, or the same as ISO text. Shards that appear later begin with
        their first record.
    fields: which of "value", "key", "shard", "sequence" and "time" (when the record arrived) a tuple has, in this order.
    decode: what the data becomes: "json", "str", "bytes", a function from bytes, or a codec with a schema registry.
    replay: as `Spout.replay`.
    """

    threaded = True  # calls block
    _task: KinesisTask

    def __init__(
        self,
        stream: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        start: str | datetime = TRIM_HORIZON,
        fields: Sequence[str] = ("value",),
        decode: str | Decode | MessageCodec = "json",
        replay: Replay | None = RewindableSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        start = start if not isinstance(start, str) else time_of(start) or start
        problems = [
            *filter(None, [stream_problem(stream)]),
            *service_problems(region, endpoint_url),
            *_start_problems(start),
            *field_problems(names, FIELDS, decode),
            *replay_problems(replay),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.stream = stream
        self.region, self.endpoint_url = region, endpoint_url
        self.start = start
        self.fields, self.decode = names, decode
        self.replay = replay
        self.outputs = {"default": Fields(*names), "unreadable": Fields(*_UNREADABLE_FIELDS)}

    def start_millis(self, now: int) -> int:
        """Return the milliseconds since 1970 at which reading begins; 0: at the oldest record."""
        if isinstance(self.start, datetime):
            return int(self.start.timestamp() * 1000)
        return now if self.start == LATEST else 0

    def open(self, context: Context) -> None:
        """Make the client."""
        from squall_io.aws.kinesis_task import KinesisTask

        self._task = KinesisTask(self, context)

    def next_tuple(self) -> float | None:
        """Emit the next records."""
        return self._task.next(self.emit)

    def position(self) -> dict[str, list[Any]]:
        """Return where each shard of this task goes on."""
        return self._task.position()

    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Go on at this position. Raises `LostRecords` if a shard of it is gone."""
        self._task.rewind(position)

    def merge_positions(self, positions: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """Return the union: each shard is in the position of the one task that read it."""
        return united_places(positions)

    def close(self) -> None:
        """Close the connections."""
        if hasattr(self, "_task"):
            self._task.close()


def _start_problems(start: object) -> Iterator[str]:
    if isinstance(start, datetime):
        yield from filter(None, [zone_problem(start)])
    elif start not in (TRIM_HORIZON, LATEST):
        yield f"start is {typed(start)}: give {TRIM_HORIZON!r}, {LATEST!r}, a datetime or ISO text"
