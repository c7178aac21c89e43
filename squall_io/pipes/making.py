"""What an end of a pipe is, and how an address becomes a connector: what all schemes share.

Must not know: connectors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from squall_io.pipes.addresses import PipeAddress, arguments_of
from topology_api import Bolt, Fields, Spout

#: The field in which a sink of messages gets whole rows.
WHOLE: Final = "value"


class SinkEnd(NamedTuple):
    """A sink, and the fields that it takes; None: those of the stream, whatever they are. whole: the field in which it takes a
    row as a whole."""

    bolt: Bolt
    fields: tuple[str, ...] | None
    whole: str | None = None


class SourceEnd(NamedTuple):
    """A spout, and the fields of its rows; None: its tuples have one value, a dict, whose keys are the fields."""

    spout: Spout
    fields: tuple[str, ...] | None


class Scheme(NamedTuple):
    """What addresses of some schemes name. form: how they are written, for people."""

    form: str
    source: Callable[[PipeAddress], SourceEnd] | None
    sink: Callable[[PipeAddress], SinkEnd] | None


def made(component: Callable[..., Any], address: PipeAddress, *given: Any, **named: Any) -> Any:
    """Return a connector: `given` are its first arguments, `named` others, as the address' place says."""
    first = list(inspect.signature(component).parameters)[: len(given)]
    options = arguments_of(component, address, {*first, *named})  # type: ignore[arg-type]
    return component(*given, **named, **options)


def with_fields(spout: Spout) -> SourceEnd:
    outputs = spout.outputs
    assert isinstance(outputs, Fields)
    return SourceEnd(spout, tuple(outputs))


def are_rows(spout: Any) -> bool:
    """Whether each tuple is one value of JSON, which is a row."""
    return tuple(spout.fields) == (WHOLE,) and spout.decode == "json"


def with_payloads(component: type, address: PipeAddress, *given: Any, **named: Any) -> SinkEnd:
    """Return a sink whose messages are made of `fields=`, or of whole rows."""
    if any(name == "fields" for name, _ in address.options):
        sink = made(component, address, *given, **named)
        return SinkEnd(sink, tuple(sink.used_fields()))
    sink = made(component, address, *given, **named, fields=WHOLE)
    return SinkEnd(sink, tuple(name for name in sink.used_fields() if name != WHOLE), WHOLE)


def options_of(component: type, address: PipeAddress) -> tuple[PipeAddress, str]:
    """Return an address with the options that are arguments of a connector, and a URL with all others: those of the driver."""
    known = inspect.signature(component).parameters
    own = [(name, text) for name, text in address.options if name.partition(".")[0] in known]
    others = [each for each in address.options if each not in own]
    url = f"{address.scheme}:{address.place}{'?' if others else ''}{urlencode(others, safe='{}')}"
    return address._replace(options=tuple(own)), url
