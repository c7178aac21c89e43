"""Who calls the store of a topology's state: a thread, or, in simulated time, the loop itself.

Calls are made in order, one after the other. One that fails because the store is away or full is made again, with growing
pauses, until it succeeds: an epoch waits for its store. Only the put of a record is not repeated here: whether it was stored
decides what comes next (`worker.epochs.log`).
Must not know: tasks, epochs that run, what is stored.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from squall.stores.files import FilesFull, FilesUnavailable
from topology_api import SquallError

_log = logging.getLogger(__name__)

#: Seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0

#: What a call came to: its result, or the error that ends the topology.
Answer = tuple[Callable[[Any], None], Any, SquallError | ValueError | None]


@dataclass(slots=True)
class StoreCall:
    """A call that is to be made."""

    job: Callable[[], Any]
    done: Callable[[Any], None]
    #: The result if the store is away, after a pause; None: the call is made again.
    unknown: Any = None
    #: Whether the store was away.
    failed: bool = False


class StoreCalls(Protocol):
    """Who calls the store. Its answers are handled by the loop's next step."""

    answers: deque[Answer]
    #: Why the store does not take what has to be written, and since when it does not; "": it does.
    waits_for: str
    waits_since: float
    #: Since when a call has been running; None: none is.
    call_since: float | None

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """Call a function of `EpochFiles`; `done` gets its result, in the loop.

        `unknown`: what `done` gets, after a pause, if the store is away; None: the call is made again.
        """

    def step(self, now: float) -> None:
        """Make the calls that are due, if the loop makes them."""

    def next_time(self) -> float | None:
        """Return when `step` has something to do."""

    def stop(self) -> None:
        """Make no further call."""


class Attempts:
    """Makes calls, and counts for how long the store has been away."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.waits_for, self.waits_since = "", 0.0
        self.call_since: float | None = None
        self.pause = FIRST_PAUSE

    def attempt(self, call: StoreCall) -> Answer | None:
        """Make a call once, or give up one whose answer is lost; return None if it has to wait for `next_pause` first."""
        if call.failed and call.unknown is not None:
            return call.done, call.unknown, None
        self.call_since = self.now()
        try:
            answer: Answer = call.done, call.job(), None
        except (FilesUnavailable, FilesFull) as error:
            self.call_since = None
            if not self.waits_for:
                self.waits_since = self.now()
                _log.warning("the topology waits for the store of its state: %s", error)
            self.waits_for, call.failed = str(error), True
            return None
        except (SquallError, ValueError) as error:
            answer = call.done, None, error
        if self.waits_for and answer[2] is None:
            _log.info("the store of the topology's state is there again")
        self.call_since, self.waits_for, self.pause = None, "", FIRST_PAUSE
        return answer

    def next_pause(self) -> float:
        """Return how long to wait after the failure of a call."""
        pause, self.pause = self.pause, min(2 * self.pause, LONGEST_PAUSE)
        return pause


class InlineCalls(Attempts):
    """Calls the store in the loop, for simulated time."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.answers: deque[Answer] = deque()
        self.calls: deque[StoreCall] = deque()
        #: When the first call may be made.
        self.due = 0.0

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """See `StoreCalls`."""
        self.calls.append(StoreCall(job, done, unknown))
        self.step(self.now())

    def step(self, now: float) -> None:
        """See `StoreCalls`."""
        while self.calls and now >= self.due:
            answer = self.attempt(self.calls[0])
            if answer is None:
                self.due = now + self.next_pause()
            else:
                self.calls.popleft()
                self.answers.append(answer)

    def next_time(self) -> float | None:
        """See `StoreCalls`."""
        return self.due if self.calls else None

    def stop(self) -> None:
        """See `StoreCalls`."""
        self.calls.clear()


class ThreadCalls(Attempts):
    """Calls the store in a thread of its own."""

    def __init__(
        self,
        name: str,
        wake: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`at_end`: called in the thread after its last call."""
        super().__init__(now)
        self.at_end = at_end
        self.answers: deque[Answer] = deque()
        self.wake = wake
        self._calls: queue.SimpleQueue[StoreCall | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-state", daemon=True)
        self._thread.start()

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None:
        """See `StoreCalls`."""
        self._calls.put(StoreCall(job, done, unknown))

    def step(self, now: float) -> None:
        """The thread makes the calls."""

    def next_time(self) -> float | None:
        """The thread wakes the loop."""
        return None

    def stop(self) -> None:
        """See `StoreCalls`."""
        self._stopped.set()
        self._calls.put(None)

    def _run(self) -> None:
        while not self._stopped.is_set() and (call := self._calls.get()) is not None:
            while not self._stopped.is_set():
                if (answer := self.attempt(call)) is not None:
                    self.answers.append(answer)
                    break
                self._stopped.wait(self.next_pause())
            self.wake()
        self.at_end()
