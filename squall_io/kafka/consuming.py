"""The consumer of one task: it is assigned partitions by Squall, and joins no group; a group only stores its offsets.

Errors of the client come as `KafkaAway` (waiting helps) or `KafkaRefused` (it does not).
Must not know: tuples, where partitions begin, what is paused and why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from squall_io.kafka.assignment import EARLIEST, LATEST, Partition, is_pattern, matching, shown_partition
from squall_io.kafka.client import (
    ClientEvents,
    KafkaRefused,
    client_settings,
    is_away,
    loaded,
    made,
    refusal,
    text_of,
)
from topology_api import SquallError

#: Seconds for an answer, and for one after a call that had none. The task handles no acks meanwhile.
ANSWER_SECS: Final = 5.0
AWAY_SECS: Final = 1.0
#: Seconds for the last commit and the end of the client: a broker that is away must not hold up the end of a worker.
CLOSE_SECS: Final = 5.0
#: The most events that are looked at before anything is read.
_EVENTS: Final = 100
#: The group of clients that store no offsets: the library wants a name. Nothing of it reaches a broker but a look for it.
_NO_GROUP: Final = "squall"
NO_TOPIC: Final = frozenset(
    ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
)
#: What the protocol calls the two ends in place of a time.
_ENDS: Final = {EARLIEST: -2, LATEST: -1}

#: Settings of consumers that no user gives, and what to do instead.
DECIDED_BY_SPOUT: Final = {
    "group.id": "give group=",
    "auto.offset.reset": "give start=",
    "enable.auto.commit": "offsets are committed when their tuples are settled",
    "enable.auto.offset.store": "offsets are committed when their tuples are settled",
    "auto.commit.interval.ms": "offsets are committed once a second",
    "group.instance.id": "tasks join no group: Squall assigns the partitions",
    "group.protocol": "tasks join no group: Squall assigns the partitions",
    "partition.assignment.strategy": "tasks join no group: Squall assigns the partitions",
    "enable.partition.eof": "the spout needs it",
    "on_commit": "see the log of the worker",
    "rebalance_cb": "tasks join no group: Squall assigns the partitions",
}
#: What users may change. Messages wait in a queue of this size at most, whatever their sizes and the lag; it is filled again
#: soon, since a fast reader empties it many times a second.
_DEFAULTS: Final[dict[str, Any]] = {
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 16_384,
    "fetch.max.bytes": 16_777_216,
    "fetch.queue.backoff.ms": 20,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 30_000,
    "allow.auto.create.topics": False,
    # A task that is held up for long is no member of a group that should leave it.
    "max.poll.interval.ms": 86_400_000,
}
#: Clients that did not end in time: they end when their brokers answer, or with the process. Held, since the end of a client
#: that is collected would hold up the thread that collects it.
_LINGERING: list[Any] = []


class KafkaAway(SquallError):
    """No broker answers, or not yet."""


class KafkaReader:
    """The client. Raises SquallError for settings that it does not take."""

    def __init__(
        self,
        servers: str | Sequence[str],
        group: str | None,
        settings: Mapping[str, Any] | None,
        events: ClientEvents,
    ) -> None:
        self.events = events
        self._group = group
        library = loaded("KafkaSpout")
        self._place = library.TopicPartition
        self._failure: type[Exception] = library.KafkaException
        own = {
            **events.settings,
            "group.id": _NO_GROUP if group is None else group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "on_commit": self._committed,
        }
        user = client_settings(servers, settings, _DEFAULTS)
        self._consumer = made(library.Consumer, {**user, **own})
        self.consume: Callable[..., list[Any]] = self._consumer.consume
        self._open = threading.Lock()
        self._closed = False
        self._is_away = False
        #: The offsets that the group was last asked to store, those that it has stored, and what the last failure said.
        self._wanted: dict[Partition, int] = {}
        self.stored: dict[Partition, int] = {}
        self.commit_error: Any = None

    def find(self, topics: Iterable[str]) -> tuple[dict[str, list[int]], dict[str, KafkaRefused]]:
        """Return the partitions of topics and of those that match patterns, and why others cannot be read, by topic. A topic
        that is missing has no partitions."""
        found: dict[str, list[int]] = {}
        refused: dict[str, KafkaRefused] = {}
        about: dict[str, Any] = {}
        if patterns := [each for each in topics if is_pattern(each)]:
            every = self._called("the topics cannot be listed", self._consumer.list_topics).topics
            about = {name: every[name] for name in matching(patterns, every)}
        for name in topics:
            if not is_pattern(name):
                what = f"topic {name!r} cannot be found"
                about[name] = self._called(what, partial(self._consumer.list_topics, name)).topics[name]
        for name, each in about.items():
            try:
                if each.error is not None and each.error.name() not in NO_TOPIC:
                    self._raise(each.error, f"topic {name!r} cannot be read")
                found[name] = [] if each.error is not None else sorted(each.partitions)
            except KafkaRefused as error:
                refused[name] = error
        return found, refused

    def offsets_at(self, when: Mapping[Partition, str | datetime]) -> dict[Partition, int]:
        """Return the offset of each partition at one of its ends, or of its first message at a time or later. Raises KafkaAway
        for a partition that is unknown: after a start of its broker it has no leader yet."""
        asked = [
            self._place(*place, _ENDS[at] if isinstance(at, str) else int(at.timestamp() * 1000))
            for place, at in when.items()
        ]
        answer = self._called("offsets cannot be found", self._consumer.offsets_for_times, asked)
        found = self._offsets(answer)
        if after := [place for place, offset in found.items() if offset < 0]:  # no message is so late
            found |= self.offsets_at(dict.fromkeys(after, LATEST))
        return found

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the earliest offset and the end of each partition."""
        asked = list(partitions)
        low = self.offsets_at(dict.fromkeys(asked, EARLIEST))
        high = self.offsets_at(dict.fromkeys(asked, LATEST))
        return {place: (low[place], high[place]) for place in asked}

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offsets that the group has committed, of those partitions that have one."""
        asked = [self._place(*place) for place in partitions]
        if self._group is None or not asked:
            return {}
        what = f"the offsets of group {self._group!r} cannot be read"
        try:
            answer = self._called(what, self._consumer.committed, asked)
        except KafkaAway:
            if (error := self._refusal_of_group()) is not None:
                raise refusal(error, what) from None
            raise
        found = self._offsets(answer)
        return {place: offset for place, offset in found.items() if offset >= 0}

    def _refusal_of_group(self) -> Any:
        """Return why the group may not be used, or None. The client reports it as an event only, and its call times out."""
        if self._consumer.assignment():
            return None  # messages are among the events: the task takes them
        errors = [message.error() for message in self.consume(_EVENTS, 0)]
        refused = (
            each for each in errors if each is not None and each.name() == "GROUP_AUTHORIZATION_FAILED"
        )
        return next(refused, None)

    def _offsets(self, answer: Iterable[Any]) -> dict[Partition, int]:
        found = {}
        for each in answer:
            place = (each.topic, each.partition)
            if each.error is not None:
                self._raise(each.error, f"{shown_partition(place)} cannot be read", unknown_passes=True)
            found[place] = each.offset
        return found

    def add(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to read partitions at these offsets."""
        self._consumer.incremental_assign([self._place(*place, offset) for place, offset in offsets.items()])

    def move(self, partition: Partition, offset: int) -> None:
        """Read on elsewhere."""
        self._consumer.incremental_unassign([self._place(*partition)])
        self.add({partition: offset})

    def pause(self, partition: Partition) -> None:
        """Read nothing more of a partition until `resume`."""
        self._consumer.pause([self._place(*partition)])

    def resume(self, partition: Partition) -> None:
        """Read a partition on."""
        self._consumer.resume([self._place(*partition)])

    def receive(self, most: int, seconds: float) -> list[Any]:
        """Return the next messages and events, at most this many; wait so long for the first one."""
        if (messages := self.consume(most, 0)) or not seconds:
            return messages
        first = self._consumer.poll(seconds)
        return [] if first is None else [first, *self.consume(most, 0)]

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Have the group store offsets. The answer comes later, in `stored` or `commit_error`; if the broker is away, maybe
        never."""
        self._wanted.update(offsets)
        places = [self._place(*place, offset) for place, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except self._failure as error:
            self.commit_error = error.args[0]

    def _committed(self, error: Any, places: Iterable[Any]) -> None:
        self.commit_error = error
        for each in places:
            if error is None and each.error is None:
                self.stored[each.topic, each.partition] = each.offset
            self.commit_error = self.commit_error or each.error

    def end_of(self, partition: Partition) -> int:
        """Return the end of a partition as far as the client knows; below 0 if it does not. May be called in another thread."""
        with self._open:
            if self._closed:
                return -1
            known = self._consumer.get_watermark_offsets(self._place(*partition), cached=True)
            return -1 if known is None else int(known[1])

    def close(self) -> None:
        """Wait for the last commits, and end; neither for long."""
        with self._open:
            self._closed = True
        end = time.monotonic() + (CLOSE_SECS if self.events.last is None else 1.0)
        while self._wanted.items() - self.stored.items() and time.monotonic() < end:
            self._consumer.poll(0.1)
        ending = threading.Thread(target=self._consumer.close, name="end of a Kafka client", daemon=True)
        ending.start()
        ending.join(CLOSE_SECS)
        if ending.is_alive():
            _LINGERING.append(self._consumer)

    def _called(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call that asks a broker."""
        try:
            answer = call(*arguments, timeout=AWAY_SECS if self._is_away else ANSWER_SECS)
        except self._failure as failure:
            self._is_away = is_away(failure.args[0])
            self._raise(failure.args[0], what, unknown_passes=True)
        self._is_away = False
        return answer

    def _raise(self, error: Any, what: str, unknown_passes: bool = False) -> None:
        away = is_away(error) or (unknown_passes and error.name() in NO_TOPIC)
        if (refused := self.events.refused) is not None and is_away(error):
            raise refusal(refused, what) from None
        if away:
            raise KafkaAway(self.events.reason(text_of(error))) from None
        raise refusal(error, what) from None


__all__ = ["DECIDED_BY_SPOUT", "NO_TOPIC", "KafkaAway", "KafkaReader", "KafkaRefused"]
