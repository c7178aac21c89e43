"""Which shards of a stream a task reads, where each of them goes on, and which of them wait for their parents.

A shard belongs to a task by the beginning of its range of hash keys alone, so that each task knows its shards without asking
another one, and the children of a shard mostly belong to its task. A child is read after those of its parents that are in the
same task.
Must not know: clients, records, tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from topology_api import SquallError

#: Hash keys are below this number.
_KEYS: Final = 2**128
#: In place of a sequence number: nothing is read yet; everything is read, and the shard is closed.
BEGIN, END = "", "end"

#: As a position has it for each shard: the sequence number of the last record, or BEGIN or END; the time from which reading
#: begins, 0: with the oldest record; the time until which everything is read, 0: not known. Times are milliseconds since 1970.
Place = tuple[str, int, int]
#: In a position, beside the shards: END if the task has seen which shards there are, so that another one has appeared since;
#: otherwise BEGIN, and the time at which those that are there then begin.
SEEN: Final = ""


class LostRecords(SquallError):
    """Records that the spout was to read are gone: the retention of the stream was shorter than the topology was away."""


class Shard(msgspec.Struct, frozen=True):
    """A shard as the service lists it."""

    id: str
    first_key: int
    parents: tuple[str, ...] = ()


def shard_of(listed: Mapping[str, Any]) -> Shard:
    """Return a shard of an answer to ListShards."""
    parents = [listed.get(name) for name in ("ParentShardId", "AdjacentParentShardId")]
    return Shard(
        listed["ShardId"],
        int(listed["HashKeyRange"]["StartingHashKey"]),
        tuple(each for each in parents if each is not None),
    )


def task_of_shard(shard: Shard, parallelism: int) -> int:
    """Return the index of the task that reads a shard: tasks divide the range of hash keys evenly."""
    return shard.first_key * parallelism // _KEYS


def united_places(positions: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the positions of all tasks together.

    A shard is read by one task. A task that has not seen the shards yet may have an older place of another one's.
    """
    united: dict[str, list[Any]] = {}
    for position in positions:
        for shard, place in position.items():
            behind, ahead = sorted([united.get(shard, place), place], key=_order)
            united[shard] = list(behind if shard == SEEN else ahead)  # all must have seen the shards
    return united


def _order(place: Sequence[Any]) -> tuple[bool, int]:
    sequence = place[0]
    return sequence == END, 0 if sequence in (BEGIN, END) else int(sequence)


class TaskShards:
    """The shards of one task.

    start: the milliseconds since 1970 at which shards begin that are there at the start; 0: at their oldest record.
    """

    def __init__(self, index: int, parallelism: int, start: int) -> None:
        self._index, self._parallelism = index, parallelism
        self._given_start = self._start = start
        #: The position to begin at, of all tasks; None: there is none.
        self._known: dict[str, Place] | None = None
        #: Where each shard of this task goes on.
        self.places: dict[str, Place] = {}
        self._shards: dict[str, Shard] = {}
        #: Whether the shards were seen: since the last rewind; before the position to begin at.
        self._looked = self._seen = False

    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Begin at a position; None: at the start."""
        self._known = None if position is None else {shard: _place(at) for shard, at in position.items()}
        self._seen = bool(self._known)
        self._start = self._given_start
        if self._known is not None and (seen := self._known.pop(SEEN, None)) is not None:
            self._seen = seen[0] == END
            if not self._seen:
                self._start = seen[1]
        self.places.clear()
        self._shards.clear()
        self._looked = False

    def found(self, shards: Iterable[Shard], now: int, retention: int) -> list[str]:
        """Take the shards that the service has; return what may be lost, as texts. Raises LostRecords.

        now: milliseconds since 1970. retention: milliseconds for which the stream keeps records.
        """
        listed = {shard.id: shard for shard in shards}
        own = {
            name for name, shard in listed.items() if task_of_shard(shard, self._parallelism) == self._index
        }
        self._shards = listed
        known = {} if self._known is None or self._looked else self._known
        if gone := [
            name for name, (at, _, _) in {**known, **self.places}.items() if at != END and name not in listed
        ]:
            raise LostRecords(
                f"{len(gone)} shard(s) of which the topology has a position do not exist any more ({', '.join(gone[:3])}): the"
                " retention of the stream was shorter than the topology was away. Set another topology.state.path, with which"
                " reading begins at `start`"
            )
        doubts = []
        for name in sorted(own - self.places.keys()):
            place = self._first_place(name)
            self.places[name] = place
            if 0 < place[2] < now - retention and place[0] != END:
                doubts.append(
                    f"{name} is read up to {(now - place[2]) // 1000} s ago, and the stream keeps records for"
                    f" {retention // 1000} s: what came between may be lost"
                )
        for name in [name for name in self.places if name not in listed]:
            del self.places[name]  # it was read to its end
        self._looked = True
        return doubts

    def _first_place(self, name: str) -> Place:
        known = self._known or {}
        if name in known:
            return known[name]
        # A shard that has appeared since the start is read from its first record.
        return (BEGIN, 0 if self._looked or self._seen or self._descends(name, known) else self._start, 0)

    def _descends(self, name: str, known: Mapping[str, Place]) -> bool:
        """Return whether a shard comes of one that a position names."""
        parents = self._shards[name].parents if name in self._shards else ()
        return any(parent in known or self._descends(parent, known) for parent in parents)

    def readable(self) -> list[str]:
        """Return the shards that can be read now: not finished, and no parent in this task is unfinished."""
        places = self.places
        return [
            name
            for name, place in places.items()
            if place[0] != END
            and not any(
                parent in places and places[parent][0] != END for parent in self._shards[name].parents
            )
        ]

    def read(self, name: str, sequence: str, arrived: int) -> None:
        """Note that a record was emitted. arrived: when the stream got it, in milliseconds since 1970."""
        _, start, until = self.places[name]
        self.places[name] = (sequence, start, max(until, arrived))

    def read_until(self, name: str, until: int) -> None:
        """Note that everything that came before this time is emitted."""
        sequence, start, before = self.places[name]
        self.places[name] = (sequence, start, max(until, before))

    def finished(self, name: str) -> None:
        """Note that a closed shard is read to its end."""
        _, start, until = self.places[name]
        self.places[name] = (END, start, until)

    def position(self) -> dict[str, list[Any]]:
        """Return where each shard goes on."""
        places = self.places if self._looked else self._known or {}
        seen = (END if self._looked or self._seen else BEGIN, self._start, 0)
        return {name: list(place) for name, place in {**places, SEEN: seen}.items()}


def _place(at: Sequence[Any]) -> Place:
    sequence, start, until = at
    return str(sequence), int(start), int(until)


def iterator_arguments(place: Place) -> dict[str, Any]:
    """Return the arguments of GetShardIterator that begin at a place."""
    sequence, start, _ = place
    if sequence != BEGIN:
        return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence}
    if start:
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": start / 1000}
    return {"ShardIteratorType": "TRIM_HORIZON"}
