"""How the values of a tuple become the bytes of a message: one field, or several as one object.

Must not know: sinks, clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from squall_io.kit.codecs import Encode
from topology_api import FailTuple, Fields, Tuple
from topology_api.wording import class_name, listed, message_of, typed

#: The argument `fields` of a sink: one field, several, or None for all.
Chosen = str | tuple[str, ...] | None


def chosen_problems(fields: object) -> Iterator[str]:
    """Yield what is wrong with the argument `fields` of a sink."""
    if isinstance(fields, Sequence) and not isinstance(fields, (str, bytes)):
        good = bool(fields) and all(isinstance(name, str) for name in fields)
    else:
        good = fields is None or isinstance(fields, str)
    if not good:
        yield f"fields is {typed(fields)}: give a field, a list of fields, or None for all"


def chosen_of(fields: str | Sequence[str] | None) -> Chosen:
    """Return the argument as it is kept."""
    return fields if fields is None or isinstance(fields, str) else tuple(fields)


def used_names(fields: Chosen, *others: str | None) -> list[str]:
    """Return the fields that a sink names, each once. others: fields of further arguments."""
    values = [fields] if isinstance(fields, str) else list(fields or ())
    return list(dict.fromkeys([*values, *(name for name in others if name is not None)]))


def missing_fields(inputs: Mapping[tuple[str, str], Fields], names: Iterable[str]) -> Iterator[str]:
    """Yield each input that lacks a field; for `Bolt.input_problems`."""
    used = list(names)
    for (component, stream), fields in inputs.items():
        for name in used:
            if name not in fields:
                yield (
                    f"stream {stream!r} of component {component!r} has no field {name!r} to write; it has: {listed(fields)}"
                )


def payload_maker(fields: Chosen, encode: Encode) -> Callable[[Tuple], bytes | None]:
    """Return what makes the bytes of a tuple's message; None for None in the one field. It raises FailTuple."""
    if fields is None:
        return lambda tup: encode(dict(zip(tup.fields, tup.values, strict=True)))
    if not isinstance(fields, str):
        names = fields
        return lambda tup: encode({name: value_of(tup, name) for name in names})
    field = fields

    def one(tup: Tuple) -> bytes | None:
        value = value_of(tup, field)
        return None if value is None else encode(value)

    return one


def value_of(tup: Tuple, field: str) -> Any:
    """Return the value of a field. Raises FailTuple if there is none."""
    try:
        return tup[field]
    except KeyError as error:
        raise FailTuple(str(error.args[0])) from None


def text_of(tup: Tuple, field: str) -> str:
    """Return the text of a field. Raises FailTuple if it is none."""
    value = value_of(tup, field)
    if isinstance(value, str):
        return value
    raise FailTuple(f"field {field!r} is {typed(value)}: give text")


def named_by(function: Callable[[Tuple], Any], what: str, tup: Tuple) -> Any:
    """Return what a function of the user says of a tuple. Raises FailTuple. what: what it names, such as "topic"."""
    try:
        return function(tup)
    except FailTuple:
        raise
    except Exception as error:
        raise FailTuple(
            f"the function that names the {what} raises {class_name(error)}: {message_of(error)}"
        ) from error
