"""`squall/error_reports.py` as commit 6407a8e had it, word for word but for this text and its imports.

It is run beside the current code, which must read and refuse the same (`test_old_and_current_readers.py`). It goes when the
refactoring is done: then the tables in `data/` say it alone. Must not know: the product.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

_FRAME: Final = re.compile(r'File "(.*)", line (\d+), in (.*)')
#: Reports kept of each component, the latest.
KEPT: Final = 20
#: The calls that open a task.
STARTING: Final = ("open", "prepare", "start")
#: Numbers that differ from one attempt to start a task to the next and say nothing of what is wrong: durations, attempts,
#: processes. Any other may be part of an address, a version or a name.
_NUMBER: Final = re.compile(
    r"(?<![\w.:/-])\d+(?:\.\d+)?(?= ?(?:ms|s|min|h|seconds?|minutes?|hours?|times?|attempts?|tries)\b(?![/:.-]\w))"
    r"|(?<=\bpid )\d+|(?<=\battempt )\d+"
)


@dataclass(frozen=True)
class ErrorReport:
    """One error in user code. `place` is the user's own file:line and function, or ""; `text` has the type and message,
    which may have several lines where it is one of ours.

    `frames` are the lines below it: a hint, where there is one, the frames of the user's code in Python's order, then a line
    for each error that led to this one ("caused by ...").
    `call` is "" for what no call raised: a tuple that was dropped because its replays are spent.
    """

    topology: str
    component: str
    task: int
    call: str
    text: str
    place: str
    frames: tuple[str, ...]
    tuple_text: str | None
    time: float
    #: How often this error was seen (the same `gist`) since it is kept; time and values are those of the last time.
    times: int = 1

    def render(self) -> str:
        """The report as a person reads it: at most 15 lines, besides those of a long message. `place` has a line of its own
        where no frame is it: it is further out than they are, so it stands above them."""
        first, *rest = self.text.splitlines() or [""]
        lines = [self._head(first), *(f"    {line}" for line in rest)]
        if self.tuple_text is not None:
            lines.append(f"  with {self.tuple_text}")
        if self.times > 1:
            lines.append(f"  ({self.times} times)")
        return "\n".join([*lines, *(f"  {line}" for line in self._frames_with_place())])

    def in_brief(self) -> str:
        """What stands above in full, said again: the first and the last line of its message, and its place."""
        first, *rest = self.text.splitlines() or [""]
        lines = [self._head(first)]
        if len(rest) > 1:
            lines.append("    ... (in full above)")
        lines += [f"    {line}" for line in rest[-1:]]
        places = [line for line in self._frames_with_place() if self._names_place(line)]
        return "\n".join([*lines, *(f"  {line}" for line in places[-1:])])

    def _head(self, text: str) -> str:
        what = f"{self.call}() raised {text}" if self.call else text
        return f"{self.component}[{self.task}] of topology {self.topology!r}: {what}"

    def _frames_with_place(self) -> list[str]:
        """The frames, with the place above them where none of them is it."""
        lines = list(self.frames)
        if self.place and not any(map(self._names_place, lines)):
            frames = (at for at, line in enumerate(lines) if _FRAME.fullmatch(line))
            lines.insert(min(frames, default=len(lines)), f"at {self.place}")
        return lines

    def _names_place(self, line: str) -> bool:
        found = _FRAME.fullmatch(line)
        return self.place == "{}:{}, in {}".format(*found.groups()) if found else line == f"at {self.place}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ErrorReport:
        """The report that `as_dict` described; ValueError for anything else (it comes from another process)."""
        try:
            report = cls(**{**values, "frames": tuple(values["frames"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no error report: {error!r} in {str(values)[:200]}") from error
        for field in fields(cls):
            value = getattr(report, field.name)
            if not isinstance(value, _TYPES[field.name]) or isinstance(value, bool):
                raise ValueError(f"this is no error report: its {field.name} is {value!r:.80}")
        if not all(isinstance(frame, str) for frame in report.frames):
            raise ValueError(f"this is no error report: its frames are {report.frames!r:.80}")
        return report


def gist(report: ErrorReport) -> tuple[str, ...]:
    """What the reports of an error that a task has again and again have in common."""
    text = _NUMBER.sub("#", report.text) if report.call in STARTING else report.text
    return report.component, str(report.task), report.call, report.place, text


def folded(reports: Iterable[ErrorReport]) -> list[ErrorReport]:
    """The reports, the oldest first; what a task has several times is the last of them, with how often it was seen.

    Each process of a worker folds its own. One that cannot open its tasks is started again and again, so reports of its
    processes are folded together here.
    """
    found: dict[tuple[str, ...], ErrorReport] = {}
    for report in sorted(reports, key=lambda report: report.time):
        known = gist(report)
        before = found.pop(known, None)
        found[known] = report if before is None else replace(report, times=before.times + report.times)
    return list(found.values())


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "topology": (str,),
    "component": (str,),
    "task": (int,),
    "call": (str,),
    "text": (str,),
    "place": (str,),
    "frames": (tuple,),
    "tuple_text": (str, type(None)),
    "time": (int, float),
    "times": (int,),
}
