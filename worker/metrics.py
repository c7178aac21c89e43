"""The user's own metrics of a task: counters, gauges and histograms by name; and the totals of a component.

Must not know: where metrics are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from squall.telemetry import Histogram
from worker.reports import describe


class TaskCounter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Add to the counter."""
        self.value += count


class TaskMetrics:
    """What `Context.counter`, `gauge` and `histogram` give."""

    def __init__(self) -> None:
        self.counters: dict[str, TaskCounter] = {}
        self.gauges: dict[str, Callable[[], float]] = {}
        self.histograms: dict[str, Histogram] = {}

    def counter(self, name: str) -> TaskCounter:
        """The counter of this name, made on first use."""
        return self.counters.setdefault(name, TaskCounter())

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Ask this function whenever metrics are read."""
        self.gauges[name] = function

    def histogram(self, name: str) -> Histogram:
        """The histogram of this name, made on first use."""
        return self.histograms.setdefault(name, Histogram())

    def read(self) -> dict[str, Any]:
        """All values by name, asked from any thread; of a histogram a copy, of a gauge that raises its error."""
        values: dict[str, Any] = {name: counter.value for name, counter in list(self.counters.items())}
        for name, function in list(self.gauges.items()):
            try:
                values[name] = function()
            except Exception as error:
                values[name] = describe(error)
        for name, live in list(self.histograms.items()):
            histogram = Histogram()
            histogram.merge(live)
            values[name] = histogram
        return values


@dataclass
class Totals:
    """What the tasks of a component did, summed."""

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    replayed: int = 0
    pending: int = 0
    errors: int = 0
    dropped: int = 0
    latency: Histogram = field(default_factory=Histogram)
    #: Why spout tasks do not emit: reason -> number of tasks.
    idle: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    #: Trees that failed for good: reason -> number; when and why the first did.
    failures: dict[str, int] = field(default_factory=dict)
    first_failure: tuple[float, str] | None = None
