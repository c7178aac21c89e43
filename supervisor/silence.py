"""What is said of a worker whose process lives and sends no heartbeats: where its main thread is, as far as it shows that.

The heartbeat's thread runs whatever the worker's loop does, unless a call holds Python's own lock (the GIL), or the whole
process is stopped. A call in C then still reacts to a signal: `faulthandler` writes the stacks of all threads into the worker's
output.
Must not know: processes, files, when a worker is killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

#: Seconds without a heartbeat after which the worker is asked for its stacks; a worker sends one each second.
SILENT_SECS: Final = 5.0
#: Seconds that the worker has for writing its stacks.
WRITE_SECS: Final = 1.0
#: `faulthandler` begins the stack of the thread that got the signal with this text, and lists the innermost frame first.
_BEGIN: Final = "Current thread "
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')
#: Parts of the paths of files that no user wrote.
_LIBRARY: Final = ("/lib/python", "<frozen ")


class Silence(msgspec.Struct, frozen=True):
    """A silence that lasts. `since`: when the worker was asked for its stacks; `text`: what is known, "" until it has had time
    to answer."""

    since: float
    text: str = ""


def text_of(secs: float, call: tuple[str, int, float] | None, output: str) -> str:
    """Return a sentence. `call`: the call of the last heartbeat; `output`: what the worker wrote since it was asked."""
    where = place_in(output)
    doing = "" if call is None else f"; at its last heartbeat it was in a call of {call[0]}[{call[1]}]"
    if not where:
        why = "its process does not react to a signal either, so it is stopped, or waits for the system"
    else:
        why = f"a thread seems to hold Python's own lock (the GIL); the main thread is at {where}"
    return f"has sent no heartbeat for {secs:.0f} s{doing}; {why}"


def place_in(output: str) -> str:
    """Return the innermost line of the user's own code in what `faulthandler` wrote, as `file:line, in function`; else the
    innermost of all; "" if there is none."""
    frames = list(_frames(output))
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARY)]
    file, line, function = next(iter(own or frames), ("", "", ""))
    return f"{file}:{line}, in {function}" if file else ""


def _frames(output: str) -> Iterator[tuple[str, ...]]:
    _, found, stack = (
        output.rpartition(f"\n{_BEGIN}") if f"\n{_BEGIN}" in output else output.partition(_BEGIN)
    )
    for line in stack.splitlines()[1:] if found else ():
        match = _FRAME.fullmatch(line)
        if match is None:
            return
        yield match.groups()
