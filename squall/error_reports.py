"""Error reports as values: what is known of an error of the user's code, its text for people, its way through JSON.

A worker makes them (`worker/reports.py`), the counters carry them, a status shows them. At most 15 lines, with the user's
own file and line among them.
Must not know: how a report is made of an exception, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

_FRAME: Final = re.compile(r'File "(.*)", line (\d+), in (.*)')
#: Reports kept of each component, the latest.
KEPT: Final = 20


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
    #: How often this error was seen in a row (the same call, text and place).
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
