"""Stand-ins for the parts of a worker process in tests of one of them: its clock, its tasks, its calls.

Must not know: single tests.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from worker.errors.reports import OURS
from worker.process.call_watch import CallWatch
from worker.process.lease import Lease


class Over(Exception):
    """The end of the process, in these tests."""


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def lease_of(folder: Path, clock: Clock, seconds: float = 10.0) -> Lease:
    def over(away: float) -> None:
        raise Over(away)

    return Lease(str(folder), seconds, over, clock.now)


class Stack:
    """A frame of user code below one of Squall's; each `call` is another frame."""

    def __init__(self) -> None:
        namespace: dict[str, Any] = {}
        exec(compile("def serve(call):\n    return call()\n", f"{OURS[0]}stand_in.py", "exec"), namespace)
        self.serve: Callable[[Callable[[], FrameType]], FrameType] = namespace["serve"]

    def call(self) -> FrameType:
        def execute() -> FrameType:
            return sys._getframe()

        return self.serve(execute)


def a_task(number: int, hang_secs: float = 60.0, kind: str = "bolt", **more: Any) -> Any:
    values = {
        "id": number,
        "spec": SimpleNamespace(id="count", kind=kind),
        "threaded": False,
        "jobs": 0,
        "busy_since": 0.0,
        "hang_secs": hang_secs,
        "opened": True,
        "closed": False,
        "emitter": SimpleNamespace(owner=threading.get_ident()),
    }
    return SimpleNamespace(**{**values, **more})


def a_worker(*tasks: Any) -> Any:
    return SimpleNamespace(
        tasks={task.id: task for task in tasks},
        running=None,
        inline=False,
        async_bolts=[],
        timers=SimpleNamespace(report_every=float("inf")),
        plan=SimpleNamespace(
            tasks_by_logger={"squall.words.count.0": "count[4]"}, topology=SimpleNamespace(name="words")
        ),
    )


def watch(worker: Any, frame: Callable[[], FrameType | None]) -> CallWatch:
    return CallWatch(worker, lambda: {threading.get_ident(): found} if (found := frame()) else {})
