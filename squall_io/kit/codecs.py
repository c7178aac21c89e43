"""How messages of other systems become values, and values become messages: `bytes`, `str`, `json`, or functions of the user.

A codec is pickled with its connector, so it is made of names and of functions that can be imported. What it cannot read or
write fails that message alone: it raises `FailTuple` in a sink, and `UnreadableMessage` in a spout.
Must not know: connectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from topology_api import FailTuple, SquallError
from topology_api.wording import class_name, message_of, typed

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]

#: The formats that have names.
NAMES: Final = ("bytes", "str", "json")


class UnreadableMessage(SquallError):
    """A message that its codec cannot read. The text says why, without the message itself."""


def format_problem(name: str, format: object) -> str | None:
    """Return why an argument is no format; None if it is one. A format is a name in `NAMES`, or a function of one argument."""
    if (isinstance(format, str) and format in NAMES) or callable(format):
        return None
    return f"{name} is {typed(format)}: give {', '.join(map(repr, NAMES))}, or a function"


def decoder(format: str | Decode) -> Decode:
    """Return the function that turns the bytes of a message into a value. It raises UnreadableMessage.

    format: "bytes"; "str", as UTF-8; "json"; or a function from bytes to any value that a tuple can hold.
    """
    if not isinstance(format, str):
        return _by_user_read(format)
    return {"bytes": _same, "str": _text, "json": _json}[format]


def encoder(format: str | Encode) -> Encode:
    """Return the function that turns a value into the bytes of a message. It raises FailTuple.

    format: "bytes", which takes bytes only; "str", as UTF-8; "json"; or a function from a value to bytes.
    """
    if not isinstance(format, str):
        return _by_user_written(format)
    return {"bytes": _as_bytes, "str": _as_text, "json": _as_json}[format]


_parsed = msgspec.json.Decoder().decode
_written = msgspec.json.Encoder().encode


def _same(data: bytes) -> bytes:
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableMessage(f"it is no text in UTF-8: {error.reason} at byte {error.start}") from None


def _json(data: bytes) -> Any:
    try:
        return _parsed(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableMessage(f"it is no JSON: {message_of(error)}") from None


def _by_user_read(function: Decode) -> Decode:
    def decode(data: bytes) -> Any:
        try:
            return function(data)
        except Exception as error:
            raise UnreadableMessage(
                f"{_name(function)} raises {class_name(error)}: {message_of(error)}"
            ) from error

    return decode


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise FailTuple(f"{typed(value)} is not bytes")


def _as_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise FailTuple(f"{typed(value)} is not text")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise FailTuple(f"{typed(value)} is no valid Unicode text: {error.reason}") from None


def _as_json(value: Any) -> bytes:
    try:
        return _written(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FailTuple(f"{typed(value)} cannot be written as JSON: {message_of(error)}") from None


def _by_user_written(function: Encode) -> Encode:
    def encode(value: Any) -> bytes:
        try:
            data = function(value)
        except FailTuple:
            raise
        except Exception as error:
            raise FailTuple(f"{_name(function)} raises {class_name(error)}: {message_of(error)}") from error
        if not isinstance(data, bytes):
            raise FailTuple(f"{_name(function)} returned {typed(data)}, not bytes")
        return data

    return encode


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or class_name(function))
