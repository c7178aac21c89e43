"""What the trials of both kinds of sinks share: tasks of a sink, rows with numbers, and what is visible.

A trial does not empty the place that the sink writes to: each has a lineage and rows of its own, and counts what has become
visible since it began. Must not know: epochs, which promises there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from local_cluster.contracts.opened import COMPONENT, Surroundings, context_of, shipped, tuples_of
from local_cluster.contracts.promises import Broken, Calls, difference
from topology_api import CommittingSink, SquallError, Tuple
from topology_api.wording import shown, typed

SinkT = TypeVar("SinkT", bound=CommittingSink)
#: How many tuples are made at a time.
CHUNK = 500
#: How many tasks are open at a time: each may hold a connection.
MOST_OPEN = 12
Row = tuple[Any, ...]


class Numbered:
    """Tuples with values of their own, one after the other."""

    def __init__(self, values: Callable[[int], Mapping[str, Any]]) -> None:
        self.values = values
        self.count = 0
        self.made: list[Tuple] = []

    def next(self, count: int) -> list[Tuple]:
        """Return the next tuples."""
        while len(self.made) < count:
            self.made += tuples_of([self._of(self.count + number) for number in range(CHUNK)])
            self.count += CHUNK
        taken, self.made = self.made[:count], self.made[count:]
        return taken

    def _of(self, number: int) -> Mapping[str, Any]:
        found = self.values(number)
        if not isinstance(found, Mapping):
            raise SquallError(
                f"values({number}) is {typed(found)}: return a dict from the fields of a tuple to its values"
            )
        return found


class SinkPlace(Generic[SinkT]):
    """Where the rows of a sink become visible, and how its tasks are made."""

    def __init__(
        self,
        kind: type[SinkT],
        make: Callable[[], SinkT],
        values: Callable[[int], Mapping[str, Any]],
        visible: Callable[[], Iterable[Any]],
    ) -> None:
        sink = make()
        if not isinstance(sink, kind):
            raise SquallError(f"make() returned {typed(sink)}: return a new {kind.__name__}")
        self.kind, self.make, self.numbered, self.visible = kind, make, Numbered(values), visible
        self.name = type(sink).__name__

    def rows(self) -> Counter[Row]:
        """Return the visible rows, counted."""
        return Counter(_row(each) for each in self.visible())


def _row(found: Any) -> Row:
    """Return a visible row as the values of its tuple."""
    row = found if type(found) is tuple else tuple(found.values()) if isinstance(found, Mapping) else found
    if not isinstance(row, (tuple, list)):
        raise SquallError(
            f"a visible row is {typed(found)}: return the values of its tuple, as a tuple or a dict of its fields"
        )
    try:
        hash(tuple(row))
    except TypeError:
        raise SquallError(
            f"a visible row cannot be hashed: {shown(row)}; give values such as numbers and texts"
        ) from None
    return tuple(row)


class SinkTrial(Generic[SinkT]):
    """One try of one promise of a sink."""

    def __init__(self, place: SinkPlace[SinkT]) -> None:
        self.place = place
        self.calls = Calls()
        self.around = Surroundings()
        self.opened: list[SinkT] = []
        self.before = place.rows()
        self.expected: Counter[Row] = Counter()
        #: The tuples whose rows were made, by the ids of the rows.
        self.values_of: dict[int, tuple[Any, Row]] = {}

    def sink(self, index: int = 0, component: str = COMPONENT) -> SinkT:
        """Return a task as it is in a new process."""
        sink = shipped(self.place.make(), self.place.kind)
        self.begin(sink)
        context = context_of(component, index, index + 1, self.around)
        self.calls.make(f"prepare (task {index} of a new process)", lambda: sink.prepare(context))
        self.opened.append(sink)
        if len(self.opened) > MOST_OPEN:  # the earliest one was killed, or has done its part
            self.calls.make("cleanup", self.opened.pop(0).cleanup)
        return sink

    def begin(self, sink: SinkT) -> None:
        """Tell a task what it gets before `prepare`."""

    def rows(self, sink: SinkT, count: int = 2) -> list[Any]:
        """Return rows of new tuples."""
        made = []
        for tup in self.place.numbered.next(count):
            row = self.calls.make(f"row({shown(tup.values)})", lambda tup=tup: sink.row(tup))  # type: ignore[misc]
            self.calls.made.pop()
            self.values_of[id(row)] = (row, tuple(tup.values))
            made.append(row)
        return made

    def batch(self, sink: SinkT, count: int = 2) -> None:
        """Let a task write a batch of new tuples that belongs to no epoch; from now on its rows must be visible."""
        tuples = self.place.numbered.next(count)
        self.calls.make("execute_batch", lambda: sink.execute_batch(tuples))
        self.expected.update(tuple(tup.values) for tup in tuples)

    def now_visible(self, rows: Iterable[Any]) -> None:
        """From now on these rows must be visible, once each."""
        self.expected.update(self.values_of[id(row)][1] for row in rows)

    def check(self, when: str) -> None:
        """Raise Broken unless exactly the rows that should be visible are."""
        if (problem := self.problem()) is not None:
            raise Broken(f"{when}, visible is {problem}")

    def problem(self) -> str | None:
        """Return what is wrong with the visible rows; None: nothing."""
        there = self.place.rows()
        there.subtract(self.before)
        return difference({row: times for row, times in there.items() if times}, self.expected)

    def end(self) -> None:
        """Close all tasks."""
        for sink in self.opened:
            self.calls.make("cleanup", sink.cleanup)
        self.around.end()
