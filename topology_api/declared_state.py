"""What a class of bolts has in the place of a state's declaration where its tasks run.

CPython reads `self.times` from the instance's dictionary at once only if what the class has under this name is of a type that
cannot change, as the types of extensions are. Otherwise it looks at the class and its bases in each call, which takes a tenth of
the time of `self.times.value += 1`. So in the compiled core, the class gets such an object before its first task is made. It
stands for the declaration in all else: `isinstance`, attributes, errors, pickling.
Must not know: what a declaration says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython


class DeclaredState:
    """Stands for a `State`, of which only the methods for a use outside a running task are called."""

    __slots__ = ("declaration",)

    def __init__(self, declaration: Any) -> None:
        self.declaration = declaration

    @property
    def __class__(self) -> Any:
        return type(self.declaration)

    def __set_name__(self, owner: type, name: str) -> None:  # of a class that uses it once more
        self.declaration.__set_name__(owner, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.declaration, name)

    @property
    def value(self) -> Any:
        return self.declaration.value

    @value.setter
    def value(self, new: Any) -> None:
        self.declaration.value = new

    def __getitem__(self, key: Any) -> Any:
        return self.declaration[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.declaration[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.declaration[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.declaration

    def __iter__(self) -> Iterator[Any]:
        return iter(self.declaration)

    def __len__(self) -> int:
        return len(self.declaration)

    def __bool__(self) -> bool:
        return bool(self.declaration)

    def __repr__(self) -> str:
        return repr(self.declaration)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.declaration.__reduce_ex__(protocol)


def declaration_of(attribute: Any) -> Any:
    """Return the declaration that an attribute of a class stands for; any other attribute as it is."""
    return attribute.declaration if type(attribute) is DeclaredState else attribute


def stand_for(component: type, kind: type) -> None:
    """Let other objects stand for the declarations of a class and its bases, in the compiled core. `kind`: of declarations."""
    if not cython.compiled:
        return
    for each in component.__mro__:
        for name, attribute in list(vars(each).items()):
            if isinstance(attribute, kind) and type(attribute) is not DeclaredState:
                setattr(each, name, DeclaredState(attribute))
