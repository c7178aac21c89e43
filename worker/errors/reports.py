"""Makes and keeps reports of errors that user code raised, with their causes and hints (see `squall/reports/error_reports.py`).

A report names the topology, the component, the task, the call that raised and its tuple; the causes follow the frames. All
reports of a component are counted, and a bounded number is kept.
Must not know: tasks, queues, terminals.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
import sysconfig
import traceback
from collections import deque
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Any, Final

from squall.packages import ours
from squall.reports.error_reports import KEPT, gist
from squall.reports.error_reports import ErrorReport as ErrorReport
from topology_api import FailTuple, Failure
from topology_api.core_choice import COMPILED_FILES
from topology_api.errors import SquallError
from topology_api.wording import class_name, is_error, message_of

#: The folder that contains Squall's packages.
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Frames below these folders are Squall's, and do not help a user.
OURS: Final = tuple(os.path.join(_ROOT, name, "") for name in ours.OURS)
#: Squall's own spouts and bolts: the frames that they call do not help a user.
OUR_COMPONENTS: Final = os.path.join(_ROOT, "squall_io", "")
#: Frames below these folders are Python's: shown after the user's frames, but never as "the user's own line".
LIBRARIES: Final = tuple(
    os.path.join(folder, "")
    for folder in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        os.path.dirname(os.__file__),
    }
)
#: Folders of installed packages. A component may be in an installed package, so a line of such a package is "the user's own
#: line" if the user has no line outside of these folders.
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
MOST_FRAMES: Final = 4
#: The most lines of causes, frames and their code. With the four lines around them and a hint, a report has at most 15 lines.
MOST_LINES: Final = 10
MOST_CAUSES: Final = 5
MOST_TEXT: Final = 300
#: The most characters of one of Squall's own messages: they say what to do next, and some of them contain a list.
MOST_MESSAGE: Final = 2000
#: The most lines of such a message.
MOST_MESSAGE_LINES: Final = 20
#: The class of a group of errors, which Python has since 3.11; () in older versions.
GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", ())
# Attributes of an error, read past the `__getattribute__` of its class, which may be the user's.
_OF_ERRORS: Final[Any] = vars(BaseException)
_TRACEBACK_OF: Final[Any] = _OF_ERRORS["__traceback__"].__get__
_CAUSE_OF: Final[Any] = _OF_ERRORS["__cause__"].__get__
_CONTEXT_OF: Final[Any] = _OF_ERRORS["__context__"].__get__
_HIDES_CONTEXT: Final[Any] = _OF_ERRORS["__suppress_context__"].__get__
_MEMBERS_OF: Final[Any] = vars(GROUP)["exceptions"].__get__ if GROUP else None
#: The most errors that are visited: a group may hold thousands, each with causes.
MOST_VISITED: Final = 100


MODULE: Final = (
    "(not on this host: use `squall submit --include PATH` to send one of your own modules, or `--requirements FILE` to have"
    " packages installed)"
)
FILE: Final = (
    "(paths refer to the worker's host: use `squall submit --resource PATH` to send a file; it is then placed beside the"
    " topology's file)"
)
#: Where a supervisor unpacks a submitted topology's code: a local cluster has no such folder on its path.
SHIPPED: Final = re.compile(r"/code/[0-9a-f]{64}$")
#: The first calls of a task.
BEGINNINGS: Final = ("start", "open", "prepare")


def one_line(text: str) -> str:
    """Return the text without line breaks and other control characters, such as those in the repr of an array or a data
    frame."""
    return text if text.isprintable() else _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def short_line(text: str) -> str:
    """Return the text as one line that is short enough for a table or a log."""
    return shortened(one_line(text), MOST_TEXT)


def shortened(text: str, most: int) -> str:
    """Return the text with at most `most` characters: the middle is cut, since the end says what to do next."""
    if len(text) <= most:
        return text
    end = most * 2 // 5
    return f"{text[: most - end - 1]}…{text[-end:]}"


def describe(error: BaseException) -> str:
    """Return type and message of an error in one line."""
    return short_line(_in_words(error))


def describe_in_full(error: BaseException) -> str:
    """Return type and message of an error: all lines for an error of Squall's, one short line for any other error."""
    if not is_error(error, SquallError):
        return describe(error)
    lines = [line for text in _in_words(error).splitlines() if (line := _printable(text.rstrip()))]
    if len(lines) > MOST_MESSAGE_LINES:
        head = MOST_MESSAGE_LINES // 2
        tail = MOST_MESSAGE_LINES - head - 1
        lines[head:-tail] = [f"... {len(lines) - head - tail} more lines ..."]
    return shortened("\n".join(lines), MOST_MESSAGE)


def _in_words(error: BaseException) -> str:
    name, message = class_name(error), message_of(error).strip()
    return f"{name}: {message}" if message else name


def failure_line(failure: Failure) -> str:
    """Return a failure in one line: `failed in count[4] after 3 attempts: ValueError: ...`."""
    where = f" in {failure.component}[{failure.task}]" if failure.component else ""
    attempts = "1 attempt" if failure.attempts == 1 else f"{failure.attempts} attempts"
    return f"{failure.reason}{where} after {attempts}" + (f": {failure.error}" if failure.error else "")


def user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the user's frames of a traceback, and the library frames that they called, the outermost first.

    Frames of the import system are left out, as in Python's own tracebacks, and so are library frames that Squall called (such
    as `contextlib` below a sink).
    """
    steps = []
    caller = ""
    for step in traceback.walk_tb(trace):
        file = step[0].f_code.co_filename
        if file.startswith("<frozen importlib"):
            continue
        if is_ours(file):
            ours = file not in COMPILED_FILES and os.path.abspath(file).startswith(OUR_COMPONENTS)
            caller = "component" if ours or caller == "component" else "us"
        elif is_own(file) or (not is_of_python(file) and caller in ("", "us")):
            caller = "user"
        if caller == "user":
            steps.append(step)
    return list(traceback.StackSummary.extract(iter(steps), lookup_lines=False))


def is_of_python(file: str) -> bool:
    """Return whether this is a file of Python's own library."""
    return file.startswith(LIBRARIES) and not is_installed(file)


def is_installed(file: str) -> bool:
    """Return whether this is a file of an installed package."""
    return not INSTALLED.isdisjoint(file.split(os.sep))


def is_pickler(file: str) -> bool:
    """Return whether this is a file of the pickler by which values travel and are kept: the user has not called it."""
    return file.endswith(os.path.join("cloudpickle", "cloudpickle.py"))


def is_own(file: str) -> bool:
    """Return whether a file that is not Squall's was written by the user."""
    return not (is_installed(file) or file.startswith(("<", *LIBRARIES)))


@lru_cache(maxsize=1000)
def is_ours(file: str) -> bool:
    """Return whether this is a file of Squall's. Cached, because an endless recursion has a thousand frames."""
    try:
        return file in COMPILED_FILES or os.path.abspath(file).startswith(OURS)
    except OSError:  # the name is relative, and the working directory no longer exists
        return False


def place_of(error: BaseException) -> str:
    """Return the innermost frame in the user's code as "file:line, in function", or ""."""
    found = user_frames(_TRACEBACK_OF(error))
    frames = [frame for frame in found if not (is_of_python(frame.filename) or is_pickler(frame.filename))]
    own = [frame for frame in frames if is_own(frame.filename)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def failure_text(error: BaseException) -> str | None:
    """Return the `Failure.error` of a tuple whose execution raised: the reason of a FailTuple, else type, message, and the
    user's own line."""
    if is_error(error, FailTuple):
        try:
            reason = error.reason  # type: ignore[attr-defined]
            return None if reason is None else str(reason)
        except BaseException as broken:
            return f"(the str() of its reason raises {type(broken).__name__})"
    return with_place(error)


def with_place(error: BaseException) -> str:
    """Return type, message, and the user's own line."""
    place = place_of(error)
    return f"{describe(error)} ({place})" if place else describe(error)


def cause_lines(error: BaseException) -> list[str]:
    """Return a line for each error that led to this error, the nearest first. If there are many, return only lines for the
    nearest errors and the first cause.
    """
    lines = [f"{how} {with_place(cause)}" for how, cause in causes_of(error)]
    if len(lines) > MOST_CAUSES:
        left_out = len(lines) - (MOST_CAUSES - 1)
        lines[MOST_CAUSES - 2 : -1] = [f"... {left_out} more ..."]
    return lines


def origin_lines(error: BaseException) -> list[str]:
    """Return the origin of an error: the innermost frames of user code, each with its line below, then the errors that led to
    it. If the user's own line is further out than these frames, that line comes first."""
    causes = cause_lines(error)
    most = min(MOST_FRAMES, (MOST_LINES - len(causes)) // 2)
    frames, place = user_frames(_TRACEBACK_OF(error))[-most:], place_of(error)
    shown = {f"{frame.filename}:{frame.lineno}, in {frame.name}" for frame in frames}
    lines = [f"at {place}"] if place and place not in shown else []
    for frame in frames:
        lines.append(f'File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"  {frame.line}")
    return lines + causes


def caught_by_us(error: BaseException) -> bool:
    """Return whether Squall itself caught an error. The error that Squall raised instead then says everything."""
    trace = _TRACEBACK_OF(error)
    return trace is not None and is_ours(trace.tb_frame.f_code.co_filename)


def make_report(
    topology: str,
    component: str,
    task: int,
    call: str,
    error: BaseException,
    tuple_text: str | None,
    now: float,
) -> ErrorReport:
    """Return the report of an error that a user's method `call` raised."""
    if tuple_text is not None:
        tuple_text = one_line(tuple_text)
    hint = hint_for(call, error)
    frames = (*([] if hint is None else [hint]), *origin_lines(error))
    text, place = describe_in_full(error), place_of(error)
    return ErrorReport(topology, component, task, call, text, place, frames, tuple_text, now)


class ErrorLog:
    """The errors of one component: their number, and the latest few reports."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0
        self.kept: deque[ErrorReport] = deque(maxlen=KEPT)

    def add(self, report: ErrorReport) -> None:
        """Count a report and keep it as the newest. The new report replaces a kept report with the same gist."""
        self.count += 1
        known = gist(report)
        before = next((kept for kept in reversed(self.kept) if gist(kept) == known), None)
        if before is None:
            self.kept.append(report)
            return
        others = (each for each in self.kept if each is not before)
        # Replace the reports in one step, since another thread reads them.
        self.kept = deque((*others, replace(report, times=before.times + 1)), maxlen=KEPT)


# The errors that led to an error. As in Python, `raise ... from cause` takes precedence over the error that was being handled,
# and `from None` hides that error.


def causes_of(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return the errors that led to this error: each once, with its relation ("caused by", ...), the nearest first.

    The members of a group come before the group's cause. An error that Squall caught is left out, together with its causes.
    """
    found: list[tuple[str, BaseException]] = []
    seen = {id(error)}
    ahead = _next_to(error)[::-1]
    while ahead and len(found) < MOST_VISITED:
        how, cause = ahead.pop()
        if id(cause) in seen or caught_by_us(cause):
            continue
        seen.add(id(cause))
        found.append((how, cause))
        ahead += _next_to(cause)[::-1]
    return found


def _next_to(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return the errors that led to an error directly."""
    members = _MEMBERS_OF(error)[:MOST_VISITED] if is_error(error, GROUP) else ()
    found = [("it holds", member) for member in members]
    cause, context = _CAUSE_OF(error), _CONTEXT_OF(error)
    if cause is not None:
        found.append(("caused by", cause))
    elif context is not None and not _HIDES_CONTEXT(error):
        found.append(("raised while handling", context))
    return found


# Hints, for a worker that lacks one of the author's modules or files.


def hint_for(call: str, error: BaseException) -> str | None:
    """Return the hint for an error that a user's call raised; None: the error needs no hint."""
    cause: BaseException | None = error
    seen: set[int] = set()  # a user's errors may be raised from each other in a circle
    while cause is not None and not is_error(cause, (ImportError, FileNotFoundError)):
        seen.add(id(cause))
        next_one = _CAUSE_OF(cause)
        cause = None if id(next_one) in seen else next_one
    if cause is None or not any(SHIPPED.search(folder) for folder in sys.path):
        return None
    if is_error(cause, ImportError):
        return MODULE
    return FILE if call in BEGINNINGS else None
