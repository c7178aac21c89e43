"""Reading streams: what is behind some ids, what Redis says of the streams, and the place that a group stores.

Must not know: tuples, trees, what was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from squall_io.redis.connection import Command, RedisConnection, RedisRefused
from squall_io.redis.ids import id_of, id_text
from squall_io.redis.progress import MISSING, StreamProgress, StreamState, state_of

#: What Redis says of a key that does not exist, and of a group that does not.
_NO_KEY: Final = ("no such key", "requires the key to exist")
_NO_GROUP: Final = "NOGROUP"
#: An id and the number of entries up to it; None: not known.
Place = tuple[int, int | None]
#: An id, and names and values in turn.
Found = tuple[bytes, list[bytes]]


class RedisStreamReader:
    """Reads by one connection. All methods raise RedisAway and RedisRefused. group: where places are stored; None: nowhere."""

    def __init__(self, connection: RedisConnection, group: str | None) -> None:
        self._connection = connection
        self.group = group
        #: What the group stores, as far as it is known.
        self._stored: dict[str, Place] = {}

    def state(self, name: str) -> StreamState:
        """Return what Redis says of a stream; MISSING if there is none."""
        (answer,) = self._connection.call(("XINFO", "STREAM", name))
        return self._state(name, answer)

    def read(
        self, streams: Sequence[StreamProgress], most: int
    ) -> list[tuple[StreamState, list[Found]] | RedisRefused]:
        """Return what each stream is, and at most some entries behind its id, both at the same moment."""
        asked: list[Command] = []
        for each in streams:
            asked.append(("XINFO", "STREAM", each.name))
            asked.append(("XRANGE", each.name, f"({id_text(each.id)}", "+", "COUNT", most))
        *queued, answers = self._connection.call(("MULTI",), *asked, ("EXEC",))
        for answer in (*queued, answers):
            if self._connection.is_fault(answer):
                raise self._connection.fault_in(answer)
        looks: list[tuple[StreamState, list[Found]] | RedisRefused] = []
        for number, each in enumerate(streams):
            told, entries = answers[2 * number], answers[2 * number + 1]
            try:
                state = self._state(each.name, told)
                if self._connection.is_fault(entries):
                    raise self._refused(each.name, entries)
                looks.append((state, [] if state is MISSING else [tuple(entry) for entry in entries]))
            except RedisRefused as error:
                looks.append(error)
        return looks

    def has_more(self, streams: Sequence[StreamProgress]) -> bool:
        """Return whether one of the streams has a further entry. It costs the server less than `read`."""
        names = [each.name for each in streams]
        ids = [id_text(each.id) for each in streams]
        (answer,) = self._connection.call(("XREAD", "COUNT", 1, "STREAMS", *names, *ids))
        return bool(answer)  # also if it is an error: then reading says which stream has it

    def stored_place(self, name: str) -> Place | None:
        """Return the place that the group stores; None: there is none. Raises RedisRefused for a group with consumers."""
        if self.group is None:
            return None
        (answer,) = self._connection.call(("XINFO", "GROUPS", name))
        if self._connection.is_fault(answer):
            if _is_missing(answer):
                return None
            raise self._refused(name, answer)
        for each in answer:
            known = {key.decode(): value for key, value in each.items()}
            if known["name"].decode(errors="replace") == self.group:
                self._check_consumers(name, known)
                count = known.get("entries-read")
                self._stored[name] = (
                    id_of(known["last-delivered-id"]),
                    None if count is None else int(count),
                )
                return self._stored[name]
        return None

    def save(self, places: Mapping[str, Place]) -> Iterator[RedisRefused]:
        """Store places that have changed; yield what the server refuses."""
        changed = {name: place for name, place in places.items() if self._stored.get(name) != place}
        if self.group is None:
            return
        for name in (
            changed.keys() - self._stored.keys()
        ):  # another application may have made the group meanwhile
            try:
                self.stored_place(name)
            except RedisRefused as error:
                del changed[name]
                yield error
        if not changed:
            return
        answers = self._connection.call(*(self._setting("SETID", *each) for each in changed.items()))
        for (name, place), answer in zip(changed.items(), answers):
            said = answer
            if self._connection.is_fault(said) and _NO_GROUP in str(said):
                (said,) = self._connection.call(self._setting("CREATE", name, place))
            if not self._connection.is_fault(said):
                self._stored[name] = place
            elif not _is_missing(said):  # a stream that does not exist yet has no groups
                yield self._refused(name, said, f"the place of group {self.group!r} cannot be stored")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _setting(self, kind: str, name: str, place: Place) -> Command:
        id, count = place
        assert self.group is not None
        counted: Command = () if count is None else ("ENTRIESREAD", count)
        return ("XGROUP", kind, name, self.group, id_text(id), *counted)

    def _check_consumers(self, name: str, known: Mapping[str, Any]) -> None:
        if known["consumers"] or known["pending"]:
            raise RedisRefused(
                f"group {self.group!r} of stream {name!r} has consumers, which move the place that it stores: give the spout a"
                " group of its own"
            )

    def _state(self, name: str, answer: Any) -> StreamState:
        if not self._connection.is_fault(answer):
            return state_of(answer)
        if _is_missing(answer):
            return MISSING
        raise self._refused(name, answer)

    def _refused(self, name: str, answer: Any, what: str = "it cannot be read") -> RedisRefused:
        if "WRONGTYPE" in str(answer):
            return RedisRefused(
                f"key {name!r} at {self._connection.where} holds no stream: name another key, or remove it"
            )
        fault = self._connection.fault_in(answer)
        if not isinstance(fault, RedisRefused):
            raise fault
        return RedisRefused(f"stream {name!r}: {what}: {fault}")


def _is_missing(answer: object) -> bool:
    return any(each in str(answer) for each in _NO_KEY)
