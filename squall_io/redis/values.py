"""How the values of a tuple become keys and values of Redis.

Must not know: connections, transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import Any, Final

from squall_io.kit.codecs import Encode, MessageCodec, encoder, format_problem
from topology_api import FailTuple, Tuple
from topology_api.wording import typed

#: The format of its own that Redis' sinks have: see `as_text`.
TEXT: Final = "text"
_json = encoder("json")


def as_text(value: Any) -> bytes:
    """Return a value as Redis' users write it: text and bytes as they are, numbers and truths as text, all else as JSON."""
    kind = type(value)
    if kind is str:
        try:
            return value.encode()  # type: ignore[no-any-return]
        except UnicodeEncodeError as error:
            raise FailTuple(f"{typed(value)} is no valid Unicode text: {error.reason}") from None
    if kind is int:
        return b"%d" % value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return _json(value)


def encoding_problem(name: str, format: object) -> str | None:
    """Return why an argument is no format of a sink; None if it is one."""
    if format == TEXT:
        return None
    problem = format_problem(name, format)
    return None if problem is None else problem.replace("give ", f"give {TEXT!r}, ")


def encoder_of(format: str | Encode | MessageCodec, subject: str) -> Encode:
    """Return the function that turns a value into bytes. It raises FailTuple."""
    return as_text if format == TEXT else encoder(format, subject)


def taken(tup: Tuple, field: str) -> Any:
    """Return the value of a field. Raises FailTuple if there is no such field."""
    try:
        return tup[field]
    except KeyError as error:
        raise FailTuple(str(error.args[0])) from None


# Keys.

#: A part of a key: its text, and the field that follows it, or None.
_Part = tuple[str, str | None]


def key_problem(name: str, key: object) -> str | None:
    """Return why an argument is no key; None if it is one."""
    if not isinstance(key, str) or not key:
        return f"{name} is {typed(key)}: give text, such as 'count:{{word}}'"
    try:
        parts = list(Formatter().parse(key))
    except ValueError as error:
        return f"{name} is {typed(key)}: {error}; a brace of the key itself is written twice"
    for _, field, format, conversion in parts:
        if field is not None and (not field or format or conversion):
            return f"{name} is {typed(key)}: a pair of braces has the name of a field, {{word}}, and nothing else"
    return None


def parts_of(key: str, alone: bool) -> list[_Part]:
    """Return the parts of a key. alone: a key without braces is the name of a field."""
    if alone and "{" not in key and "}" not in key:
        return [("", key)]
    return [(text, field) for text, field, _, _ in Formatter().parse(key)]


def fields_in(parts: list[_Part]) -> list[str]:
    """Return the fields that a key is made of."""
    return [field for _, field in parts if field is not None]


def key_maker(parts: list[_Part]) -> Callable[[Tuple], bytes]:
    """Return what makes the key of a tuple. It raises FailTuple for a value that is no part of a key."""
    if not fields_in(parts):
        fixed = "".join(text for text, _ in parts).encode()
        return lambda tup: fixed

    def key(tup: Tuple) -> bytes:
        made = []
        for text, field in parts:
            made.append(text.encode())
            if field is not None:
                made.append(_of_key(field, taken(tup, field)))
        whole = b"".join(made)
        if not whole:
            raise FailTuple("the key is empty")
        return whole

    return key


def _of_key(field: str, value: Any) -> bytes:
    if type(value) in (str, int, bytes):
        return as_text(value)
    raise FailTuple(f"field {field!r} is {typed(value)}: a key is made of text, whole numbers and bytes")
