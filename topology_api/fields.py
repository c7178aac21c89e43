"""Fields and Stream: the declaration of a component's output streams.

Both accept any value, valid or not. A topology is validated as a whole when it is built, so that all problems are reported at
once, each with its component.
"""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT_STREAM = "default"


class Fields(tuple[str, ...]):
    """The names of a stream's values, in order: `Fields("word", "count")` or `Fields(["word", "count"])`.

    An immutable sequence of strings that supports `len`, indexing, `in` and `==`, and equals a tuple of the same names.
    `Fields()` declares a stream whose tuples carry no values (a signal).
    """

    __slots__ = ()

    def __new__(cls, *names: str | Sequence[str]) -> Fields:
        # A name that is not a str is kept unchanged: build() reports it.
        flat = [one for name in names for one in (name if isinstance(name, (list, tuple)) else (name,))]
        return super().__new__(cls, flat)

    def __repr__(self) -> str:
        return f"Fields({', '.join(map(repr, self))})"

    def __getnewargs__(self) -> tuple[str, ...]:
        return tuple(self)


class Stream:
    """An output stream that needs more than Fields: `Stream(Fields("word"), direct=True)`.

    `fields`: Fields, a string or a sequence of strings. `direct`: only `emit_direct` may emit to it and only
    `direct_grouping` may read it.
    """

    __slots__ = ("direct", "fields")

    def __init__(self, fields: Fields | str | Sequence[str], direct: bool = False) -> None:
        self.fields = fields if isinstance(fields, Fields) else Fields(fields)
        self.direct = direct

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self.fields == other.fields and self.direct == other.direct

    def __hash__(self) -> int:
        return hash((self.fields, self.direct))

    def __repr__(self) -> str:
        return f"Stream({self.fields!r}{', direct=True' if self.direct else ''})"
