"""How error reports are made of what the user's code raised, and kept (what a report is: `squall/error_reports.py`).

A report names topology, component, task, the call that raised and the tuple it was given; what caused the error stands
below the frames. Reports of one component are throttled: all are counted, a bounded number is kept.
Must not know: tasks, queues, terminals.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections import deque
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Final

from squall.error_reports import KEPT, gist
from squall.error_reports import ErrorReport as ErrorReport
from topology_api import FailTuple, Failure
from topology_api.core_choice import COMPILED_FILES
from topology_api.errors import SquallError
from worker.causes import causes_of
from worker.hints import hint_for

#: Frames below these folders are ours, or the interpreter's, and are of no use to a user.
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS: Final = tuple(
    os.path.join(_ROOT, name) + os.sep
    for name in (
        "worker",
        "topology_api",
        "squall",
        "squall_io",
        "local_cluster",
        "nimbus",
        "supervisor",
        "squall_cli",
    )
)
#: Spouts and bolts of ours: what they call is their affair, and no line of it helps a user.
OUR_COMPONENTS: Final = os.path.join(_ROOT, "squall_io", "")
#: Frames below these folders are Python's: shown below the user's own, but never "the user's own line".
LIBRARIES: Final = tuple(
    os.path.join(folder, "")
    for folder in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        os.path.dirname(os.__file__),
    }
)
#: Packages that were installed: "the user's own line" only where there is no other, for a component may be in one.
INSTALLED: Final = ("site-packages", "dist-packages")
MOST_FRAMES: Final = 4
#: Lines of causes, frames and their code: with the four lines around them and a hint a report has 15.
MOST_LINES: Final = 10
MOST_CAUSES: Final = 5
MOST_TEXT: Final = 300
#: A message of ours says what to do next, some with a list: characters and lines of it.
MOST_MESSAGE: Final = 2000
MOST_MESSAGE_LINES: Final = 20


def one_line(text: str) -> str:
    """The text without line breaks and other control characters: a value's repr may have any (arrays, data frames)."""
    if text.isprintable():
        return text
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def short_line(text: str) -> str:
    """The text in one line that is not too long for a table or a log."""
    return shortened(one_line(text), MOST_TEXT)


def shortened(text: str, most: int) -> str:
    """The text with at most so many characters: its middle is left out, since what to do next stands at the end."""
    if len(text) <= most:
        return text
    end = most * 2 // 5
    return f"{text[: most - end - 1]}…{text[-end:]}"


def describe(error: BaseException) -> str:
    """Type and message of an error in one line."""
    return short_line(_in_words(error))


def describe_in_full(error: BaseException) -> str:
    """Type and message of an error; one of ours has its lines and its end, any other is one short line."""
    if not isinstance(error, SquallError):
        return describe(error)
    lines = [line for each in _in_words(error).splitlines() if (line := _printable(each.rstrip()))]
    if len(lines) > MOST_MESSAGE_LINES:
        head = MOST_MESSAGE_LINES // 2
        tail = MOST_MESSAGE_LINES - head - 1
        lines[head:-tail] = [f"... {len(lines) - head - tail} more lines ..."]
    return shortened("\n".join(lines), MOST_MESSAGE)


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        message = str(error).strip()
    except BaseException as broken:  # the error's class is the user's, and so is its __str__
        message = f"(its str() raises {type(broken).__name__})"
    return f"{name}: {message}" if message else name


def failure_line(failure: Failure) -> str:
    """A failure in one line: `failed in count[4] after 3 attempts: ValueError: ...`."""
    where = f" in {failure.component}[{failure.task}]" if failure.component else ""
    attempts = "1 attempt" if failure.attempts == 1 else f"{failure.attempts} attempts"
    return f"{failure.reason}{where} after {attempts}" + (f": {failure.error}" if failure.error else "")


def user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames of a traceback that are the user's, or a library's that they called, outermost first. Those of the import
    system are left out, as Python does, and those that our own code called: `contextlib` below a sink of ours, say."""
    steps = []
    caller = ""
    for step in traceback.walk_tb(trace):
        file = step[0].f_code.co_filename
        if file.startswith("<frozen importlib"):
            continue
        if is_ours(file):
            ours = file not in COMPILED_FILES and os.path.abspath(file).startswith(OUR_COMPONENTS)
            caller = "our component" if ours or caller == "our component" else "us"
        elif is_own(file) or (not is_of_python(file) and caller in ("", "us")):
            caller = "user"
        if caller == "user":
            steps.append(step)
    return list(traceback.StackSummary.extract(iter(steps), lookup_lines=False))


def is_of_python(file: str) -> bool:
    """Whether this is a file of Python's own library."""
    return file.startswith(LIBRARIES) and not is_installed(file)


def is_installed(file: str) -> bool:
    return any(name in file for name in INSTALLED)


def is_own(file: str) -> bool:
    """Whether a file that is none of ours is one that the user wrote."""
    return not (is_installed(file) or file.startswith(("<", *LIBRARIES)))


@lru_cache(maxsize=1000)
def is_ours(file: str) -> bool:
    """Whether this is a file of ours. Asked for each frame, of which an endless recursion has a thousand."""
    try:
        return file in COMPILED_FILES or os.path.abspath(file).startswith(OURS)
    except OSError:  # a relative name, and the working directory is gone
        return False


def place_of(error: BaseException) -> str:
    """The innermost frame in the user's code as "file:line, in function", or "": neither Python's library nor we are it."""
    frames = [frame for frame in user_frames(error.__traceback__) if not is_of_python(frame.filename)]
    own = [frame for frame in frames if is_own(frame.filename)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def failure_text(error: BaseException) -> str | None:
    """The `Failure.error` of a tuple whose execution raised: the reason of a FailTuple, else type, message, and the user's
    own line."""
    if isinstance(error, FailTuple):
        try:
            return None if error.reason is None else str(error.reason)
        except BaseException as broken:
            return f"(the str() of its reason raises {type(broken).__name__})"
    return with_place(error)


def with_place(error: BaseException) -> str:
    """Type, message, and the user's own line."""
    place = place_of(error)
    return f"{describe(error)} ({place})" if place else describe(error)


def cause_lines(error: BaseException) -> list[str]:
    """A line for each error that led to this one, the nearest first; of many the nearest and the last, where it began."""
    lines = [f"{how} {with_place(cause)}" for how, cause in causes_of(error, caught_by_us)]
    if len(lines) > MOST_CAUSES:
        left_out = len(lines) - (MOST_CAUSES - 1)
        lines[MOST_CAUSES - 2 : -1] = [f"... {left_out} more ..."]
    return lines


def origin_lines(error: BaseException) -> list[str]:
    """Where an error comes from: the innermost frames of the user's code, each with its line below, then what led to it."""
    causes = cause_lines(error)
    most = min(MOST_FRAMES, (MOST_LINES - len(causes)) // 2)
    lines = []
    for frame in user_frames(error.__traceback__)[-most:]:
        lines.append(f'File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"  {frame.line}")
    return lines + causes


def caught_by_us(error: BaseException) -> bool:
    """Whether it was our own code that caught an error: what it raised then says all in its own words."""
    trace = error.__traceback__
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
    """The report of an error that a user's method `call` raised."""
    if tuple_text is not None:
        tuple_text = one_line(tuple_text)
    hint = hint_for(call, error)
    lines = [*([] if hint is None else [hint]), *origin_lines(error)]
    return ErrorReport(
        topology,
        component,
        task,
        call,
        describe_in_full(error),
        place_of(error),
        tuple(lines),
        tuple_text,
        now,
    )


class ErrorLog:
    """The errors of one component: how many there were, and the latest few."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0
        self.kept: deque[ErrorReport] = deque(maxlen=KEPT)

    def add(self, report: ErrorReport) -> None:
        """Count a report; one like another that is kept takes its place, as the newest."""
        self.count += 1
        known = gist(report)
        before = next((each for each in reversed(self.kept) if gist(each) == known), None)
        if before is None:
            self.kept.append(report)
            return
        others = (
            each for each in self.kept if each is not before
        )  # in one step: another thread reads what is kept
        self.kept = deque((*others, replace(report, times=before.times + 1)), maxlen=KEPT)
