"""Replaces the module `cython` where Cython is not installed: the names that the hot modules use, without effect.

The hot modules are plain Python files. If there is a C compiler, these same files are compiled; otherwise their hints to the
compiler (`cython.locals`, `cython.declare`) have no effect. Must not know: what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

Defined = TypeVar("Defined")

#: Whether this code is compiled. Code that uses this module is never compiled.
compiled: Final = False


class Kind:
    """A C type. With an index, it is an array type."""

    def __getitem__(self, shape: object) -> Kind:
        return self


longlong: Final = Kind()
Py_ssize_t: Final = Kind()
ulonglong: Final = Kind()
double: Final = Kind()
bint: Final = Kind()


def declare(kind: Any, value: Any) -> Any:
    """Return the value of a constant of a C type."""
    return value


def cclass(defined: Defined) -> Defined:
    """Return the class unchanged; in compiled code it becomes a C struct."""
    return defined


def locals(*options: object, **kinds: object) -> Callable[[Defined], Defined]:
    """Declare the types of a function's local variables."""
    return cclass


#: Objects of the class are left out by the garbage collector: they are in no cycle.
no_gc = cclass
#: `freelist`: how many objects of a class are kept for reuse. `nonecheck`: whether C code checks for None before it reads
#: attributes.
freelist = nonecheck = locals
