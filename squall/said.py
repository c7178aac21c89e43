"""What supervisors say about the same thing again and again: how such notes are told to be one, and how they end.

Must not know: who keeps notes, who shows them.
"""

from __future__ import annotations

import re
from typing import Final

#: These differ from one death of a worker to the next, and from one failed preparation to the next.
PROCESS: Final = re.compile(r" \(pid \d+\)")
NEXT_START: Final = re.compile(
    r"(?P<times>; its (?P<count>\d+\w\w (?:death|failed preparation)) in \d+ s)?"
    r"; it is (?P<done>started|tried) again (?:at once|in \d+ s)"
)
_STARTED: Final = {"started": "; it was started again", "tried": "; it was started later"}
_TIMES: Final = re.compile(
    rf"{NEXT_START.pattern}|(?:; its \d+\w\w (?:death|failed preparation) in \d+ s)?(?:{'|'.join(_STARTED.values())})"
)


def said_key(note: str) -> str:
    """What two notes have in common that say the same of one worker, at different times."""
    return PROCESS.sub("", _TIMES.sub("", note.partition("\n")[0]))


def when_over(note: str) -> str:
    """The note of a worker that runs by now: without the promise that it will be started."""
    first, newline, rest = note.partition("\n")
    first = NEXT_START.sub(lambda found: f"{found['times'] or ''}{_STARTED[found['done']]}", first)
    return f"{first}{newline}{rest}"
