"""Error reports: the details of an error in user code, as values, as text, and as JSON.

A worker makes reports (`worker/errors/reports.py`), the counters carry them, a status shows them. A report has at most 15
lines, among them the user's own file and line; if the message is Squall's and has several lines, these lines are not counted.
Must not know: how a report is made from an exception, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import msgspec

from squall.exact_structs import build_type_info

#: How many of the latest reports are kept for each component.
KEPT: Final = 20
#: In place of a call: the state of the topology, which is no matter of a component, but of what is at `topology.state.path`.
STATE: Final = "state"
#: The calls that open a task, and what comes before them.
STARTING: Final = ("open", "prepare", "start", STATE)
#: Numbers in an exception's message that do not say what is wrong, and differ between two attempts to start a task: durations,
#: attempts, processes. Any other number may be part of an address, a version or a name.
_NUMBER: Final = re.compile(
    r"(?<![\w.:/-])\d+(?:\.\d+)?(?= ?(?:ms|s|min|h|seconds?|minutes?|hours?|times?|attempts?|tries)\b(?![/:.-]\w))"
    r"|(?<=\bpid )\d+|(?<=\battempt )\d+"
)


@dataclass(frozen=True)
class ErrorReport:
    """One error in user code. `place` is the user's own "file:line, in function", or ""; `text` has the type and the message. A
    message of Squall's may have several lines.

    `frames` are the lines below `text`: a hint, if there is one; the frames of the user's code in Python's order; and a line
    for each error that led to this error ("caused by ..."). `call` is "" if no call raised, but a tuple was dropped because its
    replays are used up, and `STATE` if the worker cannot go on from the topology's state.
    """

    topology: str
    component: str
    task: int
    call: str
    text: str
    place: str
    frames: tuple[str, ...]
    tuple_text: str | None
    time: int | float
    #: How many times this error (the same `gist`) has occurred; the other fields describe the last occurrence.
    times: int = 1

    def render(self) -> str:
        """Return the report as text: at most 15 lines, not counting the lines of a long message."""
        lines = [self._head(), *(f"    {line}" for line in self.text.splitlines()[1:])]
        if self.tuple_text is not None:
            lines.append(f"  with {self.tuple_text}")
        if self.times > 1:
            lines.append(f"  ({self.times} times)")
        return "\n".join([*lines, *(f"  {line}" for line in self.frames)])

    def in_brief(self) -> str:
        """Return a reminder of a report that was shown in full: its place, and the first and last line of its message."""
        lines, rest = [self._head()], self.text.splitlines()[1:]
        if len(rest) > 1:
            lines.append("    ... (in full above)")
        lines += [f"    {line}" for line in rest[-1:]]
        return "\n".join([*lines, *([f"  at {self.place}"] if self.place else [])])

    def _head(self) -> str:
        return f"{self.component}[{self.task}] of topology {self.topology!r}: {raised(self.call, self.text)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ErrorReport:
        """Return the report from the values that `as_dict` returned. The values come from another process: raise ValueError for
        anything else."""
        try:
            if unknown := values.keys() - {field.name for field in fields(cls)}:
                raise ValueError(f"unknown fields {sorted(unknown)}")
            return msgspec.convert({**values}, cls)
        except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise ValueError(f"this is not an error report: {error} in {str(values)[:200]}") from error


def raised(call: str, text: str) -> str:
    """Return a report's message on one line: `prepare() raised OSError: no such file`."""
    first = next(iter(text.splitlines()), "")
    if call == STATE:
        return f"cannot go on from the topology's state: {first}"
    return f"{call}() raised {first}" if call else first


def gist(report: ErrorReport) -> tuple[str, ...]:
    """Return a key that is the same for repeated reports of one error of a task."""
    text = _NUMBER.sub("#", report.text) if report.call in STARTING else report.text
    return report.component, str(report.task), report.call, report.place, text


def folded(reports: Iterable[ErrorReport]) -> list[ErrorReport]:
    """Return the reports, oldest first. Repeated reports are merged into the last of them, with the number of occurrences.

    Each process of a worker folds its own reports. A worker that cannot open its tasks is started again and again, so the
    reports of its processes are folded together here.
    """
    newest: dict[tuple[str, ...], ErrorReport] = {}
    for report in sorted(reports, key=lambda report: report.time):
        key = gist(report)
        before = newest.pop(key, None)
        newest[key] = report if before is None else replace(report, times=before.times + report.times)
    return list(newest.values())


build_type_info(ErrorReport)
