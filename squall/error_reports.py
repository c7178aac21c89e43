"""Error reports as values: what is known of an error of the user's code, its text for people, its way through JSON.

A worker makes them (`worker/reports.py`), the counters carry them, a status shows them. At most 15 lines, with the user's
own file and line among them.
Must not know: how a report is made of an exception, terminals.
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
#: What differs from one attempt to start a task to the next: times, numbers of attempts and processes.
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class ErrorReport:
    """One error in user code. `place` is the user's own file:line and function, or ""; `text` has the type and message.

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
    #: How often this error was seen in a row (the same `gist`); time and values are those of the last time.
    times: int = 1

    def render(self) -> str:
        """The report as a person reads it: at most 15 lines. `place` has a line of its own where no frame is it: it is
        further out than they are, so it stands above them."""
        what = f"{self.call}() raised {self.text}" if self.call else self.text
        lines = [f"{self.component}[{self.task}] of topology {self.topology!r}: {what}"]
        if self.tuple_text is not None:
            lines.append(f"  with {self.tuple_text}")
        if self.times > 1:
            lines.append(f"  ({self.times} times in a row)")
        return "\n".join([*lines, *(f"  {line}" for line in self._frames_with_place())])

    def _frames_with_place(self) -> list[str]:
        """The frames, with the place above them where none of them is it."""
        lines = list(self.frames)
        frames = {at: found for at, line in enumerate(lines) if (found := _FRAME.fullmatch(line))}
        if self.place and self.place not in (
            "{}:{}, in {}".format(*found.groups()) for found in frames.values()
        ):
            lines.insert(min(frames, default=len(lines)), f"at {self.place}")
        return lines

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
    """The reports, the oldest first; what a task has several times in a row is the last of them, with how often it was seen.

    Each process of a worker folds its own. One that cannot open its tasks is started again and again, so reports of its
    processes are folded together here.
    """
    found: dict[int, ErrorReport] = {}
    latest: dict[tuple[str, int], int] = {}
    for number, report in enumerate(sorted(reports, key=lambda report: report.time)):
        task = report.component, report.task
        before = latest.get(task)
        if before is not None and gist(found[before]) == gist(report):
            report = replace(report, times=found.pop(before).times + report.times)
        found[number] = report
        latest[task] = number
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
