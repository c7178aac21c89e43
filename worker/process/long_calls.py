"""The calls that have not returned for five seconds: the method, the line of user's code, the tuple, and an error report.

No report is made of `next_tuple` in a thread of its own: such a spout may wait there for its source, or loop over it for ever,
and nothing in the process can tell this from a hanging call. It is shown in the status only.
The heartbeat's thread calls this, so it works while the loop is inside the call.
Must not know: what ends a hanging call.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import CoroutineType, FrameType
from typing import Any, Final

import msgspec

from squall.cluster.counters import WorkerCounters
from squall.reports.error_reports import KEPT, ErrorReport
from topology_api.tuples import BOUNDED, Tuple
from topology_api.wording import class_name
from worker.errors.reports import is_ours, is_own, short_line
from worker.process.call_watch import YOUNG_SECONDS, UserCall, user_frame
from worker.tasks.async_bolt import AsyncCall

#: Seconds after which a call is reported.
LONG_CALL: Final = 5.0
#: Seconds after which place and tuple are sent, so that they are known when the call is long.
SEEN: Final = 2.0
#: The methods of components that Squall calls. A frame below them may have another name, such as that of a decorator.
METHODS: Final = frozenset(
    (
        "open", "next_tuple", "ack", "fail", "activate", "deactivate", "position", "rewind", "prepare", "execute",
        "execute_batch", "execute_window", "tick", "on_timer", "end_of_input", "write_batch", "write", "read_token", "stage",
        "commit", "abort",
    )
)  # fmt: skip
#: The text of a report on a call whose method is unknown.
UNNAMED: Final = f"a call has not returned for {LONG_CALL:.0f} s"
#: Methods of the runtime have the same names, so its frames are passed over.
RUNTIME: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_PLAIN: Final = frozenset((str, bytes, int, float, bool, type(None)))


class LongCall(msgspec.Struct, frozen=True):
    """What is known of a long call."""

    component: str
    #: The method that Squall called; "" if it is unknown.
    name: str
    place: str
    #: The tuple, or the first of a batch; "" if the call has none.
    shown: str
    #: Whether the call may take any time, so that it is not reported.
    waits: bool = False


class LongCalls:
    """The long calls of one worker, and the reports on them."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        #: By task and start on the worker's clock.
        self.known: dict[tuple[int, float], LongCall] = {}
        #: Calls that are long, and those of them that have been reported.
        self.long: set[tuple[int, float]] = set()
        self.reported: set[tuple[int, float]] = set()
        self.reports: deque[ErrorReport] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()

    def check(self, running: Iterable[UserCall], frames: Callable[[], Mapping[int, FrameType]]) -> None:
        """Find the place and the tuple of each call before it becomes long; forget calls that have returned."""
        before, self.known = self.known, {}
        self.long.clear()
        for call in running:
            # The watch times a call only after its first second.
            seconds = YOUNG_SECONDS + call.seconds
            if call.mark is None or seconds < SEEN or call.task.closed:
                continue
            key = call.task.id, call.since
            known = before.get(key) if key in self.reported or seconds >= 2 * LONG_CALL else None
            self.known[key] = known or long_call_of(call, frames())
            if seconds >= LONG_CALL:
                self.long.add(key)
        self.reported &= self.known.keys()

    def add_to(self, counters: WorkerCounters) -> WorkerCounters:
        """Return the counters with method, place and tuple of each long call, and the reports. Times are wall-clock time."""
        for key, call in self.known.items():
            loads = counters.components[call.component].loads
            load = loads.get(key[0])
            if load is None or load.call_since is None:
                continue
            loads[key[0]] = replace(load, call_name=call.name, call_place=call.place, call_tuple=call.shown)
            if key in self.long and key not in self.reported and not call.waits:
                self.reported.add(key)
                self.counts[call.component] += 1
                self.reports.append(self._report(key[0], call, load.call_since + LONG_CALL))
        for component, count in self.counts.items():
            counters.components[component].errors += count
        return (
            msgspec.structs.replace(counters, reports=(*counters.reports, *self.reports))
            if self.reports
            else counters
        )

    def _report(self, task: int, call: LongCall, time: float) -> ErrorReport:
        frames = (f"at {call.place}",) if call.place else ()
        text = f"{call.name}() has not returned for {LONG_CALL:.0f} s" if call.name else UNNAMED
        # `call` of a report says which call raised; none has.
        return ErrorReport(
            self.topology, call.component, task, "", text, call.place, frames, call.shown or None, time
        )


def long_call_of(call: UserCall, frames: Mapping[int, FrameType]) -> LongCall:
    """Return what the stacks of the threads show of a call."""
    name, task = name_of_call(call, frames), call.task
    spout = task.spec.kind == "spout"
    waits = spout and task.opened and task.threaded and name not in METHODS - {"next_tuple"}
    return LongCall(task.spec.id, name, place_of_call(call, frames), tuple_of_call(call, frames), waits)


def name_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> str:
    """Return the method of the component that Squall called; "" if it is unknown."""
    frame = called_frame(call, frames)
    if frame is not None:
        return frame.f_code.co_name
    if call.task.opened:
        return ""
    return "open" if call.task.spec.kind == "spout" else "prepare"


def called_frame(call: UserCall, frames: Mapping[int, FrameType]) -> FrameType | None:
    """Return the frame of the method that Squall called, else the outermost frame of user code; None if there is neither."""
    stack = list(stack_of(call, frames))
    for frame in reversed(stack):
        code = frame.f_code
        if code.co_name in METHODS and not code.co_filename.startswith(RUNTIME):
            return frame
    return user_frame(stack[0]) if stack else None


def place_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> str:
    """Return the line of the user's own code where a call is: `file:line, in function`; without such a line that of the method
    that Squall called; "" if it is unknown."""
    called = called_frame(call, frames)
    for frame in stack_of(call, frames):
        file = frame.f_code.co_filename
        if frame is called or (is_own(file) and not is_ours(file)):
            return f"{file}:{frame.f_lineno}, in {frame.f_code.co_name}"
    return ""


def stack_of(call: UserCall, frames: Mapping[int, FrameType]) -> Iterator[FrameType]:
    """Yield the frames of a call, the innermost first."""
    if isinstance(call.mark, AsyncCall):
        found = []
        waits: Any = call.mark.coroutine
        while isinstance(waits, CoroutineType) and waits.cr_frame is not None:
            found.append(waits.cr_frame)
            waits = waits.cr_await
        yield from reversed(found)
        return
    innermost = frames.get(call.thread)
    if innermost is not None:
        yield from (frame for frame, _ in traceback.walk_stack(innermost))


def tuple_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> str:
    """Return the text of the tuple, or of the first tuple of a batch; "" if the call has none."""
    tups = tuples_of_call(call, frames)
    if len(tups) > 1:
        return f"a batch of {len(tups)} tuples, the first {shown_tuple(tups[0])}"
    return shown_tuple(tups[0]) if tups else ""


def tuples_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> list[Tuple]:
    """Return the tuples of a call."""
    if isinstance(call.mark, AsyncCall):
        return [call.mark.tup]
    frame = called_frame(call, frames)
    if frame is None or call.task.spec.kind != "bolt":
        return []
    values = frame.f_locals
    for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
        value = values.get(name)
        if type(value) is Tuple:
            return [value]
        if type(value) is list and value and type(value[0]) is Tuple:
            return value
    return []


def shown_tuple(tup: Tuple) -> str:
    """Return a tuple as its `repr` does, but a value of any other than Python's plain types only by its class: the call that
    does not return may hold a lock that the value's own `repr` waits for, and this thread must go on."""
    pairs = (f"{name}={_shown(value)}" for name, value in zip(tup.fields, tup.values))
    return short_line(f"<Tuple {tup.component}[{tup.task}] {tup.stream}: {', '.join(pairs)}>")


def _shown(value: object) -> str:
    return BOUNDED.repr(value) if type(value) in _PLAIN else f"<{class_name(value)}>"
