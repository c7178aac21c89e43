"""The events of a topology, in the form in which commands receive them from Nimbus; `--json` shows every field.

Must not know: the wording of events, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from squall.reports.events import Event

#: The folder into which a supervisor unpacks a topology's code: a long path that users do not know, different on each host.
UNPACKED: Final = re.compile(r"/(?:[^\s\"'(]*/)?code/[0-9a-f]{64}/")


def events_of(status: Mapping[str, Any]) -> list[Event]:
    """Return the events of a topology's status, the oldest first. Events from a different release are kept as texts."""
    try:
        events = msgspec.convert(status.get("events") or [], list[Event])
    except msgspec.ValidationError:
        events = []
    notes = status.get("notes") or ()
    if len(events) == len(notes):
        return events
    times = status.get("note_times") or [0.0] * len(notes)
    return [Event("text", time=float(time), error=str(note)) for note, time in zip(notes, times)]


def own_paths(text: str) -> str:
    """Return the text with the user's files named relative to the topology's file: `my_bolts/count.py`, line 7."""
    return UNPACKED.sub("", text)


def on_one_line(event: Event) -> str:
    """Return the event's sentence without the topology's name, followed by the event's lines of output, separated by `|`."""
    from squall.reports.event_text import sentence

    first, *output = sentence(event, named=False).splitlines() or [""]
    return own_paths(" | ".join([first, *(line.strip(" |") for line in output)]))
