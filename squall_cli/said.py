"""What daemons and workers have said of a topology, as a person reads it; `--json` has every word of it.

Must not know: who said it, and terminals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: Where a supervisor unpacks what a topology brought: a long way that nobody typed, different on every host.
UNPACKED: Final = re.compile(r"/(?:[^\s\"'(]*/)?code/[0-9a-f]{64}/")
#: These differ from one death of a worker to the next.
PROCESS: Final = re.compile(r" \(pid \d+\)")
NEXT_START: Final = re.compile(r"; it is started again\b|; its \d+\w\w death\b")


def own_paths(text: str) -> str:
    """The text with the user's files named as they were beside the topology: `my_bolts/count.py`, line 7."""
    return UNPACKED.sub("", text)


def latest(notes: Sequence[str], most: int) -> list[str]:
    """The last of the notes, at most so many; of those that say one thing again and again the last one only."""
    last: dict[str, str] = {}
    for note in notes:
        key = PROCESS.sub("", NEXT_START.split(note, maxsplit=1)[0])
        last.pop(key, None)
        last[key] = note
    return list(last.values())[-most:]
