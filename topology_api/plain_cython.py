"""What the hot modules name of the module `cython`, for a Python that has no Cython: it does nothing.

These modules are plain Python, and are compiled from the same files where a C compiler is there; what they say to the compiler
(`cython.locals`, `cython.declare`) has no meaning otherwise. Must not know: what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

Defined = TypeVar("Defined")

#: Whether this code is compiled: not where this module is used.
compiled: Final = False


class Kind:
    """A C type, or with an index an array of it."""

    def __getitem__(self, shape: object) -> Kind:
        return self


longlong: Final = Kind()
Py_ssize_t: Final = Kind()
ulonglong: Final = Kind()
double: Final = Kind()
bint: Final = Kind()


def declare(kind: Any, value: Any) -> Any:
    """The value of a constant of a C type."""
    return value


def cclass(defined: Defined) -> Defined:
    """A class that becomes a C struct."""
    return defined


def locals(*options: object, **kinds: object) -> Callable[[Defined], Defined]:
    """Types of a function's local variables."""
    return cclass


#: How many objects of a class are kept for reuse; whether a function's C code looks for None before it reads an attribute.
freelist = nonecheck = locals
