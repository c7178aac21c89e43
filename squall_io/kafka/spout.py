"""KafkaSpout: the messages of topics of Kafka as a stream.

    builder.set_spout("orders", KafkaSpout("orders", servers="kafka1:9092", group="shop"), parallelism=4)

Must not know: clients, how partitions are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from squall_io.kafka.assignment import EARLIEST, LATEST, Offsets, is_pattern, merged
from squall_io.kafka.client import TOPIC, servers_problem, settings_problems
from squall_io.kafka.consuming import DECIDED_BY_SPOUT
from squall_io.kafka.rows import UNREADABLE_FIELDS, row_problems
from squall_io.kafka.task import LOOK_SECONDS, UNREADABLE, KafkaTask
from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.columns import names_of
from squall_io.kit.replays import replay_problems
from squall_io.kit.settling_spout import SettlingSpout
from squall_io.kit.starts import time_of, zone_problem
from topology_api import Fields, InvalidConfig, Replay
from topology_api.epoch_rules import state_path
from topology_api.wording import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology_api import Context

#: The least and the most seconds between two looks for new partitions: each look asks for the topics.
_LOOKS = (1.0, 86_400.0)


class KafkaSpout(SettlingSpout):
    """The messages of topics, one tuple each. Needs the extra `kafka`.

    The partitions are divided among the tasks by their number alone: tasks join no consumer group. New partitions are found
    while it runs. A tuple that fails is emitted again as `replay` says.

    topics: a topic, a list of topics, or a pattern, which begins with "^": "^orders[.]" reads all topics whose names begin so.
        A list may mix both. Kafka's own topics, whose names begin with `__`, match only a pattern that begins with `^__`.
    servers: the addresses of some brokers, "kafka1:9092,kafka2:9092" or a list.
    group: the group that stores how far messages are settled, for a restart and for tools that show the lag. Without one, and
        without `topology.state.path`, each start of a task begins at `start`.
    start: where to begin if neither a commit of the topology nor the group knows: "earliest", "latest", a datetime with a time
        zone, the same as ISO text ("2026-11-29T10:00:00Z"), or {topic: {partition: offset}}. Partitions that appear later begin
        at their earliest message.
    decode: what a value becomes: "json", "str" (UTF-8), "bytes", a function from bytes that can be imported, or a codec with a
        schema registry.
    decode_key: the same for keys.
    fields: which of "value", "key", "headers", "timestamp", "topic", "partition" and "offset" a tuple has, in this order.
    schema: with decode="json", Spark's DDL text, `"word string, count bigint NOT NULL"`: a tuple has these members of the
        object in place of "value", each with the type of its column.
    max_gap: without `topology.state.path`, a partition is paused when this number of messages is emitted from one on that is
        neither acked nor failed.
    look_interval: the seconds between two looks for new partitions and topics, 1 to 86400.
    settings: further settings of librdkafka, such as {"security.protocol": "SASL_SSL", "sasl.password": "env:KAFKA_PASSWORD"}.
        A secret is named by `env:NAME` or `file:PATH`.
    replay: how a tuple that fails is emitted again, as `Spout.replay`: a Replay, or None.
    """

    _task: KafkaTask

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        servers: str | Sequence[str],
        group: str | None = None,
        start: str | datetime | Offsets = EARLIEST,
        decode: str | Decode | MessageCodec = "json",
        decode_key: str | Decode | MessageCodec = "bytes",
        fields: Sequence[str] = ("value",),
        schema: str | None = None,
        max_gap: int = 10_000,
        look_interval: float = LOOK_SECONDS,
        settings: Mapping[str, Any] | None = None,
        replay: Replay | None = SettlingSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *_topic_problems(topics),
            *filter(None, [servers_problem(servers)]),
            *_start_problems(start := (time_of(start) or start) if isinstance(start, str) else start),
            *row_problems(names, decode, decode_key, schema),
            *settings_problems(settings, DECIDED_BY_SPOUT),
        ]
        if group is not None and (not isinstance(group, str) or not group):
            problems.append(f"group is {typed(group)}: give the name of a group, or None")
        if type(max_gap) is not int or max_gap < 1:
            problems.append(f"max_gap is {typed(max_gap)}: give a number of messages, at least 1")
        if type(look_interval) not in (int, float) or not _LOOKS[0] <= look_interval <= _LOOKS[1]:
            text = f"give the seconds between two looks, {_LOOKS[0]:g} to {_LOOKS[1]:g}"
            problems.append(f"look_interval is {typed(look_interval)}: {text}")
        problems += replay_problems(replay)
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.servers = servers
        self.group = group
        self.start = start
        self.decode = decode
        self.decode_key = decode_key
        self.fields = names
        self.schema = schema
        self.max_gap = max_gap
        self.look_interval = float(look_interval)
        self.settings = dict(settings or {})
        self.replay = replay
        self.outputs = {
            "default": Fields(*names_of(names, schema)),
            UNREADABLE: Fields(*UNREADABLE_FIELDS),
        }

    def open(self, context: Context) -> None:
        """Make the client. Raises SquallError for settings and secrets that are not valid here."""
        self._task = KafkaTask(self, context, epochs=state_path(context.conf) is not None)

    def next_tuple(self) -> float | None:
        """Emit the next messages."""
        return self._task.next(self.emit_many)

    def position(self) -> dict[str, dict[int, int]]:
        """Return the next offset of each partition of this task, by topic."""
        return self._task.position()

    def rewind(self, position: Offsets | None) -> None:
        """Go on at these offsets. Raises `LostMessages` if one of them is gone."""
        self._task.rewind(position)

    def merge_positions(self, positions: list[Offsets]) -> dict[str, dict[int, int]]:
        """Return the union: each partition is in the position of the one task that read it."""
        return merged(positions)


def _topic_problems(topics: object) -> Iterator[str]:
    names = (topics,) if isinstance(topics, str) else topics
    if not isinstance(names, Sequence) or not names:
        yield f"topics is {typed(topics)}: give a topic, a list of topics, or a pattern that begins with '^'"
        return
    for name in names:
        if isinstance(name, str) and is_pattern(name):
            try:
                re.compile(name)
            except re.error as error:
                yield f"topics has the pattern {typed(name)}, which is none: {error}"
        elif not isinstance(name, str) or not TOPIC.fullmatch(name):
            yield f"topics has {typed(name)}: a topic's name has letters, digits, '.', '_' and '-'; a pattern begins with '^'"


def _start_problems(start: object) -> Iterator[str]:
    if isinstance(start, datetime):
        yield from filter(None, [zone_problem(start)])
    elif isinstance(start, Mapping):
        good = all(
            isinstance(topic, str)
            and isinstance(offsets, Mapping)
            and all(type(n) is int and n >= 0 and type(o) is int and o >= 0 for n, o in offsets.items())
            for topic, offsets in start.items()
        )
        if not good or not start:
            yield f'start is {typed(start)}: give the offsets by topic and partition, {{"orders": {{0: 1500, 1: 1470}}}}'
    elif start not in (EARLIEST, LATEST):
        ways = f"{EARLIEST!r}, {LATEST!r}, a datetime or ISO text, or {{topic: {{partition: offset}}}}"
        yield f"start is {typed(start)}: give {ways}"
