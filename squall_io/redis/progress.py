"""How far one stream is read and settled, and what is gone of it: decided from what Redis says of the stream.

Redis counts the entries that a stream ever had (`entries-added`), and a task counts those up to its position. So once no entry
up to the position is left, the difference says exactly how many behind it were trimmed (XTRIM, MAXLEN) before they were read.
Entries that were deleted one by one (XDEL) before they were read show in `max-deleted-entry-id`, without their number.
Must not know: connections, tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from squall_io.kit.in_flight import ItemsInFlight
from squall_io.kit.shares import task_of
from squall_io.redis.ids import NO_ID, id_of, id_text
from topology_api import SquallError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
#: What a commit has: {stream: [id, number of entries up to it, or None]}.
Positions = Mapping[str, Any]


class LostEntries(SquallError):
    """Entries that the spout was to read are gone: trimmed, deleted, or with their whole stream."""


class StreamState(msgspec.Struct, frozen=True):
    """What Redis says of a stream. Ids are numbers, 0: none. first: of the first entry that is there. added: how many entries
    it ever had."""

    length: int
    first: int
    last: int
    deleted: int
    added: int


#: A stream that does not exist.
MISSING: Final = StreamState(0, NO_ID, NO_ID, NO_ID, 0)


def state_of(answer: Mapping[Any, Any]) -> StreamState:
    """Return what an answer to XINFO STREAM says."""
    known = {name.decode(): value for name, value in answer.items()}
    first = known["first-entry"]
    return StreamState(
        int(known["length"]),
        NO_ID if first is None else id_of(first[0]),
        id_of(known["last-generated-id"]),
        id_of(known["max-deleted-entry-id"]),
        int(known["entries-added"]),
    )


class Loss(msgspec.Struct, frozen=True):
    """What is gone. count: how many entries, at least; 0: not known. strict: a commit of the topology cannot go on there.
    is_new: the stream begins again. why: a text that names the stream."""

    count: int
    strict: bool
    is_new: bool
    why: str


class StreamProgress:
    """How far one stream is read.

    id: of the last entry that was emitted. count: how many entries the stream had up to it; None: not known.
    was_read: whether the entry with this id was read; otherwise the stream may not reach it yet.
    """

    def __init__(
        self, name: str, id: int, count: int | None, generation: int = 0, was_read: bool = False
    ) -> None:
        self.name = name
        self.count = count
        #: Names the stream in message ids. generation: how often it was deleted and made again.
        self.place = (name, generation)
        #: The position of an item is the id of the entry before it.
        self.items = ItemsInFlight(id)
        self.was_read = was_read
        self.state = MISSING
        self.paused = False
        self.left_out = 0
        #: The entry up to which a deletion was reported.
        self.reported = NO_ID

    @property
    def id(self) -> int:
        return self.items.next

    def emitted(self, id: int, tracked: bool) -> int:
        """Note that an entry was emitted; return what settles it."""
        before = self.items.next
        self.was_read = True
        if tracked:
            self.items.taken(before, id)
        else:
            self.items.next = id
        if id == self.state.last:
            self.count = self.state.added
        elif self.count is not None:
            self.count += 1
        return before

    def settled(self) -> tuple[int, int | None]:
        """Return the id up to which everything is settled, and how many entries that are."""
        waiting = self.items.waiting
        return self.items.position, None if self.count is None else max(0, self.count - waiting)

    def behind(self) -> int:
        """Return how many entries are behind what is settled."""
        count = self.settled()[1]
        if count is None:
            return self.state.length if self.state.last > self.items.position else 0
        return max(0, self.state.added - count)

    def seen(self, state: StreamState) -> Loss | None:
        """Take what Redis says of the stream now; return what is gone of what was to be read."""
        self.state = state
        loss = self._loss(state)
        if loss is not None:
            self.reported = max(state.deleted, self.reported)
            self.count = state.added - state.length if state.first > self.id else None
        return loss

    def ended(self) -> None:
        """Note that nothing is behind `id`: entries up to the last id were emitted or are gone."""
        if self.id <= self.state.last:
            self.items.next = self.state.last
            self.count = self.state.added

    def again(self) -> StreamProgress:
        """Return the progress of a stream that was deleted or has lost its last entries: at what it has now.

        What is still in flight is emitted again, since the acks of the earlier generation are for nothing.
        """
        state, name, generation = self.state, self.name, self.place[1] + 1
        id = min(self.items.position, state.last)
        count = counted_up_to(id, state) if state.length else state.added
        progress = StreamProgress(name, id, count, generation)
        progress.state = state
        return progress

    def _loss(self, state: StreamState) -> Loss | None:
        id, count, name = self.id, self.count, f"stream {self.name!r}"
        has_passed = state.last > id and (
            not state.length or state.first > id
        )  # no entry up to the position is left
        was_there = count is not None or self.was_read
        there = f"its first entry is now {id_text(state.first)}" if state.length else "it is empty now"
        if state is MISSING:
            if was_there and (id or count):
                return Loss(0, True, True, f"{name} does not exist any more, and {id_text(id)} was read")
            return None
        if was_there and (state.last < id or state.added < (count or 0)):
            why = (
                f"{name} ends at {id_text(state.last)} after {state.added} entries, and {id_text(id)} was read: it was deleted"
                " and made again, or Redis has lost its last entries"
            )
            return Loss(0, True, True, why)
        if count is None:
            if id and has_passed:
                why = f"{name} may have lost entries behind {id_text(id)} before they were read: {there}"
                return Loss(0, True, False, why)
        elif has_passed:
            lost = state.added - count - state.length
            why = f"{name} has lost {lost} entries behind {id_text(id)} before they were read: {there}"
            return Loss(lost, True, False, why) if lost > 0 else None
        if state.deleted > max(id, self.reported):
            why = (
                f"{name} has lost at least 1 entry behind {id_text(id)} before it was read: {id_text(state.deleted)} was"
                " deleted (XDEL)"
            )
            return Loss(1, False, False, why)
        return None


def beginning(start: str | int, state: StreamState) -> tuple[int, int | None]:
    """Return the id behind which a stream begins, and how many entries it had up to there."""
    if start == LATEST:
        return state.last, state.added
    if start == EARLIEST:
        return NO_ID, state.added - state.length
    assert isinstance(start, int)
    return start, counted_up_to(start, state)


def counted_up_to(id: int, state: StreamState) -> int | None:
    """Return how many entries a stream had up to an id; None: that cannot be known, or the id is none of the stream yet."""
    if id == state.last:
        return state.added
    return state.added - state.length if state.length and id < state.first else None


def own_streams(streams: Iterable[str], index: int, parallelism: int) -> list[str]:
    """Return the streams of one task."""
    return [each for each in streams if task_of(each, parallelism) == index]


def checked_positions(position: Any) -> dict[str, tuple[int, int | None]]:
    """Return the position of a commit: (id, count) of each stream. Raises SquallError if it is none of this spout."""
    try:
        return {str(name): (id_of(id), count) for name, (id, count) in position.items()}
    except (AttributeError, TypeError, ValueError):
        raise SquallError(
            "the committed position is none of a RedisStreamSpout: another spout had this component's id; give another"
            " topology.state.path"
        ) from None


def united_positions(positions: Iterable[Positions]) -> dict[str, Any]:
    """Return the positions of all tasks together. A stream is read by one task."""
    return {name: place for position in positions for name, place in position.items()}
