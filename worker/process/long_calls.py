"""The calls of bolts that have not returned for five seconds: the line of user's code, the tuple, and an error report for each.

The heartbeat's thread calls this, so it works while the loop is inside the call.
Must not know: what ends a hanging call.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import CoroutineType, FrameType
from typing import Any, Final

from squall.cluster.counters import WorkerCounters
from squall.reports.error_reports import KEPT, ErrorReport
from topology_api.tuples import Tuple
from worker.errors.reports import is_own, short_line
from worker.loop.worker import Worker
from worker.process.call_watch import YOUNG_SECONDS, UserCall, user_frame
from worker.tasks.async_bolt import AsyncCall
from worker.tasks.emitter import short

#: Seconds after which a call of a bolt is reported.
LONG_CALL: Final = 5.0
#: The text of a report.
TEXT: Final = f"a call has not returned for {LONG_CALL:.0f} s"
_MOST_VALUES: Final = 200


class LongCalls:
    """The long calls of one worker, and the reports on them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: (task, start on the worker's clock) -> (place, the tuple's text).
        self.known: dict[tuple[int, float], tuple[str, str]] = {}
        #: Calls that have been reported, of those that still run.
        self.reported: set[tuple[int, float]] = set()
        self.reports: deque[ErrorReport] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()

    def check(self, running: Iterable[UserCall], frames: Mapping[int, FrameType]) -> None:
        """Find the place and the tuple of each call that has become long; forget calls that have returned."""
        # The watch times a call only after its first second.
        long = [
            call for call in running if call.mark is not None and call.seconds >= LONG_CALL - YOUNG_SECONDS
        ]
        self.known = {
            key: self.known.get(key) or (place_of_call(call, frames), tuple_of_call(call, frames))
            for call in long
            if call.task.opened and not call.task.closed
            for key in [(call.task.id, call.since)]
        }
        self.reported &= self.known.keys()

    def add_to(self, counters: WorkerCounters) -> WorkerCounters:
        """Return the counters with the place and the tuple of each long call, and the reports. Times are wall-clock time."""
        for key, (place, shown) in self.known.items():
            for component, counted in counters.components.items():
                load = counted.loads.get(key[0])
                if load is None or load.call_since is None:
                    continue
                counted.loads[key[0]] = replace(load, call_place=place, call_tuple=shown)
                # A bolt's call has a tuple. A spout's may take any time, and so may a call that opens a task.
                if key not in self.reported and shown:
                    self.reported.add(key)
                    self.counts[component] += 1
                    time = load.call_since + LONG_CALL
                    frames = (f"at {place}",) if place else ()
                    report = ErrorReport(
                        self.worker.plan.topology.name,
                        component,
                        key[0],
                        "",
                        TEXT,
                        place,
                        frames,
                        shown,
                        time,
                    )
                    self.reports.append(report)
        for component, count in self.counts.items():
            if component in counters.components:
                counters.components[component].errors += count
        return replace(counters, reports=(*counters.reports, *self.reports)) if self.reports else counters


def place_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> str:
    """Return the line of the user's own code where a call is: `file:line, in function`; "" if it is unknown."""
    stack = list(stack_of(call, frames))
    for frame in stack:
        if is_own(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
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
    innermost = frames.get(call.task.emitter.owner)
    if innermost is not None:
        yield from (frame for frame, _ in traceback.walk_stack(innermost))


def tuple_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> str:
    """Return the text of the tuple, or of the first tuple of a batch; "" if the call has none."""
    if isinstance(call.mark, AsyncCall):
        return short_line(short(call.mark.tup, _MOST_VALUES))
    frame = user_frame(frames.get(call.task.emitter.owner))
    if frame is None or call.task.spec.kind != "bolt":
        return ""
    values = frame.f_locals
    for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
        value = values.get(name)
        if isinstance(value, Tuple):
            return short_line(short(value, _MOST_VALUES))
        if type(value) is list and value and isinstance(value[0], Tuple):
            return short_line(f"a batch of {len(value)} tuples, the first {short(value[0], _MOST_VALUES)}")
    return ""
