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
from topology_api import FailTuple
from worker.causes import causes_of
from worker.hints import hint_for

#: Frames below these folders are ours, or the interpreter's, and are of no use to a user.
OURS: Final = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name) + os.sep
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
#: Frames below these folders are a library's: shown, but never "the user's own line".
LIBRARIES: Final = tuple(
    os.path.join(folder, "") for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
MOST_FRAMES: Final = 4
#: Lines of causes, frames and their code: with the four lines around them and a hint a report has 15.
MOST_LINES: Final = 10
MOST_CAUSES: Final = 5
MOST_TEXT: Final = 300


def one_line(text: str) -> str:
    """The text without line breaks and other control characters: a value's repr may have any (arrays, data frames)."""
    if text.isprintable():
        return text
    joined = " ".join(text.split())
    return "".join(character if character.isprintable() else "?" for character in joined)


def short_line(text: str) -> str:
    """The text in one line that is not too long for a table or a log."""
    line = one_line(text)
    return line if len(line) <= MOST_TEXT else line[: MOST_TEXT - 1] + "…"


def describe(error: BaseException) -> str:
    """Type and message of an error in one line."""
    name = type(error).__name__
    try:
        message = one_line(str(error))
    except BaseException as broken:  # the error's class is the user's, and so is its __str__
        message = f"(its str() raises {type(broken).__name__})"
    return short_line(f"{name}: {message}" if message else name)


def user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames of a traceback that are the user's (or a library's that they called), outermost first. Those of the
    import system are left out, as Python does."""
    files = ((step, step[0].f_code.co_filename) for step in traceback.walk_tb(trace))
    steps = [step for step, file in files if not (is_ours(file) or file.startswith("<frozen importlib"))]
    return list(traceback.StackSummary.extract(iter(steps), lookup_lines=False))


@lru_cache(maxsize=1000)
def is_ours(file: str) -> bool:
    """Whether this is a file of ours. Asked for each frame, of which an endless recursion has a thousand."""
    try:
        return os.path.abspath(file).startswith(OURS)
    except OSError:  # a relative name, and the working directory is gone
        return False


def place_of(error: BaseException) -> str:
    """The innermost frame in the user's code as "file:line, in function", or ""."""
    frames = user_frames(error.__traceback__)
    own = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename and not frame.filename.startswith(("<", *LIBRARIES))
    ]
    if not (own or frames):
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
        topology, component, task, call, describe(error), place_of(error), tuple(lines), tuple_text, now
    )


class ErrorLog:
    """The errors of one component: how many there were, and the latest few."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0
        self.kept: deque[ErrorReport] = deque(maxlen=KEPT)

    def add(self, report: ErrorReport) -> None:
        """Count a report; one like the last is folded into it."""
        self.count += 1
        last = self.kept[-1] if self.kept else None
        if last and gist(last) == gist(report):
            self.kept[-1] = replace(report, times=last.times + 1)
        else:
            self.kept.append(report)
