"""Latency histogram: a few hundred integers for any number of values, percentiles within 2 %.

Buckets are log-linear, as in HdrHistogram: each power of two is divided into 32 buckets of equal width, so that a bucket's
middle is within 1/64 (1.6 %) of every value in it. All histograms have the same buckets, so merging means adding. Like all
counters of workers, a histogram is cumulative: no value expires or decays.
Must not know: the clock, tasks, who shows the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, frexp, inf, ldexp
from typing import Any

__all__ = ["LatencyHistogram"]

BUCKETS_PER_OCTAVE = 32

#: A nanosecond. Smaller values are counted as zero, and so are negative values (a clock was set back).
LEAST = 2.0**-30

#: Greater values are counted as this value. Together with LEAST, this limits a histogram to about 3,000 buckets.
GREATEST = 2.0**63

#: frexp's mantissa is in [0.5, 1): times 64 it is in [32, 64); 32 is subtracted, so that positions in an octave begin at 0.
_HALF = BUCKETS_PER_OCTAVE
_ZERO = frexp(LEAST)[1] * BUCKETS_PER_OCTAVE - 1  # the index of the bucket for zero: one below the first


class LatencyHistogram:
    """Counts values, usually seconds. Not thread-safe: it belongs to one task."""

    __slots__ = ("buckets", "count", "greatest", "least")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.least = inf
        self.greatest = -inf

    def __repr__(self) -> str:
        return f"<Histogram of {self.count} values, p50 {self.percentile(50)}, p99 {self.percentile(99)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LatencyHistogram) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def add(self, value: float, count: int = 1) -> None:
        """Add a value `count` times: one call serves a batch whose tuples all took equally long."""
        if count < 1:
            if count < 0:
                raise ValueError(f"cannot remove values from a histogram: {count} values of {value!r}")
            return
        if value >= LEAST:
            if value > GREATEST:
                value = GREATEST
            mantissa, exponent = frexp(value)
            index = exponent * BUCKETS_PER_OCTAVE + int(mantissa * (2 * BUCKETS_PER_OCTAVE)) - _HALF
        elif value < LEAST:
            value = 0.0
            index = _ZERO
        else:
            raise ValueError(f"a histogram counts numbers, not {value!r}")
        buckets = self.buckets
        buckets[index] = buckets.get(index, 0) + count
        self.count += count
        if value < self.least:
            self.least = value
        if value > self.greatest:
            self.greatest = value

    def percentile(self, p: float) -> float | None:
        """Return the value that `p` percent (0 to 100) of the values do not exceed, within 2 %; None if empty."""
        if not 0 <= p <= 100:
            raise ValueError(f"a percentile is between 0 and 100, not {p!r}")
        if not self.count:
            return None
        if (rank := max(1, ceil(self.count * p / 100))) == self.count:
            return self.greatest
        seen = 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= rank:
                return min(max(_middle(index), self.least), self.greatest)
        raise AssertionError("the buckets hold less than their count")

    def merge(self, other: LatencyHistogram) -> None:
        """Add the values of `other`."""
        buckets = self.buckets
        for index, count in dict(other.buckets).items():  # `other` may grow meanwhile
            buckets[index] = buckets.get(index, 0) + count
            self.count += count  # not other.count, which may be ahead of the buckets read here
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)

    def as_dict(self) -> dict[str, Any]:
        """Return the extremes, and pairs of a bucket's index and count in ascending order, as JSON values."""
        if not self.count:
            return {"buckets": []}
        pairs = sorted(map(list, self.buckets.items()))
        return {"least": self.least, "greatest": self.greatest, "buckets": pairs}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LatencyHistogram:
        """Return the histogram from the values that `as_dict` returned. The values come from another process: raise ValueError
        for anything else."""
        histogram = cls()
        try:
            for index, count in values["buckets"]:
                if {type(index), type(count)} != {int} or count < 1 or index in histogram.buckets:
                    raise ValueError(f"bucket {index!r} with count {count!r}")
                histogram.buckets[index] = count
                histogram.count += count
            if histogram.count:
                histogram.least, histogram.greatest = float(values["least"]), float(values["greatest"])
                _check_extremes(histogram)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not a histogram: {error!r} in {str(values)[:200]}") from error
        return histogram


def _middle(index: int) -> float:
    if index == _ZERO:
        return 0.0
    exponent, position = divmod(index, BUCKETS_PER_OCTAVE)
    return ldexp((position + _HALF + 0.5) / (2 * BUCKETS_PER_OCTAVE), exponent)


def _check_extremes(histogram: LatencyHistogram) -> None:
    extremes = (histogram.least, histogram.greatest)
    for extreme, index in zip(extremes, (min(histogram.buckets), max(histogram.buckets)), strict=True):
        probe = LatencyHistogram()
        probe.add(extreme)
        if index not in probe.buckets:
            raise ValueError(f"{extreme!r} is not in bucket {index}")
