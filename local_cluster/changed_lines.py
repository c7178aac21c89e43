"""Finds the line of user code that changes a value, while a call runs.

The call is traced by `sys.settrace`: before each line, and at each call and return, the values in view are compared with what
they were when the call began. Library code is not traced: there, the user's line that called it counts. A test that is traced
already, by a debugger or a tool that measures coverage, is left alone; then the line is not known, and the text says so. So it
does when the comparisons of a run have become too many.
Must not know: states, tasks.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FrameType
from typing import Any, Final, Generic, TypeVar

Place = TypeVar("Place")

#: How many values are compared in a run: a fraction of a second, for small values.
MOST_COMPARED: Final = 200_000
#: How many bytes of a value count as one more value.
_BYTES: Final = 1_000
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: The packages of Squall whose code runs within a call.
_OWN: Final = tuple(
    os.path.join(_ROOT, package, "") for package in ("topology_api", "squall", "worker", "local_cluster")
)
_LIBRARY: Final = os.path.join(sysconfig.get_path("stdlib"), "")
_INSTALLED: Final = tuple(os.path.join(sysconfig.get_path(each), "") for each in ("purelib", "platlib"))


class ChangedLines(Generic[Place]):
    """The lines that changed values in the latest call."""

    def __init__(
        self, seen: Mapping[Place, Any], encoded: Callable[[Place], Any], left: int = MOST_COMPARED
    ) -> None:
        """`seen`: the values in view, encoded, as they were after the latest call. `encoded`: what one is now."""
        self._seen, self._encoded = seen, encoded
        #: How many comparisons are left.
        self.left = left
        #: Why lines of the latest call are not known, or "".
        self.unknown = ""
        #: Place -> file and line that changed its value first.
        self.found: dict[Place, tuple[str, int]] = {}
        self._before: dict[Place, Any] = {}
        #: File and line of the user's functions that run, the innermost last.
        self._stack: list[tuple[str, int]] = []

    def run(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method; return what it returns."""
        self.found.clear()
        self.unknown = ""
        if not self._seen:
            return method(*args)
        if sys.gettrace() is not None:
            self.unknown = "its line is not known, since a debugger or a coverage tool traces this test"
            return method(*args)
        if self.left <= 0:
            self.unknown = "its line is not known, since the test has too many calls or too large values: make it smaller"
            return method(*args)
        # What has changed since the latest call, as a call does that raised, was not changed by a line of this one.
        self._before = {place: old for place, old in self._seen.items() if self._now(place) == old}
        self._stack.clear()
        sys.settrace(self._enter)
        try:
            return method(*args)
        finally:
            sys.settrace(None)

    def text(self, place: Place) -> str:
        """Return where the value of a place was changed, to follow a comma; "" if that is not known."""
        if place not in self.found:
            return f" ({self.unknown})" if self.unknown else ""
        file, line = self.found[place]
        code = linecache.getline(file, line).strip()
        return f", in line {line} of {file}{f' ({code})' if code else ''}"

    def _enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Trace a function that begins, or goes on after a `yield`."""
        if not is_of_user(frame.f_code.co_filename):
            return None
        self._compare()
        self._stack.append((frame.f_code.co_filename, frame.f_lineno))
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        """Trace what happens in a function: the line that ran last has made what is new."""
        if event == "line":
            self._compare()
            self._stack[-1] = (frame.f_code.co_filename, frame.f_lineno)
        elif event == "return":
            self._compare()
            self._stack.pop()
        return self._step

    def _compare(self) -> None:
        if not self._stack or not self._before or self.left <= 0:
            return
        changed = [place for place, old in self._before.items() if self._now(place) != old]
        for place in changed:
            self.found[place] = self._stack[-1]
            del self._before[place]

    def _now(self, place: Place) -> Any:
        """Return what a value is; None if it cannot be encoded, which is another error."""
        try:
            data = self._encoded(place)
        except Exception:
            data = None
        self.left -= 1 + size_of(data) // _BYTES
        return data


def size_of(data: Any) -> int:
    """Return about how many bytes encoded parts have."""
    if isinstance(data, bytes):
        return len(data)
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return sum(map(len, parts)) + 100 * len(parts)


@lru_cache(maxsize=4096)
def is_of_user(file: str) -> bool:
    """Return whether a file has code of the user's, and not of Squall's or Python's own library."""
    if file.startswith(("<frozen ", *_OWN)):
        return False
    return not file.startswith(_LIBRARY) or file.startswith(_INSTALLED)
