"""A histogram's percentiles are within 2 % of the exact ones, whichever process counted and however it was sent."""

from __future__ import annotations

import gc
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.reports.histogram import BUCKETS_PER_OCTAVE, GREATEST, LEAST, LatencyHistogram

SECONDS = st.one_of(st.floats(1e-9, 1e9), st.floats(1e-6, 10), st.just(0.0))
COUNTED = st.lists(st.tuples(SECONDS, st.integers(1, 50)), max_size=40)


def histogram_of(counted: list[tuple[float, int]]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value, count in counted:
        histogram.add(value, count)
    return histogram


@given(COUNTED.filter(bool), st.floats(0, 100))
def test_a_percentile_is_within_two_per_cent_of_the_exact_one(
    counted: list[tuple[float, int]], p: float
) -> None:
    values = sorted(value for value, count in counted for _ in range(count))
    exact = values[max(1, math.ceil(len(values) * p / 100)) - 1]
    assert histogram_of(counted).percentile(p) == pytest.approx(exact, rel=0.02)


@given(st.integers(-29 * BUCKETS_PER_OCTAVE, 62 * BUCKETS_PER_OCTAVE))
def test_a_value_at_the_edge_of_a_bucket_is_still_within_two_per_cent(step: int) -> None:
    octave, position = divmod(step, BUCKETS_PER_OCTAVE)
    edge = math.ldexp(1 + position / BUCKETS_PER_OCTAVE, octave)
    for value in (math.nextafter(edge, 0), edge, math.nextafter(edge, math.inf)):
        histogram = histogram_of([(LEAST, 1), (value, 1), (GREATEST, 1)])
        assert histogram.percentile(50) == pytest.approx(value, rel=1 / 64 + 1e-9)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert LatencyHistogram().percentile(50) is None
    assert LatencyHistogram().count == 0
    assert LatencyHistogram() == LatencyHistogram.from_dict(LatencyHistogram().as_dict())


def test_the_extremes_are_exact() -> None:
    histogram = histogram_of([(0.123456789, 3), (7.7654321, 1)])
    assert histogram.percentile(100) == 7.7654321
    assert histogram.percentile(0) == pytest.approx(0.123456789, rel=0.02)
    assert histogram_of([(0.3, 1000)]).percentile(50) == pytest.approx(0.3, rel=0.02)
    assert histogram.count == 4


def test_add_with_a_count_equals_that_many_calls() -> None:
    at_once, one_by_one = LatencyHistogram(), LatencyHistogram()
    at_once.add(0.25, 200)
    for _ in range(200):
        one_by_one.add(0.25)
    assert at_once == one_by_one
    assert at_once.count == 200


def test_zero_values_change_nothing_and_a_negative_count_is_an_error() -> None:
    histogram = histogram_of([(1.0, 1)])
    histogram.add(5.0, 0)
    with pytest.raises(ValueError, match="cannot remove values"):
        histogram.add(5.0, -1)
    assert histogram == histogram_of([(1.0, 1)])


def test_a_clock_that_was_set_back_counts_as_zero() -> None:
    histogram = histogram_of([(-3.0, 1), (0.0, 1), (1e-12, 1), (1.0, 1)])
    assert histogram.percentile(50) == 0.0
    assert histogram.percentile(100) == 1.0


def test_values_without_limit_use_a_limited_number_of_buckets() -> None:
    histogram = LatencyHistogram()
    for exponent in range(-1074, 1024):
        for part in range(8):
            histogram.add(math.ldexp(1 + part / 8, exponent))
    histogram.add(math.inf)
    assert histogram.count == 2098 * 8 + 1
    assert len(histogram.buckets) <= 93 * 8 + 2
    assert histogram.percentile(100) == GREATEST


@pytest.mark.parametrize("p", [-1, 100.1, math.nan])
def test_a_percentile_outside_of_0_to_100_is_an_error(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        LatencyHistogram().percentile(p)


def test_a_value_that_is_no_number_is_an_error_and_changes_nothing() -> None:
    histogram = histogram_of([(1.0, 1)])
    with pytest.raises(ValueError, match="counts numbers"):
        histogram.add(math.nan)
    assert histogram == histogram_of([(1.0, 1)])


@given(COUNTED, COUNTED)
def test_merged_histograms_are_the_histogram_of_all_values(a: Any, b: Any) -> None:
    merged, other = histogram_of(a), histogram_of(b)
    merged.merge(other)
    assert merged == histogram_of(a + b)
    assert other == histogram_of(b)


def test_a_merge_with_a_growing_histogram_counts_only_the_values_it_read() -> None:
    growing = histogram_of([(1.0, 1)])

    def grow(phase: str, info: object) -> None:  # another thread may run while the collector calls this
        growing.add(2.0 ** len(growing.buckets), 100)

    merged = LatencyHistogram()
    before = gc.get_threshold()
    gc.callbacks.append(grow)
    try:
        gc.set_threshold(1)
        for _ in range(20):
            merged = LatencyHistogram()
            merged.merge(growing)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(grow)
    assert merged.count == sum(merged.buckets.values()) <= growing.count


@given(COUNTED)
def test_a_histogram_survives_json(counted: list[tuple[float, int]]) -> None:
    histogram = histogram_of(counted)
    again = LatencyHistogram.from_dict(json.loads(json.dumps(histogram.as_dict(), allow_nan=False)))
    assert again == histogram
    assert (again.count, again.percentile(99)) == (histogram.count, histogram.percentile(99))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"buckets": 3},
        {"buckets": [[1]]},
        {"buckets": [[1, 1]]},
        {"buckets": [["1", 1]], "least": 1, "greatest": 1},
        {"buckets": [[1, 0]], "least": 1, "greatest": 1},
        {"buckets": [[32, 1], [32, 1]], "least": 1, "greatest": 1},
        {"buckets": [[32, 1]], "least": "nan", "greatest": 1},
        {"buckets": [[32, 1]], "least": 1, "greatest": 2},
    ],
)
def test_invalid_histograms_give_one_class_of_error(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a histogram"):
        LatencyHistogram.from_dict(values)


def test_the_repr_of_a_histogram_has_its_content() -> None:
    assert repr(histogram_of([(1.0, 2)])) == "<Histogram of 2 values, p50 1.0, p99 1.0>"
