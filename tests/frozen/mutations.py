"""Systematic damage of a JSON text: values replaced, fields removed or doubled, bytes lost or changed.

Everything is made from the text alone, in one order, with a name for each: `notes.0.time := 1.5`. A reader of the text is
compared with a frozen table of the results of then. Must not know: the meaning of the text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tests.frozen.plain_values import FIELDS, former, plain, text_of
from topology_api import SquallError

#: The replacements of a value, as JSON text.
REPLACEMENTS: Final = (
    "null", "true", "false", "0", "1", "-1", "2", "1.0", "1.5", "-0.0", "1e3", "1e400", "NaN", "-Infinity",
    "9007199254740993", "9223372036854775808", "-9223372036854775809", "1000000000000000000000000000000",
    '""', '"x"', '"1"', '"\\ud800"', "[]", "[1]", '["x"]', "[1,0]", "[[1]]", "{}", '{"a":1}', '{"a":{}}',
)  # fmt: skip
#: How many elements of a list, and of a mapping with keys of the user's, are mutated.
LOOKED_INTO: Final = 2

#: Marks a value that exists on one side only.
_GONE: Final = "(gone)"

Path = tuple[str | int, ...]
Reader = Callable[[bytes], object]


def mutations(data: bytes, numbers: Iterable[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Each mutation of a JSON text, by its name. `numbers`: texts of further numbers, of formats for instance."""
    value = json.loads(data)
    for path in _paths(value):
        name = ".".join(map(str, path)) or "it"
        for text in (*REPLACEMENTS, *numbers):
            yield f"{name} := {text}", _with(value, path, text)
        if path:
            yield f"{name} removed", _without(value, path)
        found = _at(value, path)
        if isinstance(found, dict):
            yield f"{name} with more", _with(value, path, _text({**found, "unknown": {"a": [1, None]}}))
            for key in found:
                before = f"{{{json.dumps(key)}:[[0]],"
                yield f"{name}.{key} twice", _with(value, path, before + _text(found)[1:])
        if isinstance(found, list) and found:
            yield f"{name} and its first again", _with(value, path, _text([*found, found[0]]))
    yield from _of_bytes(data)


def _of_bytes(data: bytes) -> Iterator[tuple[str, bytes]]:
    text = data.decode()
    for part in range(8):
        at = len(data) * part // 8
        yield f"cut after {at} bytes", data[:at]
        yield f"bit {part} of byte {at} flipped", bytes((*data[:at], data[at] ^ 1 << part, *data[at + 1 :]))
    yield "the last byte lost", data[:-1]
    yield "something after it", data + b"x"
    yield "a NUL after it", data + b"\0"
    yield "twice", data + data
    yield "blanks around it", b" \n\t\r" + data + b" \n"
    yield "a byte order mark before it", b"\xef\xbb\xbf" + data
    yield "in UTF-16", text.encode("utf-16")
    yield "in UTF-16 without a mark", text.encode("utf-16-le")
    yield "in UTF-32", text.encode("utf-32")
    yield "no UTF-8 in a text", data.replace(b'":"', b'":"\xff', 1)
    yield "a control character in a text", data.replace(b'":"', b'":"\n', 1)
    yield "an escape that is none", data.replace(b'":"', b'":"\\x', 1)
    yield "single quotes", data.replace(b'"', b"'")
    yield "a comma too many", data[:-1] + b",}"
    yield "a comment", data[:-1] + b"/* */}"
    yield "in a list", b"[" + data + b"]"
    yield "as a text", json.dumps(text).encode()
    yield "deep lists", b"[" * 100_000
    yield "no JSON", b"no JSON"
    yield "an integer of 5000 digits", data[:-1] + b',"unknown":' + b"1" * 5000 + b"}"


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key in value if len(path) == 0 else list(value)[:16]:
            yield from _paths(value[key], (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value[:LOOKED_INTO]):
            yield from _paths(each, (*path, at))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


#: Marks the place of a replacement.
_HOLE: Final = "the hole in the text"


def _with(value: Any, path: Path, text: str) -> bytes:
    if not path:
        return text.encode()
    copy = json.loads(json.dumps(value))
    _at(copy, path[:-1])[path[-1]] = _HOLE
    return _text(copy).replace(json.dumps(_HOLE), text, 1).encode()


def _without(value: Any, path: Path) -> bytes:
    copy = json.loads(json.dumps(value))
    del _at(copy, path[:-1])[path[-1]]
    return _text(copy).encode()


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


# Outcomes


def outcome(read: Reader, data: bytes, usual: Any) -> Any:
    """The outcome of reading bytes: "same" as the unmutated text, the differences by their paths, or the error's name. An error
    that is not on purpose has "crash " before its name.
    """
    try:
        found = plain(read(data))
    except SquallError as error:
        return former(type(error).__name__)
    except Exception as error:
        return f"crash {type(error).__name__}"
    if text_of(found) == text_of(usual):
        return "same"
    return changes(usual, found)


def changes(usual: Any, found: Any, path: str = "") -> dict[str, Any]:
    """Where JSON values differ, with both values."""
    if isinstance(usual, dict) and isinstance(found, dict):
        both = dict.fromkeys((*usual, *found))
        rows = [(name, usual.get(name, _GONE), found.get(name, _GONE)) for name in both]
    elif isinstance(usual, list) and isinstance(found, list) and len(usual) == len(found):
        rows = [(str(at), *pair) for at, pair in enumerate(zip(usual, found))]
    else:
        return {} if text_of(usual) == text_of(found) else {path: found}
    changed: dict[str, Any] = {}
    for name, was, now in rows:
        changed |= changes(was, now, path if name == FIELDS else f"{path}/{name}")
    return changed


def digest(cases: Iterable[tuple[str, bytes]]) -> str:
    """A hash of mutations: a check that they are still made in the same way."""
    hashed = hashlib.sha256()
    for name, data in cases:
        hashed.update(repr((name, data)).encode())
    return hashed.hexdigest()


def expected(table: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome of each mutation by a table."""
    found: dict[str, Any] = dict.fromkeys(table["same"], "same")
    for kind, names in table["refused"].items():
        found |= dict.fromkeys(names, kind)
    found |= table["changed"]
    return found
