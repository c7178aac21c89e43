"""The user's own metrics of a task: counters, gauges and histograms by name.

Must not know: where metrics are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.cluster.counters import plain
from squall.reports.histogram import LatencyHistogram
from worker.errors.reports import describe


class TaskCounter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Add to the counter."""
        self.value += count


class TaskMetrics:
    """The metrics behind `Context.counter`, `gauge` and `histogram`."""

    def __init__(self) -> None:
        self.counters: dict[str, TaskCounter] = {}
        self.gauges: dict[str, Callable[[], float]] = {}
        self.histograms: dict[str, LatencyHistogram] = {}

    def counter(self, name: str) -> TaskCounter:
        """Return the counter with this name; create it on first use."""
        return self.counters.setdefault(name, TaskCounter())

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Register a function that is called whenever metrics are read."""
        self.gauges[name] = function

    def histogram(self, name: str) -> LatencyHistogram:
        """Return the histogram with this name; create it on first use."""
        return self.histograms.setdefault(name, LatencyHistogram())

    def read_totals(self) -> dict[str, Any]:
        """Return counters, and copies of histograms, by name. Any thread may call this."""
        values: dict[str, Any] = {name: plain(counter.value) for name, counter in dict(self.counters).items()}
        for name, live in dict(self.histograms).items():
            histogram = LatencyHistogram()
            histogram.merge(live)
            values[name] = histogram
        return values

    def read_gauges(self) -> dict[str, Any]:
        """Return the values of gauges by name; for a gauge whose function raises, the error's text. Any thread may call
        this."""
        values: dict[str, Any] = {}
        for name, function in dict(self.gauges).items():
            try:
                values[name] = plain(function())
            except Exception as error:
                values[name] = describe(error)
        return values
