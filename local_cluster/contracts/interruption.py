"""Interrupts a call at a line: there it raises, ends as in a killed process, or waits while something else happens.

Lines are those of the connector's own code: the files in the folders of its class and of the classes it derives from, and what
else belongs to it. Must not know: what is called.
"""

from __future__ import annotations

import gc
import inspect
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import topology_api

#: How often a line is interrupted: also in the second turn of a loop.
TURNS: Final = 2
#: How long a call waits at a line for what happens meanwhile, in seconds: that may itself wait for the call.
WAIT: Final = 0.1

#: Types whose methods change nothing.
PLAIN: Final = frozenset((str, bytes, int, float, tuple, frozenset, range))

#: A file, a line in it, and how often it was reached before.
Place = tuple[str, int, int]


class Killed(BaseException):
    """Ends a call as the end of its process would: no `except Exception` sees it."""


class Fault(Exception):
    """What a call raises because of something that the connector does not know."""


class OwnCode:
    """The code of a connector's class, and of further modules."""

    def __init__(self, kind: type, further: Iterable[ModuleType] = ()) -> None:
        names: set[str] = set()
        more = frozenset(str(module.__file__) for module in further)
        for each in kind.__mro__:
            if not each.__module__.startswith(f"{topology_api.__name__}.") and each is not object:
                own = (
                    part for part in vars(each).values() if getattr(part, "__module__", "") == each.__module__
                )
                codes = (getattr(inspect.unwrap(part), "__code__", None) for part in own)
                names |= {code.co_filename for code in codes if code is not None}
        self.files = frozenset(names) | more
        self.folders = frozenset(str(Path(name).parent) for name in names if Path(name).is_absolute())
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Whether a file belongs to it. `name`: that of a code object."""
        if (known := self._known.get(name)) is None:
            known = self._known[name] = name in self.files or str(Path(name).parent) in self.folders
        return known

    def places(self, call: Callable[[], object]) -> list[Place]:
        """Make a call, and return the places in it before which something may have happened outside: a line behind which other
        code was called. At the lines in between, an interruption would be the same as at these."""
        found: list[Place] = []
        called = [False]

        def profile(frame: FrameType, event: str, function: Any) -> None:
            if event == "c_call" and not is_plain(function):
                called[0] = called[0] or self.has(frame.f_code.co_filename)
            elif event == "call" and not self.has(frame.f_code.co_filename):
                called[0] = called[0] or (
                    frame.f_back is not None and self.has(frame.f_back.f_code.co_filename)
                )

        def reached(place: Place) -> None:
            if is_unguarded(place):
                return
            if called[0] and place[2] < TURNS:
                found.append(place)
            called[0] = False

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            with_trace(call, self._trace(reached))
        finally:
            sys.setprofile(before)
        return found

    def ended_at(self, place: Place, stop: type[BaseException], call: Callable[[], Any]) -> Any:
        """Make a call, and raise an exception at a place; return what the call returns, or None if it raises."""

        def fall() -> None:
            raise stop("at a line that the test has chosen")

        try:
            return self.at(place, fall, call)
        except (Killed, Exception):
            return None
        finally:
            gc.collect()  # what the call held, as the end of a process would free it

    def at(self, place: Place, action: Callable[[], object], call: Callable[[], Any]) -> Any:
        """Make a call; when it reaches a place, do something else there, which may raise."""

        def reached(each: Place) -> None:
            if each == place:
                action()

        return with_trace(call, self._trace(reached))

    def _trace(self, reached: Callable[[Place], object]) -> Callable[[FrameType, str, Any], Any]:
        turns: Counter[tuple[str, int]] = Counter()

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            name = frame.f_code.co_filename
            if event == "call":
                return trace if self.has(name) else None
            if event == "line":
                line = (name, frame.f_lineno)
                turns[line] += 1
                reached((*line, turns[line] - 1))
            return trace

        return trace


def is_plain(function: Any) -> bool:
    """Return whether a function of C, or a method of a plain value, changes nothing."""
    if getattr(function, "__module__", None) == "builtins":
        return function is not print
    return type(getattr(function, "__self__", None)) in PLAIN


def is_unguarded(place: Place) -> bool:
    """Return whether an exception at a place would leave a `with` around it without its end: that is so where a `try` begins,
    and where a `with` ends, which is at its line again. No call raises there."""
    name, line, turn = place
    text = linecache.getline(name, line).strip()
    return text == "try:" or (turn > 0 and text.startswith("with "))


def with_trace(call: Callable[[], Any], trace: Callable[[FrameType, str, Any], Any]) -> Any:
    """Make a call with a trace function, and put back the one that was there (a debugger's)."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


def attempted(call: Callable[[], object]) -> None:
    """Make a call that may fail."""
    try:
        call()
    except Exception:
        return


class Meanwhile:
    """Something that happens in a thread of its own while a call waits at a line."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="meanwhile")

    def _run(self) -> None:
        try:
            self.action()
        except BaseException as error:
            self.raised = error

    def begin(self) -> None:
        """Start, and wait a moment for the end."""
        self.thread.start()
        self.thread.join(WAIT)

    def begin_once(self) -> None:
        """Start, unless it has been started."""
        if self.thread.ident is None:
            self.begin()

    def end(self) -> None:
        """Wait for the end (if it was never started, start it now); raise what was raised."""
        if self.thread.ident is None:
            self.thread.start()
        self.thread.join()
        if self.raised is not None:
            raise self.raised


def where(place: Place) -> str:
    """Return a place for people."""
    name, line, turn = place
    return f"{Path(name).name}:{line}" + (" in its second turn" if turn else "")
