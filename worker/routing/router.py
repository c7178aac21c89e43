"""Groupings: which tasks of a consumer get a tuple.

A `Route` belongs to one consumer of one stream of one sending task. Its `pick` returns the outbox of the chosen task. Groupings
that always choose the same outboxes (all, global, or a single task) need no `Route`: their outboxes are in
`StreamOutput.fixed`. Routes are deterministic: shuffle goes round robin from the sender's index, and `worker.routing.key_hash`
decides where keys go.
Must not know: trees, credit, frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from topology_api import EmitError, FailTuple, Grouping, GroupingError
from topology_api.tuples import Source
from worker.errors.reports import failure_text
from worker.routing.key_groups import by_group
from worker.routing.key_hash import key_hash, two_choices
from worker.routing.outbox import Outbox
from worker.routing.text_hash import choice_of

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

Row = tuple[Any, ...]

#: The most keys whose task a route caches; a full cache is emptied.
CACHED_KEYS = 1 << 16


class Route:
    """Base: chooses one outbox for a row."""

    __slots__ = ()

    def pick(self, row: Row) -> Outbox:
        """Return the outbox of the task chosen for this row."""
        raise EmitError("this route chooses several tasks")

    def check(self, row: Row) -> None:
        """Raise what `pick` would raise for this row, without choosing."""


class OneTaskRoute(Route):
    """The only task of the only reader."""

    __slots__ = ("box",)

    def __init__(self, box: Outbox) -> None:
        self.box = box

    def pick(self, row: Row) -> Outbox:
        return self.box


class ShuffleRoute(Route):
    """Round robin: after any number of tuples the counts of two tasks differ by at most 1."""

    __slots__ = ("boxes", "every", "last", "next")

    def __init__(self, boxes: list[Outbox], start: int) -> None:
        self.every = boxes
        #: The outboxes in use.
        self.boxes = boxes
        self.last = len(boxes) - 1
        self.next = start % len(boxes)

    def pick(self, row: Row) -> Outbox:
        at = self.next
        self.next = at + 1 if at < self.last else 0
        return self.boxes[at]

    def around(self, tasks: frozenset[int]) -> ShuffleRoute:
        """Return the route that leaves these tasks out, unless that would leave none."""
        boxes = [box for box in self.every if box.target not in tasks]
        if not boxes or len(boxes) == len(self.every):
            return ShuffleRoute(self.every, self.next)
        return DetourRoute(self.every, boxes, self.next)


class DetourRoute(ShuffleRoute):
    """Round robin around tasks that are down; such a task gets a single tuple when it asks for one."""

    def __init__(self, every: list[Outbox], boxes: list[Outbox], start: int) -> None:
        super().__init__(boxes, start)
        self.every = every
        self.asked: list[Outbox] = []

    def pick(self, row: Row) -> Outbox:
        return self.asked.pop() if self.asked else super().pick(row)


class KeyedRoute(Route):
    """Base of the groupings by fields: finds the key of a row, and reports a value that cannot be a key."""

    __slots__ = ("boxes", "every", "fields", "only", "positions", "source")

    def __init__(self, boxes: list[Outbox], source: Source, fields: Sequence[str]) -> None:
        self.boxes = boxes
        #: Each outbox once.
        self.every = list({id(box): box for box in boxes}.values())
        self.source = source
        self.fields = tuple(fields)
        self.positions = tuple(source.index[name] for name in fields)
        #: Position of the key's only field, or -1.
        self.only = self.positions[0] if len(self.positions) == 1 else -1

    def key(self, row: Row) -> Any:
        """Return the key of a row: the value of the only field, or a tuple of values."""
        return row[self.only] if self.only >= 0 else tuple([row[position] for position in self.positions])

    def check(self, row: Row) -> None:
        try:
            key_hash(self.key(row))
        except GroupingError:
            raise self.ungroupable(row) from None

    def ungroupable(self, row: Row) -> GroupingError:
        """Return the error for a row whose key cannot be hashed; it names the first field at fault."""
        source = self.source
        for name, position in zip(self.fields, self.positions):
            try:
                key_hash(row[position])
            except GroupingError as error:
                return GroupingError(
                    f"field {name!r} of stream {source.stream!r} of component {source.component!r} cannot be the key of a "
                    f"fields grouping: {error}"
                )
        return GroupingError(f"the key of {source.component!r}, stream {source.stream!r} cannot be hashed")


class FieldsRoute(KeyedRoute):
    """Equal keys go to one task, from every sender, in every process.

    `boxes`: the outboxes of the tasks; or, into a stateful bolt whose keys are divided into groups, for each group that of its
    owner.
    """

    __slots__ = ("cache",)

    def __init__(self, boxes: list[Outbox], source: Source, fields: Sequence[str]) -> None:
        super().__init__(boxes, source, fields)
        self.cache: dict[Any, Outbox] = {}

    def pick(self, row: Row) -> Outbox:
        only = self.only
        key = row[only] if only >= 0 else tuple([row[position] for position in self.positions])
        if cython.compiled and type(key) is str:
            return self.boxes[choice_of(key, len(self.boxes))]
        try:
            return self.cache[key]
        except KeyError:
            cacheable = True
        except TypeError:  # a key that contains a list
            cacheable = False
        try:
            box = self.boxes[key_hash(key) % len(self.boxes)]
        except GroupingError:
            raise self.ungroupable(row) from None
        if cacheable:
            if len(self.cache) >= CACHED_KEYS:
                self.cache.clear()
            self.cache[key] = box
        return box


class PartialKeyRoute(KeyedRoute):
    """Two candidate tasks per key; the one that this sender has used less gets the tuple ("the power of both choices",
    Nasir et al., ICDE 2015)."""

    __slots__ = ("cache", "used")

    def __init__(self, boxes: list[Outbox], source: Source, fields: Sequence[str]) -> None:
        super().__init__(boxes, source, fields)
        self.cache: dict[Any, tuple[int, int]] = {}
        self.used = [0] * len(boxes)

    def pick(self, row: Row) -> Outbox:
        first, second = self.candidates(row)
        if self.used[second] < self.used[first]:
            first = second
        self.used[first] += 1
        return self.boxes[first]

    def candidates(self, row: Row) -> tuple[int, int]:
        """Return the two tasks (as positions) that tuples of this row's key may go to."""
        key = self.key(row)
        try:
            return self.cache[key]
        except KeyError:
            cacheable = True
        except TypeError:
            cacheable = False
        try:
            pair = two_choices(key, len(self.boxes))
        except GroupingError:
            raise self.ungroupable(row) from None
        if cacheable:
            if len(self.cache) >= CACHED_KEYS:
                self.cache.clear()
            self.cache[key] = pair
        return pair


class CustomRoute(Route):
    """A user's `Grouping`: any number of the consumer's tasks for each tuple."""

    __slots__ = ("boxes", "grouping", "source")

    def __init__(self, boxes: dict[int, Outbox], grouping: Grouping, source: Source) -> None:
        self.boxes = boxes
        self.grouping = grouping
        self.source = source

    def pick_many(self, row: Row) -> list[Outbox]:
        """Return the outboxes of the tasks that the user's grouping chose."""
        try:
            chosen = self.grouping.choose(row)
        except FailTuple:
            raise
        except Exception as error:
            raise GroupingError(f"{self.where()}: choose() raised {failure_text(error)}") from error
        if isinstance(chosen, (str, bytes)) or not hasattr(chosen, "__iter__"):
            raise GroupingError(
                f"{self.where()}: choose() must return a sequence of task ids, not {chosen!r}"
            )
        boxes: dict[int, Outbox] = {}
        for task in chosen:
            try:
                boxes[task] = self.boxes[task]
            except (KeyError, TypeError):  # TypeError: a list, say
                raise GroupingError(
                    f"{self.where()}: choose() returned task {task!r}, which is not one of its target tasks "
                    f"{sorted(self.boxes)}"
                ) from None
        return list(boxes.values())

    def where(self) -> str:
        """Return which grouping this is, for messages."""
        name = type(self.grouping).__name__
        return (
            f"custom grouping {name} on stream {self.source.stream!r} of component {self.source.component!r}"
        )


class StreamOutput:
    """One output stream of one sending task: its readers, and how each reader's tasks are chosen.

    The outboxes in `fixed` get every tuple. Each route in `picked` chooses one more outbox, each route in `many` any number of
    outboxes. `direct` has the outboxes by task, for `emit_direct`.
    """

    def __init__(self, source: Source, is_direct: bool) -> None:
        self.source = source
        self.arity = len(source.fields)
        self.is_direct = is_direct
        self.fixed: list[Outbox] = []
        self.picked: list[Route] = []
        self.many: list[CustomRoute] = []
        self.direct: dict[int, Outbox] = {}
        # The shortcut for the most common stream: one reader that picks one task (see `shorten`).
        self.only: Route | None = None
        self.unread = False
        self.key = -1
        self.cache: dict[Any, Outbox] = {}

    def shorten(self) -> None:
        """If each row goes to exactly one task, keep the route in `only`; if one field is the key, keep the route's cache, too.

        `emit` then needs no loops, and no call for a key in the cache (measured: 90 of 600 ns a tuple).
        """
        self.unread = not (self.picked or self.fixed or self.many)
        if len(self.picked) == 1 and not self.fixed and not self.many:
            self.only = self.picked[0]
            if isinstance(self.only, FieldsRoute) and self.only.only >= 0:
                self.key, self.cache = self.only.only, self.only.cache
        elif len(self.fixed) == 1 and not self.picked and not self.many:
            self.only = OneTaskRoute(self.fixed[0])

    def take_routes(self, other: StreamOutput) -> None:
        """Adopt another output's routes; this object stays, since emissions that may be replayed refer to it."""
        self.fixed, self.picked, self.many, self.direct = other.fixed, other.picked, other.many, other.direct
        self.only, self.unread, self.key, self.cache = other.only, other.unread, other.key, other.cache

    def avoid(self, tasks: frozenset[int]) -> None:
        """Send to these tasks only what must go there."""
        for at, route in enumerate(self.picked):
            if isinstance(route, ShuffleRoute):
                self.picked[at] = around = route.around(tasks)
                if self.only is route:
                    self.only = around

    def lend(self, task: int) -> None:
        """Send a single tuple to a task that is avoided."""
        for route in self.picked:
            if isinstance(route, DetourRoute):
                asked = {box.target: box for box in route.asked}
                asked |= {box.target: box for box in route.every if box.target == task}
                route.asked = list(asked.values())

    def choose(self, row: Row) -> list[Outbox]:
        """Return all outboxes that this row goes to (for the slower paths)."""
        boxes = list(self.fixed)
        boxes += [route.pick(row) for route in self.picked]
        for custom in self.many:
            boxes += custom.pick_many(row)
        return boxes


class Reader(msgspec.Struct, frozen=True):
    """One consumer of an output, as a grouping needs to know it."""

    fields: Sequence[str]
    #: The outbox of each of the consumer's tasks.
    boxes: dict[int, Outbox]
    #: Returns whether a task runs in this worker.
    local: Callable[[int], bool]
    #: The sending task's index, from which round robin starts.
    index: int
    #: The prepared custom grouping.
    grouping: Grouping | None = None
    #: Into how many groups the keys of a stateful bolt are divided; 0: its tasks share them without groups.
    groups: int = 0


def share(output: StreamOutput, boxes: list[Outbox], index: int) -> None:
    """Route to these outboxes in turn. A single outbox gets every tuple."""
    if len(boxes) == 1:
        output.fixed += boxes
    else:
        output.picked.append(ShuffleRoute(boxes, index))


def add_route(output: StreamOutput, kind: str, reader: Reader) -> None:
    """Add a consumer to an output as its kind of grouping (a method of `topology_api.BoltDeclarer`) demands."""
    tasks = sorted(reader.boxes)
    boxes = [reader.boxes[task] for task in tasks]
    if kind in ("shuffle", "none"):  # to one task, in turn
        share(output, boxes, reader.index)
    elif kind == "local_or_shuffle":  # among the tasks in this worker if there are any, else among all
        near = [reader.boxes[task] for task in tasks if reader.local(task)]
        share(output, near or boxes, reader.index)
    elif kind == "fields":  # to the task of the key
        if reader.groups:  # the task of a key is that of its group
            boxes = by_group(boxes, reader.groups)
        output.picked.append(FieldsRoute(boxes, output.source, reader.fields))
    elif kind == "partial_key":  # to the less used of the key's two tasks
        output.picked.append(PartialKeyRoute(boxes, output.source, reader.fields))
    elif kind == "all":  # to every task
        output.fixed += boxes
    elif kind == "global":  # to the task with the lowest id
        output.fixed.append(boxes[0])
    elif kind == "direct":  # to the task that `emit_direct` names
        output.direct.update(reader.boxes)
    elif kind == "custom":  # to the tasks that the user's grouping chooses
        assert reader.grouping is not None
        output.many.append(CustomRoute(reader.boxes, reader.grouping, output.source))
    else:
        raise GroupingError(f"no grouping is called {kind!r}")
