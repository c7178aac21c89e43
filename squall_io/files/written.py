"""How the values of a tuple become a line of a file, and which values cannot.

Must not know: files, tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from topology_api import FailTuple, Tuple
from topology_api.wording import typed

#: Format -> the end of its files' names.
ENDS: Final = {"lines": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}


def text_line(tup: Tuple, field: str) -> bytes:
    """Return the line of one field. Raises FailTuple for a value that is no line of text."""
    value = value_of(tup, field)
    if not isinstance(value, str):
        raise FailTuple(f"field {field!r}: a line must be text, and the value is {typed(value)}")
    if "\n" in value or "\r" in value:
        raise FailTuple(
            f"field {field!r}: the value has a line break, so it is no single line: {typed(value)}"
        )
    return encoded(value, field)


def json_line(tup: Tuple, fields: Sequence[str]) -> bytes:
    """Return the line of an object with these fields. Raises FailTuple for a value that JSON does not have."""
    members = []
    for field in fields:
        value = value_of(tup, field)
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise FailTuple(
                f"field {field!r}: JSON does not have the value {typed(value)}: {error}"
            ) from None
        for key in odd_keys(value):
            raise FailTuple(f"field {field!r}: keys in JSON are text, and one in the value is {typed(key)}")
        members.append(encoded(json.dumps(field, ensure_ascii=False) + ": " + text, field))
    return b"{" + b", ".join(members) + b"}"


def value_of(tup: Tuple, field: str) -> Any:
    """Return the value of a field. Raises FailTuple if there is no such field."""
    try:
        return tup[field]
    except KeyError as error:
        raise FailTuple(str(error.args[0])) from None


def encoded(text: str, field: str) -> bytes:
    """Return text as UTF-8. Raises FailTuple for half a character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FailTuple(f"field {field!r}: the text cannot be encoded as UTF-8: {error}") from None


def odd_keys(value: object) -> Iterator[object]:
    """Yield the keys in a value that JSON would turn into text."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str))
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from odd_keys(each)
