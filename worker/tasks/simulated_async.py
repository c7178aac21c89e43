"""An asyncio loop in simulated time: coroutines run in the caller's thread, and `asyncio.sleep` ends at its simulated time.

Must not know: tasks, tuples, threads.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

from worker.tasks.runners import Calls, protect, release

#: The most turns of the loop in one step, so that a busy call does not stop everything else.
MOST_TURNS = 1000


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time is simulated: `asyncio.sleep` ends when the clock reaches the end of the sleep."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.simulated_now = now
        self.times: list[float] = []
        #: Whether a callback was scheduled for the next turn.
        self.more = False
        super().__init__()

    def time(self) -> float:
        """Return the simulated time."""
        return self.simulated_now()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Schedule as the base class does, and record that there is more to run."""
        self.more = True
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Schedule as the base class does, and record the time."""
        heapq.heappush(self.times, when)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Run a blocking function (`asyncio.to_thread`) at once: simulated time has no threads to wait for."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class SimulatedAsync:
    """Drives an asyncio loop in simulated time, in the caller's thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.loop: SimulatedLoop | None = None
        self.stop_loop: Callable[[], None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.fresh = False

    def submit(self, calls: Calls) -> None:
        """Start these calls; they run with the next `step`."""
        if self.loop is None:
            self.loop = SimulatedLoop(self.now)
            self.stop_loop = protect(self.loop)
        for call in calls:
            self.tasks.add(self.loop.create_task(call()))
        self.fresh = True

    def step(self) -> bool:
        """Run all calls that can run at this moment; return whether any made progress."""
        loop, stop = self.loop, self.stop_loop
        if loop is None or stop is None or not (self.fresh or (loop.times and loop.times[0] <= self.now())):
            return False
        self.fresh = False
        while loop.times and loop.times[0] <= self.now():
            heapq.heappop(loop.times)
        for _ in range(MOST_TURNS):  # a call that becomes ready in one turn runs in the next
            loop.call_soon(stop)
            loop.more = False
            loop.run_forever()
            if not loop.more:
                break
        left = {task for task in self.tasks if not task.done()}
        self.fresh = bool(left)  # another thread may have woken a call by the next step
        progressed = loop.more or len(left) < len(self.tasks)
        self.tasks = left
        return progressed

    def next_time(self) -> float | None:
        """Return the time at which the next sleeping call wakes."""
        return self.loop.times[0] if self.loop is not None and self.loop.times else None

    def stop(self) -> None:
        """Cancel the calls that are left."""
        loop = self.loop
        if loop is None:
            return
        release(loop)
        for task in self.tasks:
            task.cancel()
        if self.tasks:  # gather() without tasks would take a different loop
            loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))
        loop.close()
        self.loop = None
