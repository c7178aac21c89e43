"""The user's own metrics of a task: counters, gauges and histograms by name.

Must not know: where metrics are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.cluster.counters import plain
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

    def read_totals(self) -> dict[str, Any]:
        """Counters, and copies of histograms, by name; asked from any thread."""
        values: dict[str, Any] = {name: plain(counter.value) for name, counter in list(self.counters.items())}
        for name, live in list(self.histograms.items()):
            histogram = Histogram()
            histogram.merge(live)
            values[name] = histogram
        return values

    def read_gauges(self) -> dict[str, Any]:
        """Gauges by name, of one that raises its error; asked from any thread."""
        values: dict[str, Any] = {}
        for name, function in list(self.gauges.items()):
            try:
                values[name] = plain(function())
            except Exception as error:
                values[name] = describe(error)
        return values
