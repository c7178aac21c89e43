"""Context: what a task knows of the place where it runs; `open(context)` and `prepare(context)` get it.

It must not know the runtime: everything comes in through the constructor as values and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logging import Logger
    from pathlib import Path
    from random import Random

__all__ = ["Context", "Counter", "Histogram", "Metrics"]


class Counter(Protocol):
    """A number that only grows."""

    def add(self, count: int = 1) -> None:
        """Adds to the counter."""
        ...


class Histogram(Protocol):
    """A distribution of measured values."""

    def add(self, value: float, count: int = 1) -> None:
        """Adds a value (durations in seconds), or several equal ones."""
        ...


class Metrics(Protocol):
    """What the runtime gives a Context for the user's own metrics."""

    def counter(self, name: str) -> Counter:
        """The counter of this name, made on first use."""
        ...

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Asks the function for the value each time metrics are reported."""
        ...

    def histogram(self, name: str) -> Histogram:
        """The histogram of this name, made on first use."""
        ...


class Context:
    """What a task knows of the place where it runs.

    topology: name of the topology. topology_id: of this submission of it, which no other ever has.
    component: id of the component.
    task: id of this task (an int, unique in the topology).
    index: number of this task within its component, from 0 to parallelism - 1.
    parallelism: number of the component's tasks.
    incarnation: of the worker that the task runs in, two ints: of two workers that have had one task, the newer has the
        greater. What writes to the outside can tell an owner from the one before by it.
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
        """The ids of a component's tasks, ascending (the list is yours)."""
        return list(self._tasks(component))

    def counter(self, name: str) -> Counter:
        """A counter of this task, shown with the component's metrics: `context.counter("retries").add()`."""
        return self._metrics.counter(name)

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Shows what the function returns whenever metrics are reported; it must be quick."""
        self._metrics.gauge(name, function)

    def histogram(self, name: str) -> Histogram:
        """A histogram of this task: `context.histogram("lookup").add(seconds)`."""
        return self._metrics.histogram(name)

    @property
    def directory(self) -> Path:
        """Scratch space of this task: a directory, made on first use, gone when the worker is."""
        from pathlib import Path

        return Path(self._directory())

    def now(self) -> float:
        """The time in seconds, simulated where time is: use it rather than `time.time()`."""
        return self._now()

    def wake(self) -> None:
        """Asks for a call of `next_tuple` now. Thread-safe: for data that comes from a thread."""
        self._wake()

    def progress(self, why: str | None = None) -> None:
        """Says, from inside a long call, that it goes on: `topology.bolt.hang.secs` begin anew, and the tuples that the call
        has are kept from timing out. `why`: what it waits for; a bolt's is shown by `status` and the tables (WHY IDLE) until
        it says something else ("": nothing) or is over. For calls that wait for something outside and know it; not for
        `async def execute`."""
        self._progress(why)

    @property
    def stopped(self) -> bool:
        """Whether the worker ends, and a call of a threaded bolt still runs: its tuples have failed as stopped, and are emitted
        again. For calls that wait for something outside: they return then, and bring nothing about any more."""
        return self._stopped()

    def __repr__(self) -> str:
        return f"<Context {self.topology}/{self.component} task {self.task} (index {self.index})>"
