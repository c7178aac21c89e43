"""Reads structs from decoded JSON exactly: a missing field or a value of the wrong type is refused.

`msgspec.convert` does not accept a bool as a number, a float as a count or a number as a text. In addition, every field must be
present unless the caller names it as optional: defaults are for code that creates a value, not for damaged files. JSON is
parsed and written by the standard library, which accepts integers of any size and writes NaN.
Must not know: which structs there are, what they are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec

_MOST: Final = 1.7976931348623157e308
#: A number that is neither NaN nor infinite. An integer stays an integer.
Finite = int | Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
S = TypeVar("S", bound=msgspec.Struct)


class WrongValue(ValueError):
    """A field that is missing or has an invalid value; the text names the field and, if there is one, the value."""


def build_type_info(*kinds: type) -> None:
    """Make msgspec build its description of these structs or dataclasses, and of those inside them.

    The module that defines the structs calls this function during its own import, which runs in one thread only. Without this
    call, msgspec would build a description when the struct is first used, without a lock, and two threads that do this at once
    crash the process (seen with msgspec 0.22).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


def read_exactly(kind: type[S], values: Mapping[str, Any], optional: tuple[str, ...] = ()) -> S:
    """Return the struct that decoded JSON values describe.

    Unknown fields are ignored unless the struct forbids them. Fields in `optional` may be missing. Raises `WrongValue`.
    """
    if not values.keys() >= _required(kind, optional):
        missing = sorted(_required(kind, optional) - values.keys())
        raise WrongValue(f"{kind.__name__} without its field {missing[0]!r}")
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise _wrong_value(kind, values, error) from error


@cache
def _required(kind: type[msgspec.Struct], optional: tuple[str, ...]) -> frozenset[str]:
    return frozenset(kind.__struct_fields__) - frozenset(optional)


def _wrong_value(kind: type[S], values: Mapping[str, Any], error: Exception) -> WrongValue:
    for field in msgspec.structs.fields(kind):
        if field.name in values:
            try:
                msgspec.convert(values[field.name], field.type)
            except (msgspec.ValidationError, UnicodeEncodeError) as cause:
                return WrongValue(
                    f"{kind.__name__}.{field.name} cannot be {values[field.name]!r:.80}: {cause}"
                )
    return WrongValue(f"{kind.__name__}: {error}")
