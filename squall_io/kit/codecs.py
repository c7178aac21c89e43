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


class MessageCodec:
    """A format that needs more than the message, such as a schema registry. It is pickled with its connector, and opened where
    the connector runs: subclasses define `open_decoder` and `open_encoder`.

    What they return raises UnreadableMessage or FailTuple for a message or a value that does not fit, `CodecAway` while what it
    needs does not answer, and SquallError for what has to be changed: neither of the two last ones is about the message.
    """

    #: What the schema is registered as; None: the connector names it.
    subject: str | None = None

    def open_decoder(self) -> Decode:
        """Return the function that turns the bytes of a message into a value."""
        raise SquallError(f"{type(self).__name__} reads no messages")

    def open_encoder(self, subject: str) -> Encode:
        """Return the function that turns a value into the bytes of a message. subject: used where `self.subject` is None."""
        raise SquallError(f"{type(self).__name__} writes no messages")


#: The formats that have names.
NAMES: Final = ("bytes", "str", "json")


class UnreadableMessage(SquallError):
    """A message that its codec cannot read. The text says why, without the message itself."""


class CodecAway(SquallError):
    """What a codec needs, such as a schema registry, does not answer. The same message can be read or written later."""


def format_problem(name: str, format: object) -> str | None:
    """Return why an argument is no format; None if it is one. A format is a name in `NAMES`, a function of one argument,
    or a `MessageCodec`."""
    if (isinstance(format, str) and format in NAMES) or callable(format) or isinstance(format, MessageCodec):
        return None
    return f"{name} is {typed(format)}: give {', '.join(map(repr, NAMES))}, a function, or a codec"


def decoder(format: str | Decode | MessageCodec) -> Decode:
    """Return the function that turns the bytes of a message into a value. It raises UnreadableMessage; of a
    `MessageCodec`, also CodecAway and other SquallErrors.

    format: "bytes"; "str", as UTF-8; "json"; a `MessageCodec`; or a function from bytes to any value that a tuple can hold.
    """
    if isinstance(format, MessageCodec):
        return format.open_decoder()
    if not isinstance(format, str):
        return _by_user_read(format)
    return {"bytes": _same, "str": _text, "json": _json}[format]


def swift_decoder(format: str | Decode | MessageCodec, read: Decode) -> Decode | None:
    """Return the fastest function that reads the same as `read`, which is the decoder of this format; None: values stay as they
    are. For bytes that cannot be read it raises any error: ask `read` why. None stays None, or raises any error, too: what the
    user has written is never called with it."""
    if isinstance(format, str):
        return {"bytes": None, "str": bytes.decode, "json": _parsed}[format]
    return lambda data: None if data is None else read(data)


def encoder(format: str | Encode | MessageCodec, subject: str = "") -> Encode:
    """Return the function that turns a value into the bytes of a message. It raises FailTuple; of a `MessageCodec`,
    also CodecAway and other SquallErrors.

    format: "bytes", which takes bytes only; "str", as UTF-8; "json"; a `MessageCodec`; or a function from a value to bytes.
    subject: what a `MessageCodec` registers its schema as, unless it names a subject itself.
    """
    if isinstance(format, MessageCodec):
        return format.open_encoder(subject)
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
