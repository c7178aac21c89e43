"""How much memory a worker keeps until a commit, or until what is committed is shown outside: an estimate, and its bound.

What is not encoded yet has no size that would be known, so a sample of the objects is asked for theirs: at a cost that does not
grow with their number. Bytes are exact. An object in several places counts in each.
At the limit all spouts pause, until half of it is left.
Must not know: tasks, messages, what is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

#: Of how many objects of a collection the size is taken, spread over a sequence; and how deep.
SAMPLE: Final = 8
DEEPEST: Final = 4
#: Of a collection at the top.
FIRST_SAMPLE: Final = 32
MB: Final = 2**20


def memory_of(value: Any) -> int:
    """Return about how many bytes a value takes with all that is in it. Other threads may change it meanwhile."""
    return int(size_of(value, FIRST_SAMPLE, DEEPEST))


def size_of(value: Any, most: int, depth: int) -> float:
    """Return about how many bytes a value takes. `most`: of how many of its parts the size is taken."""
    size: float = own_size(value)
    if depth == 0:
        return size
    try:
        parts, several = sample_of(value, most)
    except (RuntimeError, IndexError):  # it was changed meanwhile
        return size
    if parts:
        size += several * sum(size_of(part, SAMPLE, depth - 1) for part in parts) / len(parts)
    return size


def own_size(value: Any) -> int:
    """Return the bytes of an object, without its parts."""
    try:
        return sys.getsizeof(value, 0)
    except Exception:  # its class says so, or does not
        return 0


def sample_of(value: Any, most: int) -> tuple[Sequence[Any], int]:
    """Return some parts of a value, and how many it has."""
    kind = type(value)
    if kind is str or kind is bytes or kind is int or kind is float:
        return (), 0
    if isinstance(value, list | tuple):
        several = len(value)
        return [value[at * several // most] for at in range(min(most, several))] if several > most else list(
            value
        ), several
    if isinstance(value, dict):
        pairs = list(islice(value.items(), most))
        return [part for pair in pairs for part in pair], 2 * len(value)
    if isinstance(value, set | frozenset):
        return list(islice(value, most)), len(value)
    attributes = getattr(value, "__dict__", None) or fields_of(value)
    return (attributes,), int(bool(attributes))


def fields_of(value: Any) -> tuple[Any, ...]:
    """Return the values of an object that has fields instead of a dictionary."""
    names = getattr(type(value), "__struct_fields__", ())
    return tuple(getattr(value, name, None) for name in names)


class KeptBound:
    """Whether the spouts pause because of what one worker keeps."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.full = False

    def changed(self, kept: int) -> bool:
        """Return whether this is the moment from which on the spouts are to pause, or need not pause any more."""
        full = kept >= self.limit or (self.full and kept > self.limit // 2)
        changed, self.full = full != self.full, full
        return changed
