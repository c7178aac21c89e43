"""Which partitions a task reads, where each of them begins, how far it is read and settled, and which of them is paused.

A partition begins at the first of these that there is: the position that a commit of the topology has, the offset that the
group has committed, the `start` of the spout. A partition that appears later begins at its earliest message, whatever `start`
says: else what was written before it was found would be left out.
Must not know: clients, brokers, tuples.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from squall_io.kit.in_flight import ItemsInFlight
from squall_io.kit.shares import own_partitions
from topology_api import SquallError

#: (topic, number)
Partition = tuple[str, int]
#: (topic, number, generation)
Place = tuple[str, int, int]
#: What a position and the argument `start` are: {topic: {partition: offset}}.
Offsets = Mapping[str, Mapping[int, int]]
#: The argument `start`.
Start = str | datetime | Offsets

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
#: What a pattern begins with; no topic's name does.
PATTERN: Final = "^"
#: Kafka's own topics, which a pattern matches only if it says so.
_INTERNAL: Final = "__"


class LostMessages(SquallError):
    """Messages that the spout was to read are gone: a topic was deleted, or retention was faster."""


class Gap(msgspec.Struct, frozen=True):
    """What is between where a partition was to go on and where it can. lost: how many offsets; None: that cannot be known."""

    partition: Partition
    wanted: int
    low: int
    high: int

    @property
    def lost(self) -> int | None:
        return self.low - self.wanted if self.wanted < self.low else None

    def __str__(self) -> str:
        name = shown_partition(self.partition)
        if self.lost is not None:
            return (
                f"{name} has lost {self.lost} offset(s), {self.wanted} to {self.low - 1}, before they were read: its earliest"
                f" message is now at {self.low}"
            )
        return (
            f"{name} ends at offset {self.high}, before {self.wanted}, where it was to go on: the topic was deleted and created"
            " again, or has lost its last messages"
        )


def gap_at(partition: Partition, offset: int, low: int, high: int) -> Gap | None:
    """Return what is missing if a partition with these offsets is to go on at this one; None: nothing."""
    return None if low <= offset <= high else Gap(partition, offset, low, high)


def shown_partition(partition: Partition) -> str:
    """Return the name of a partition in texts: orders-3."""
    return f"{partition[0]}-{partition[1]}"


def is_pattern(topic: str) -> bool:
    """Return whether an entry of the argument `topics` is a pattern."""
    return topic.startswith(PATTERN)


def matching(patterns: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Return the topics that match a pattern."""
    known = [(each, re.compile(each)) for each in patterns]
    return sorted(
        topic
        for topic in topics
        if any(
            found.match(topic) and (not topic.startswith(_INTERNAL) or each.startswith(PATTERN + _INTERNAL))
            for each, found in known
        )
    )


class PartitionProgress:
    """How far one partition is emitted and settled."""

    __slots__ = ("items", "left_out", "partition", "paused", "place")

    def __init__(self, partition: Partition, offset: int, generation: int = 0) -> None:
        self.partition = partition
        #: Names the partition in message ids. generation: how often its offsets have begun again, in a topic of the same name.
        self.place = (*partition, generation)
        self.items = ItemsInFlight(offset)
        self.paused = False
        #: How many of its messages could not be read.
        self.left_out = 0


class TaskPartitions:
    """The partitions of one task.

    topics: the topics and patterns to read. max_gap: how many messages from an unsettled one on may be emitted. tracked:
    whether it counts what is settled; else only what is emitted.
    """

    def __init__(
        self, topics: Iterable[str], index: int, parallelism: int, start: Start, max_gap: int, tracked: bool
    ) -> None:
        self.topics = tuple(topics)
        self._index, self._parallelism = index, parallelism
        self._start = start
        self._max_gap = max_gap
        self._tracked = tracked
        #: The position that the topology's commit has, of all tasks; None: there is none.
        self.known: dict[str, dict[int, int]] | None = None
        #: Topics and patterns that were looked for: what is found later begins at the earliest.
        self._looked: set[str] = set()
        self.partitions: dict[Partition, PartitionProgress] = {}
        self._placed: dict[Place, PartitionProgress] = {}
        self._topics: set[str] = set()

    def rewind(self, position: Offsets | None) -> None:
        """Begin at a position; None: at the start."""
        if position is not None:
            self.known = {
                topic: {int(number): offset for number, offset in offsets.items()}
                for topic, offsets in position.items()
            }
            self._looked |= set(self.known)

    def new(self, found: Mapping[str, Iterable[int]]) -> list[Partition]:
        """Return the partitions of this task that it does not read yet. found: the partitions of each topic."""
        every = ((topic, number) for topic, numbers in found.items() for number in numbers)
        own = own_partitions(every, self._index, self._parallelism)
        return [each for each in own if each not in self.partitions]

    def begin(self, partition: Partition, committed: Mapping[Partition, int]) -> int | str | datetime:
        """Return where a new partition begins: an offset, a time, EARLIEST or LATEST. committed: the offsets of the group."""
        topic, number = partition
        if self.known is not None and (offset := self.known.get(topic, {}).get(number)) is not None:
            return offset
        if (offset := committed.get(partition)) is not None:
            return offset
        if self._is_later(topic) or any(other == topic for other, _ in committed):
            return EARLIEST
        if isinstance(self._start, Mapping):
            return self._start.get(topic, {}).get(number, EARLIEST)
        return self._start

    def _is_later(self, topic: str) -> bool:
        if topic in self.topics:
            return topic in self._looked
        patterns = [each for each in self.topics if is_pattern(each)]
        return any(each in self._looked and matching([each], [topic]) for each in patterns)

    def must_go_on(self, partition: Partition) -> bool:
        """Return whether a commit of the topology says where this partition goes on."""
        return self.known is not None and partition[1] in self.known.get(partition[0], {})

    def gone(self, found: Mapping[str, Iterable[int]], refused: Collection[str] = ()) -> list[Partition]:
        """Return the partitions of this task that a commit of the topology names, and that are gone. found: as for `new`.
        refused: topics of which this cannot be known."""
        own = own_partitions(self._known_partitions(), self._index, self._parallelism)
        patterns = [each for each in self.topics if is_pattern(each)]
        return [
            (topic, number)
            for topic, number in own
            if topic not in refused
            and (topic in self.topics or matching(patterns, [topic]))
            and number not in found.get(topic, ())
        ]

    def begun(self, partition: Partition, offset: int) -> None:
        """Note that a partition begins here."""
        self._put(PartitionProgress(partition, offset))

    def _put(self, progress: PartitionProgress) -> None:
        self._topics.add(progress.partition[0])
        self.partitions[progress.partition] = self._placed[progress.place] = progress

    @property
    def several_topics(self) -> bool:
        """Whether the number of a partition does not say which one it is."""
        return len(self._topics) > 1

    def looked(self, found: Iterable[str]) -> None:
        """Note that everything was looked for, and all partitions of these topics have begun."""
        self._looked |= {*self.topics, *found}

    def position(self) -> dict[str, dict[int, int]]:
        """Return where each partition goes on, and the topics that were looked for. Before anything has begun it is `known`."""
        position: dict[str, dict[int, int]] = {topic: {} for topic in sorted(self._looked)}
        if self.known is not None:
            own = own_partitions(self._known_partitions(), self._index, self._parallelism)
            for topic, number in own:
                position[topic][number] = self.known[topic][number]
        for (topic, number), progress in self.partitions.items():
            position.setdefault(topic, {})[number] = progress.items.next
        return position

    def _known_partitions(self) -> Iterator[Partition]:
        for topic, offsets in (self.known or {}).items():
            yield from ((topic, number) for number in offsets)

    def settled(self) -> dict[Partition, int]:
        """Return the offset of each partition before which everything is settled."""
        return {place: progress.items.position for place, progress in self.partitions.items()}

    def settle(self, place: Place, offsets: list[int]) -> PartitionProgress | None:
        """Note that messages are settled; return their partition if that was paused and may be read on."""
        progress = self._placed.get(place)
        if progress is None or not self._tracked:
            return None
        items = progress.items
        items.settle_many(offsets)
        if progress.paused and 2 * items.waiting <= self._max_gap:
            progress.paused = False
            return progress
        return None

    def is_full(self, progress: PartitionProgress) -> bool:
        """Return whether a partition must be paused."""
        return self._tracked and not progress.paused and progress.items.waiting >= self._max_gap

    def jumped(self, partition: Partition, offset: int) -> None:
        """Note that a partition goes on elsewhere, since what was to come is gone."""
        progress = self.partitions[partition]
        if offset >= progress.items.next:
            progress.items.next = offset
            return
        del self._placed[progress.place]  # what is under way belongs to a topic that is gone
        self._put(PartitionProgress(partition, offset, progress.place[2] + 1))

    def ended(self, progress: PartitionProgress, offset: int) -> None:
        """Note that there is nothing before this offset any more: what is between is no message (marks of transactions)."""
        progress.items.next = max(progress.items.next, offset)

    def waits(self) -> str:
        """Return why a partition is paused, "" if none is."""
        paused = [each for each in self.partitions.values() if each.paused]
        if not paused:
            return ""
        first = paused[0]
        more = f"; {len(paused) - 1} more partition(s) are paused" if len(paused) > 1 else ""
        return (
            f"{shown_partition(first.partition)} is paused: offset {first.items.position} is neither acked nor failed, and"
            f" {first.items.waiting} messages from it on are emitted{more}"
        )


def by_place(message_ids: list[tuple[Place, int]]) -> dict[Place, list[int]]:
    """Return the offsets that message ids name, by partition; mostly all are of one."""
    places, offsets = zip(*message_ids)
    if places.count(places[0]) == len(places):
        return {places[0]: list(offsets)}
    found: dict[Place, list[int]] = {}
    for place, offset in message_ids:
        found.setdefault(place, []).append(offset)
    return found


def merged(positions: Iterable[Offsets]) -> dict[str, dict[int, int]]:
    """Return the positions of all tasks together. A partition is read by one task."""
    every: dict[str, dict[int, int]] = {}
    for position in positions:
        for topic, offsets in position.items():
            every.setdefault(topic, {}).update((int(number), offset) for number, offset in offsets.items())
    return every


def checked_position(position: Any) -> Offsets:
    """Return a position from a commit. Raises SquallError if it is none of this spout."""
    if isinstance(position, Mapping) and all(isinstance(each, Mapping) for each in position.values()):
        return position
    raise SquallError(
        "the committed position is none of a KafkaSpout: another spout had this component's id; give another"
        " topology.state.path"
    )
