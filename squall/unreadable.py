"""Values that pickle cannot read back: an `Unreadable` takes the place of each, so that the values around it are not lost.

`pickle.loads` gives up with the first value whose class raises, or cannot be imported. Here only that value is lost. It costs
many times as much, so it is for pickles that `pickle.loads` has refused.
Must not know: what is in a pickle, what is done with an unreadable value.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from topology_api.wording import class_name, message_of

#: The unpickler in Python: its steps can be replaced.
_Base: Final = cast(Any, pickle)._Unpickler
_STEPS: Final[dict[int, Callable[[Any], None]]] = dict(_Base.dispatch)


#: These bytes are in each pickle with an `Unreadable`.
UNREADABLE: Final = b"squall.unreadable"


class Unreadable:
    """A value that could not be read, and why. It can be pickled again."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return Unreadable, (self.why,)

    def __repr__(self) -> str:
        return f"<cannot be read: {self.why}>"


def loads(data: bytes) -> tuple[Any, bool]:
    """Return the value of a pickle, with an `Unreadable` for what cannot be read, and whether there may be one. Raises an
    error of any kind for bytes that are no pickle."""
    try:
        return pickle.loads(data), UNREADABLE in data
    except BaseException:  # the classes of values are the user's, and may raise anything
        return loads_part_by_part(data), True


def loads_part_by_part(data: Any, buffers: Iterable[Any] | None = None) -> Any:
    """The same, for what `pickle.loads` has refused."""
    return _Lenient(io.BytesIO(data), buffers=buffers).load()


def loads_rows(data: bytes) -> tuple[list[Any], dict[int, str]]:
    """Return rows, and why those at some positions are not what they were."""
    rows, doubtful = loads(data)
    return rows, unreadable_of(rows) if doubtful else {}


def unreadable_of(rows: Iterable[Iterable[Any]]) -> dict[int, str]:
    """Return why rows at some positions are not what they were."""
    return {at: why for at, row in enumerate(rows) if (why := why_unreadable(row))}


def why_unreadable(row: Iterable[Any]) -> str:
    """Return why a row is not what it was, from the first unreadable value that is anywhere in it; "": all could be read."""
    found: list[str] = []

    class Finder(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            if type(value) is Unreadable:
                found.append(value.why)
            return None

    for value in row:
        if type(value) is Unreadable:
            return value.why
        try:
            Finder(io.BytesIO(), 5).dump(value)
        except BaseException:
            continue
        if found:
            break
    return found[0] if found else ""


def _reason(error: BaseException) -> str:
    return f"{class_name(error)}: {message_of(error)}"


class _Lenient(_Base):  # type: ignore[misc,valid-type]
    """Goes on behind what raises."""

    dispatch = dict(_STEPS)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except BaseException as error:
            return Unreadable(f"{module}.{name}: {_reason(error)}")

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        self.stack[-1] = _made(function, lambda: function(*arguments))

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        kind = self.stack.pop()
        self.append(_made(kind, lambda: kind.__new__(kind, *arguments)))

    def load_newobj_ex(self) -> None:
        named = self.stack.pop()
        arguments = self.stack.pop()
        kind = self.stack.pop()
        self.append(_made(kind, lambda: kind.__new__(kind, *arguments, **named)))

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex


def _made(of: Any, make: Callable[[], Any]) -> Any:
    """Return a new object, or why there is none."""
    if type(of) is Unreadable:
        return of
    try:
        return make()
    except BaseException as error:
        return Unreadable(_reason(error))


def _filling(code: int, several: bool) -> Callable[[Any], None]:
    """Return a step that fills the object below its values on the stack."""
    step = _STEPS[code]

    def fill(unpickler: Any) -> None:
        below = unpickler.metastack[-1] if several else unpickler.stack
        filled = below[-1] if several else below[-2 if code != pickle.SETITEM[0] else -3]
        try:
            if type(filled) is not Unreadable:
                step(unpickler)
                return
            why = filled.why
        except BaseException as error:
            why = _reason(error)
        stack = below if several else unpickler.stack
        if several and unpickler.stack is not below:  # the values are still there
            unpickler.pop_mark()
        del stack[next(at for at in range(len(stack) - 1, -1, -1) if stack[at] is filled) + 1 :]
        lost = filled if type(filled) is Unreadable else Unreadable(why)
        stack[-1] = lost
        for place, value in unpickler.memo.items():
            if value is filled:
                unpickler.memo[place] = lost

    return fill


for _code in (pickle.BUILD, pickle.APPEND, pickle.SETITEM):
    _Lenient.dispatch[_code[0]] = _filling(_code[0], several=False)
for _code in (pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS):
    _Lenient.dispatch[_code[0]] = _filling(_code[0], several=True)
