"""RedisStreamSpout: the entries of streams of Redis as a stream.

    builder.set_spout("orders", RedisStreamSpout("orders", url="redis://redis1:6379/0", group="shop"))

Must not know: connections, how streams are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.columns import names_of
from squall_io.kit.replays import replay_problems
from squall_io.kit.settling_spout import SettlingSpout
from squall_io.kit.starts import time_of, zone_problem
from squall_io.redis.address import url_problems
from squall_io.redis.entries import UNREADABLE_FIELDS, entry_problems
from squall_io.redis.ids import before_time, id_of
from squall_io.redis.progress import EARLIEST, LATEST, Positions, united_positions
from squall_io.redis.task import UNREADABLE, RedisStreamTask
from topology_api import Fields, InvalidConfig, Replay
from topology_api.epoch_rules import state_path
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context


class RedisStreamSpout(SettlingSpout):
    """The entries of streams, one tuple each. Needs the extra `redis`, and Redis 7 or newer.

    The streams are divided among the tasks by their number alone; a stream is read by one task. A stream that does not exist
    yet is waited for. A tuple that fails is emitted again as `replay` says.

    streams: the key of a stream, or a list of keys.
    url: the server: "redis://redis1:6379/0"; "rediss://" for TLS; "unix:///run/redis.sock"; or the Sentinels that know it:
        "redis+sentinel://s1:26379,s2:26379/MASTER/0". It may name a user.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts.
    group: the consumer group that stores how far entries are settled, for a restart and for tools that show the lag. It is
        created if it is missing, and has no consumers. Without one, and without `topology.state.path`, each start of a task
        begins at `start`.
    start: where to begin if neither a commit of the topology nor the group knows: "earliest"; "latest"; an id such as
        "1700000000000-0", after which entries are read; a datetime with a time zone, or the same as ISO text.
    decode: what a value of an entry becomes: "str", "json", "bytes", a function from bytes, or a codec.
    field: the one field of entries that is read; None: a value is a dict of all fields.
    fields: which of "value", "id" and "stream" a tuple has, in this order.
    schema: Spark's DDL text, `"word string, count bigint NOT NULL"`: a tuple has these fields of the entry in place of
        "value", each with the type of its column; with `field` and `decode="json"`, these members of the object in that field.
    max_gap: without `topology.state.path`, a stream is paused when this number of entries is emitted from one on that is
        neither acked nor failed.
    replay: as `Spout.replay`.
    """

    _task: RedisStreamTask

    def __init__(
        self,
        streams: str | Sequence[str],
        *,
        url: str,
        password: str | None = None,
        group: str | None = None,
        start: str | datetime = EARLIEST,
        decode: str | Decode | MessageCodec = "str",
        field: str | None = None,
        fields: Sequence[str] = ("value",),
        schema: str | None = None,
        max_gap: int = 10_000,
        replay: Replay | None = SettlingSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *_stream_problems(streams),
            *url_problems(url, password),
            *_start_problems(start),
            *entry_problems(names, field, decode, schema),
        ]
        if group is not None and (not isinstance(group, str) or not group):
            problems.append(f"group is {typed(group)}: give the name of a group, or None")
        if type(max_gap) is not int or max_gap < 1:
            problems.append(f"max_gap is {typed(max_gap)}: give a number of entries, at least 1")
        problems += replay_problems(replay)
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.streams = (streams,) if isinstance(streams, str) else tuple(streams)
        self.url = url
        self.password = password
        self.group = group
        self.start = _beginning(start)
        self.decode = decode
        self.field = field
        self.fields = names
        self.schema = schema
        self.max_gap = max_gap
        self.replay = replay
        self.outputs = {
            "default": Fields(*names_of(names, schema)),
            UNREADABLE: Fields(*UNREADABLE_FIELDS),
        }

    def open(self, context: Context) -> None:
        """Take what is needed to read. Redis is asked at the first call of `next_tuple` or `rewind`."""
        self._task = RedisStreamTask(self, context, epochs=state_path(context.conf) is not None)

    def next_tuple(self) -> float | None:
        """Emit the next entries."""
        return self._task.next(self.emit)

    def position(self) -> dict[str, Any]:
        """Return the last id of each stream of this task, and how many entries the stream had up to it."""
        return self._task.position()

    def rewind(self, position: Positions | None) -> None:
        """Go on behind these ids. Raises `LostEntries` if entries behind one of them are gone."""
        self._task.rewind(position)

    def merge_positions(self, positions: list[Positions]) -> dict[str, Any]:
        """Return the union: each stream is in the position of the one task that read it."""
        return united_positions(positions)


def _stream_problems(streams: object) -> Iterator[str]:
    names = (streams,) if isinstance(streams, str) else streams
    if not isinstance(names, Sequence) or not names or isinstance(names, Mapping | bytes):
        yield f"streams is {typed(streams)}: give the key of a stream, or a list of keys"
        return
    for name in names:
        if not isinstance(name, str) or not name:
            yield f"streams has {typed(name)}: give the key of a stream"
    if len(set(map(str, names))) < len(names):
        yield f"streams is {typed(streams)}: name each stream once"


def _start_problems(start: object) -> Iterator[str]:
    if start in (EARLIEST, LATEST):
        return
    if isinstance(start, str):
        with suppress(ValueError):
            id_of(start)
            return
        start = time_of(start) or start
    if not isinstance(start, datetime):
        yield f"start is {typed(start)}: give {EARLIEST!r}, {LATEST!r}, an id, a datetime, or ISO text"
    else:
        yield from filter(None, [zone_problem(start)])


def _beginning(start: str | datetime) -> str | int:
    """Return EARLIEST, LATEST, or the id behind which reading begins."""
    if start in (EARLIEST, LATEST):
        return str(start)
    if isinstance(start, str):
        with suppress(ValueError):
            return id_of(start)
        found = time_of(start)
        assert found is not None
        return before_time(found)
    return before_time(start)
