"""Checks that no component changes the values of a tuple that it has emitted or received.

Within one process, tasks that receive a value, bolts that keep it, and replays of its tuple all share one object. Between
processes a value is copied. So code that changes a value behaves differently in a test and on a cluster. Each mutable value is
pickled when it is emitted, and before and after each execution of its tuple; if the pickles differ, `MutatedValue` is raised.
Values that cannot be pickled, or whose pickles differ each time, are not checked. Attributes stored by
`functools.cached_property` are ignored.
Must not know: tasks, clusters.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from topology_api import SquallError, Tuple
from worker.tasks.emitter import short

#: Values of exactly these types are immutable.
PLAIN = frozenset(
    (bool, int, float, complex, str, bytes, type(None), date, time, datetime, timedelta, Decimal, UUID, range)
)
#: How many recently used values of a component are checked around each of its executions, so that a bolt that keeps a value and
#: changes it in a later call is caught in that call.
KEPT_IN_VIEW = 8
#: How many characters of a value an error shows: enough to see the difference between values in tests.
MOST_TEXT = 400


@dataclass(eq=False, repr=False)
class MutatedValue(SquallError, AssertionError):
    """A component changed a value of a tuple.

    `component`: the component that changed the value. `field`, `stream`, `source`: the place of the value. `before`: a copy of
    the value as it was emitted. `after`: the value now. `others`: components that also had the value and may have changed it
    instead; empty when `component` is certain.
    """

    component: str
    source: str
    stream: str
    field: str
    before: object
    after: object
    others: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.others = tuple(self.others)
        self.args = tuple(getattr(self, each.name) for each in fields(self))

    def __str__(self) -> str:
        when = "after it had emitted it" if self.component == self.source else "that it got in a tuple"
        doubt = f" (or {' or '.join(map(repr, self.others))} did, which had it too)" if self.others else ""
        return (
            f"component {self.component!r} changed a value {when}{doubt}:"
            f" field {self.field!r} of {self.source!r}, stream {self.stream!r}\n"
            f"  was {short(self.before, MOST_TEXT)}\n"
            f"  is  {short(self.after, MOST_TEXT)}\n"
            "the values of a tuple are shared by all tasks that receive it: change a copy, or emit a copy"
        )


@dataclass(eq=False, repr=False, slots=True)
class WatchedValue:
    """A watched value: its first pickle, and the components that have had it. The value is kept alive, so that its id() stays
    unique."""

    value: object
    data: bytes
    source: str
    stream: str
    field: str
    holders: list[str]

    def changed(self) -> bool:
        """Return whether the value has changed."""
        now = snapshot(self.value)
        # A value whose pickle differs each time cannot be checked.
        return now != self.data and now == snapshot(self.value)

    def mutated_by(self, component: str, others: Sequence[str] = ()) -> MutatedValue:
        """Return the error for this change."""
        try:
            before = pickle.loads(self.data)
        except Exception as error:
            before = f"<a value that cannot be unpickled: {type(error).__name__}>"
        return MutatedValue(component, self.source, self.stream, self.field, before, self.value, others)


class MutationWatch:
    """Watches the values of one run. During the run it never raises, but keeps the first change in `found`."""

    def __init__(self) -> None:
        self.watched: dict[int, WatchedValue] = {}
        self.in_view: dict[str, deque[WatchedValue]] = {}
        self.found: SquallError | None = None

    def emitted(self, component: str, stream: str, fields: Sequence[str], row: Sequence[Any]) -> None:
        """Watch emitted values. If a value has changed when it is emitted again, blame the component that emits it if this
        component had the value before; otherwise blame all components that had it."""
        for field, value in zip(fields, row):
            watched = self.watched.get(id(value))
            if watched is None:
                self.watch(value, component, component, stream, field)
                continue
            if watched.changed():
                known = component in watched.holders
                self.found = self.found or (watched.mutated_by(component) if known else self.blame(watched))
            self.view(component, watched)

    def executing(self, component: str, tup: Tuple) -> None:
        """Check values before a component executes a tuple: a change found now happened before this call."""
        for kept in self.in_view.get(component, ()):
            self.judge(kept)
        for field, value in zip(tup.fields, tup.values):
            watched = self.watched.get(id(value))
            if watched is None:
                self.watch(value, component, tup.component, tup.stream, field)
            else:
                self.judge(watched)
                self.view(component, watched)

    def executed(self, component: str, tup: Tuple) -> None:
        """Check values after a component executed a tuple: if a value has changed since the call began, the component changed
        it."""
        got = [self.watched.get(id(value)) for value in tup.values]
        for watched in (*got, *self.in_view.get(component, ())):
            if watched is not None and watched.changed():
                self.found = self.found or watched.mutated_by(component)

    def keep_first(self, error: SquallError) -> None:
        """Keep an error that was found elsewhere, if it is the first one."""
        self.found = self.found or error

    def end(self) -> None:
        """Check everything once more at the end of the run, and raise the first change, if there was one."""
        for watched in self.watched.values():
            self.judge(watched)
        self.raise_found()

    def raise_found(self) -> None:
        """Raise the first change, if there was one."""
        if self.found is not None:
            raise self.found

    def watch(self, value: object, component: str, source: str, stream: str, field: str) -> None:
        """Start watching a value, if it is mutable."""
        if is_plain(value):
            return
        data = snapshot(value)
        if data is not None:
            watched = self.watched[id(value)] = WatchedValue(value, data, source, stream, field, [source])
            self.view(component, watched)

    def view(self, component: str, watched: WatchedValue) -> None:
        """Note that a component has a value, and check the value around the component's next executions."""
        if component not in watched.holders:
            watched.holders.append(component)
        lately = self.in_view.setdefault(component, deque(maxlen=KEPT_IN_VIEW))
        if watched not in lately:
            lately.append(watched)

    def judge(self, watched: WatchedValue) -> None:
        """Decide who made a change that was found outside of a bolt's call. Values are checked before and after each call of a
        bolt, so most likely the component that emitted the value changed it."""
        if self.found is None and watched.changed():
            self.found = self.blame(watched)

    def blame(self, watched: WatchedValue) -> MutatedValue:
        """Return the error that names all components that may have changed a value."""
        return watched.mutated_by(watched.source, watched.holders[1:])


def is_plain(value: object) -> bool:
    """Return whether a value is immutable."""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(is_plain(part) for part in value)  # type: ignore[attr-defined]
    return kind in PLAIN or isinstance(value, (Enum, type))


def snapshot(value: object) -> bytes | None:
    """Return the pickle of a value; None if it cannot be pickled."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception:
        return None
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Leaves out attributes that `cached_property` stores in an object, since a read of such an attribute does not change the
    value."""

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        cached = _cached_names(kind)
        if not cached:
            return NotImplemented
        reduced = obj.__reduce_ex__(5)
        if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
            return NotImplemented
        state = {name: part for name, part in reduced[2].items() if name not in cached}
        return (*reduced[:2], state, *reduced[3:])


@lru_cache(maxsize=1024)
def _cached_names(kind: type) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        for name, part in vars(base).items()
        if isinstance(part, cached_property)
    )
