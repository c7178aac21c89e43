"""What daemons and workers have said of a topology, as a person reads it; `--json` has every word of it.

Must not know: who said it, and terminals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from squall.said import NEXT_START, said_key

#: Where a supervisor unpacks what a topology brought: a long way that nobody typed, different on every host.
UNPACKED: Final = re.compile(r"/(?:[^\s\"'(]*/)?code/[0-9a-f]{64}/")
WHOSE: Final = re.compile(r"worker \S+")


def own_paths(text: str) -> str:
    """The text with the user's files named as they were beside the topology: `my_bolts/count.py`, line 7."""
    return UNPACKED.sub("", text)


def again(note: str) -> str:
    """`worker w2: its 3rd death in 4 s; it is started again in 2 s`, of a note that has such a count; "" of others."""
    found, whose = NEXT_START.search(note), WHOSE.match(note)
    if found is None or found["count"] is None:
        return ""
    return f"{whose[0] if whose else 'a worker'}: {found[0].removeprefix('; ')}"


def on_one_line(note: str) -> str:
    """The note, with the lines of output that follow its sentence marked as such."""
    first, *rest = note.splitlines() or [""]
    return " | ".join([first, *(line.strip().removeprefix("|").strip() for line in rest)])


def latest(notes: Sequence[str], most: int) -> list[str]:
    """The last of the notes, at most so many; of those that say one thing again and again the last one only."""
    last: dict[str, str] = {}
    for note in notes:
        key = said_key(note)
        last.pop(key, None)
        last[key] = note
    return list(last.values())[-most:]
