"""Context: a task's view of its surroundings; the argument of `open` and `prepare`.

Must not know: the runtime. Everything is passed to the constructor as values and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logging import Logger
    from pathlib import Path
    from random import Random


class Counter(Protocol):
    """A number that only grows."""

    def add(self, count: int = 1) -> None:
        """Add to the counter."""


class Histogram(Protocol):
    """A distribution of measured values."""

    def add(self, value: float, count: int = 1) -> None:
        """Add a value, or `count` equal values. Durations are in seconds."""


class Metrics(Protocol):
    """The runtime's side of the user's own metrics."""

    def counter(self, name: str) -> Counter:
        """Return the counter of this name, created on first use."""

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Register a function that returns the value; it is called each time metrics are reported."""

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of this name, created on first use."""


class Context:
    """A task's view of its surroundings.

    topology: name of the topology. topology_id: id of this submission, which no other submission ever gets.
    component: id of the component.
    task: id of this task (an int, unique in the topology).
    index: number of this task within its component, from 0 to parallelism - 1.
    parallelism: number of the component's tasks.
    incarnation: two ints that identify the task's worker. Of two workers that had the same task, the newer worker has the
    greater incarnation. So code that writes to an external system can fence off the older worker.
    conf: the merged configuration, read-only. log: a logging.Logger of this task.
    resources: a dict that all tasks of this worker share (a connection pool, a model).
    random: a seeded random.Random of this task.
    """

    __slots__ = (
        "_directory",
        "_metrics",
        "_now",
        "_progress",
        "_stopped",
        "_tasks",
        "_wake",
        "component",
        "conf",
        "incarnation",
        "index",
        "log",
        "parallelism",
        "random",
        "resources",
        "task",
        "topology",
        "topology_id",
    )

    def __init__(
        self,
        *,
        topology: str,
        component: str,
        task: int,
        index: int,
        parallelism: int,
        conf: Mapping[str, object],
        tasks: Callable[[str], list[int]],
        log: Logger,
        metrics: Metrics,
        resources: dict[object, object],
        directory: Callable[[], str],
        now: Callable[[], float],
        random: Random,
        wake: Callable[[], None],
        topology_id: str = "",
        incarnation: tuple[int, int] = (0, 0),
        progress: Callable[[str | None], None] = lambda why: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.topology = topology
        self.topology_id = topology_id
        self.incarnation = incarnation
        self.component = component
        self.task = task
        self.index = index
        self.parallelism = parallelism
        self.conf: Mapping[str, object] = MappingProxyType(dict(conf))
        self.log = log
        self.resources = resources
        self.random = random
        self._tasks = tasks
        self._metrics = metrics
        self._directory = directory
        self._now = now
        self._wake = wake
        self._progress = progress
        self._stopped = stopped

    def tasks(self, component: str) -> list[int]:
        """Return the ids of a component's tasks in ascending order, as a new list."""
        return list(self._tasks(component))

    def counter(self, name: str) -> Counter:
        """Return a counter of this task, shown with the component's metrics: `context.counter("retries").add()`."""
        return self._metrics.counter(name)

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Add the function's result to each report of the metrics. The function must be quick."""
        self._metrics.gauge(name, function)

    def histogram(self, name: str) -> Histogram:
        """Return a histogram of this task: `context.histogram("lookup").add(seconds)`."""
        return self._metrics.histogram(name)

    @property
    def directory(self) -> Path:
        """The task's scratch directory, created on first use and removed with the worker."""
        from pathlib import Path

        return Path(self._directory())

    def now(self) -> float:
        """Return the time in seconds, or the simulated time in a test. Use it instead of `time.time()`."""
        return self._now()

    def wake(self) -> None:
        """Request a call of `next_tuple` now. Thread-safe: call it when another thread has received data."""
        self._wake()

    def progress(self, why: str | None = None) -> None:
        """Report, from within a long call, that the call is making progress.

        Restarts `topology.bolt.hang.secs` and the timeouts of the call's tuples. why: what the call waits for. `squall status`
        shows this text, as do tables in the column WHY IDLE, until a new text is reported ("" for none). The text of a bolt
        also ends with the call; that of a spout is shown while the spout emits nothing. Use the method in calls that wait for
        an external system, but not in `async def execute`.
        """
        self._progress(why)

    @property
    def stopped(self) -> bool:
        """Whether the worker has ended while a call of this threaded bolt still runs.

        The call's tuples have already failed, with the reason "stopped", and are emitted again. A call that waits for an
        external system should return without further effects. With `topology.state.path` this is also true when all tasks
        return to the last commit: what the call does is void, except that a sink shows what is committed.
        """
        return self._stopped()

    def __repr__(self) -> str:
        return f"<Context {self.topology}/{self.component} task {self.task} (index {self.index})>"
