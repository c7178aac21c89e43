"""The tuple that a bolt gets: values by field name or by position, and the source of the tuple.

Hot: a Tuple is made for each tuple that a bolt executes. Therefore only the worker's core makes them, without `__init__`
(measured on CPython 3.11: 67 ns; 110 ns with `__init__`), and everything that the tuples of a batch share is in one `Source`.
The core keeps the tuple's place in its tree in the underscored slots; no other code uses these slots.

Must not know: routers, trackers, queues.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from sys import intern
from typing import Any, Final, NoReturn

from topology_api.fields import Fields

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: Renders values for people. Large strings and containers are cut before they are rendered.
BOUNDED: Final = reprlib.Repr()
BOUNDED.maxlevel = 6
BOUNDED.maxtuple = BOUNDED.maxlist = BOUNDED.maxdict = BOUNDED.maxset = BOUNDED.maxfrozenset = 50
BOUNDED.maxarray = BOUNDED.maxdeque = 50
BOUNDED.maxstring = BOUNDED.maxlong = BOUNDED.maxother = 1000

#: `Tuple._root` of a tuple that was acked or failed already.
SETTLED = -1
#: `Tuple._root` of a tuple that belongs to no tree.
UNTRACKED = 0


class Source:
    """The source of the tuples of a batch: component, task and stream, and the names of the stream's fields."""

    __slots__ = ("component", "fields", "index", "names", "stream", "task")

    def __init__(self, component: str, task: int, stream: str, fields: tuple[str, ...]) -> None:
        self.component = component
        self.task = task
        self.stream = stream
        # Interned like the names in user code, so that `tup["word"]` finds its field by identity.
        self.fields = Fields(*[intern(str.__str__(name)) for name in fields])
        self.names = tuple(self.fields)
        self.index = {name: position for position, name in enumerate(self.names)}


@cython.freelist(16)
@cython.cclass
class Tuple:
    """One tuple of a stream, as `Bolt.execute` gets it. It is immutable; treat its values as immutable too.

    `tup["word"]` and `tup[0]` give one value; an unknown field raises a `KeyError` that lists the tuple's fields.
    """

    __slots__ = ("_more", "_root", "_source", "_values", "_xor")

    _values: tuple[Any, ...]
    _source: Source
    #: The tree to which this tuple belongs (UNTRACKED: none; SETTLED: the tuple was acked or failed).
    _root: int
    #: The tuple's own edge, XORed with the edges of everything that was anchored to it.
    _xor: int
    #: The further trees of a tuple with several anchors, each as (root, edge XOR the first edge).
    _more: tuple[tuple[int, int], ...]

    def __init__(self) -> None:
        raise TypeError(
            "tuples are made by Squall: emit values instead, or see local_cluster.testing.run_bolt"
        )

    @property
    def values(self) -> tuple[Any, ...]:
        """All values, in the order of the stream's fields."""
        return self._values

    @property
    def fields(self) -> Fields:
        """The names of the values."""
        return self._source.fields

    @property
    def component(self) -> str:
        """The id of the component that emitted the tuple."""
        return self._source.component

    @property
    def task(self) -> int:
        """The id of the task that emitted the tuple."""
        return self._source.task

    @property
    def stream(self) -> str:
        """The name of the stream on which the tuple was emitted."""
        return self._source.stream

    @cython.locals(names=tuple, at=cython.Py_ssize_t)
    def __getitem__(self, key: str | int | slice) -> Any:
        if type(key) is str:
            if cython.compiled:
                names = self._source.names
                for at in range(len(names)):
                    if names[at] is key:
                        return self._values[at]
            try:
                return self._values[self._source.index[key]]
            except KeyError:
                self._no_field(key)
        return self._values[key]  # type: ignore[index]

    def _no_field(self, key: str) -> NoReturn:
        source = self._source
        there = ", ".join(source.fields) or "none"
        raise KeyError(
            f"no field {key!r} in a tuple of {source.component!r}, stream {source.stream!r}: its fields are {there}"
        )

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tuple cannot be pickled: keep or emit its values (tup.values)")

    def __repr__(self) -> str:
        source = self._source
        pairs = ", ".join(f"{name}={BOUNDED.repr(value)}" for name, value in zip(source.fields, self._values))
        return f"<Tuple {source.component}[{source.task}] {source.stream}: {pairs}>"


def refuse_subclass(cls: type) -> None:
    """Refuse a subclass of Tuple: the compiled class is final, and so is the plain class."""
    raise TypeError("Tuple has no subclasses")


if not cython.compiled:
    Tuple.__init_subclass__ = classmethod(refuse_subclass)  # type: ignore[assignment]


#: Returns a tuple's values. For many tuples use this function with `map`: `Tuple.values` is a Python call, which is half the
#: cost of turning a tuple into a row.
values_of: Final[Callable[[Tuple], tuple[Any, ...]]] = attrgetter("_values")
source_of: Final[Callable[[Tuple], Source]] = attrgetter("_source")
