"""How a message of a queue becomes the values of a tuple: the fields that a spout chooses, the body decoded.

Must not know: queues, clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from squall_io.kit.codecs import Decode, MessageCodec, decoder, format_problem
from topology_api.wording import listed, shown

#: The field that is the decoded body.
VALUE: Final = "value"


def field_problems(fields: object, known: Sequence[str], decode: object) -> Iterator[str]:
    """Yield what is wrong with the arguments `fields` and `decode` of a spout. known: all fields there are."""
    names = fields if isinstance(fields, (tuple, list)) else ()
    if not names or any(name not in known for name in names) or len(set(names)) < len(names):
        yield f"fields are {shown(fields)}: give some of {listed(known)}, each once"
    if (problem := format_problem("decode", decode)) is not None:
        yield problem


def values_maker(
    fields: Sequence[str],
    decode: str | Decode | MessageCodec,
    body: Callable[[Any], bytes],
    others: Mapping[str, Callable[[Any], object]],
) -> Callable[[Any], tuple[object, ...]]:
    """Return the function from a message to the values of its tuple, as `QueueClient.values` is. It raises what `decode`
    raises.

    body: returns the bytes of a message, for the field `value`. others: the functions for all other fields.
    """
    read = decoder(decode)
    parts: dict[str, Callable[[Any], object]] = {**others, VALUE: lambda message: read(body(message))}
    chosen = [parts[name] for name in fields]
    return lambda message: tuple([part(message) for part in chosen])
