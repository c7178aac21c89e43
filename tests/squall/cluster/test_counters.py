"""Counters are unchanged by encoding and decoding, whatever the user's metrics are; other bytes are refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.cluster.counters import MOST_TEXT, BadCounters, ComponentCounters, WorkerCounters, plain
from squall.reports.error_reports import ErrorReport
from squall.reports.histogram import LatencyHistogram

COUNT = st.integers(0, 10**12)
TEXT = st.text(max_size=20)
NUMBER = st.one_of(st.integers(), st.floats(allow_nan=False))


@st.composite
def histograms(draw: st.DrawFn) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in draw(st.lists(st.floats(0, 1e6), max_size=5)):
        histogram.add(value)
    return histogram


@st.composite
def components(draw: st.DrawFn) -> ComponentCounters:
    return ComponentCounters(
        emitted=draw(COUNT),
        executed=draw(COUNT),
        acked=draw(COUNT),
        failed=draw(COUNT),
        errors=draw(COUNT),
        pending=draw(COUNT),
        latency=draw(histograms()),
        metrics=draw(st.dictionaries(TEXT, st.one_of(NUMBER, histograms()), max_size=3)),
        gauges=draw(st.dictionaries(TEXT, st.one_of(NUMBER, TEXT), max_size=3)),
        failures=draw(st.dictionaries(TEXT, st.integers(1, 9), max_size=3)),
        idle=draw(st.dictionaries(TEXT, st.integers(1, 9), max_size=3)),
        first_failure=draw(st.none() | st.tuples(st.floats(0, 1e9), TEXT)),
        down=draw(st.dictionaries(st.integers(1, 99), st.tuples(st.floats(0, 1e10), TEXT), max_size=3)),
    )


def report(text: str = "ValueError: no", time: float = 1.0) -> ErrorReport:
    return ErrorReport("words", "split", 3, "execute", text, "a.py:3, in f", ("one", "two"), None, time, 2)


@given(components(), st.integers(0, 10**9))
def test_counters_are_decoded_unchanged(component: ComponentCounters, number: int) -> None:
    counters = WorkerCounters({"split": component}, (report(),), number)
    again = WorkerCounters.from_bytes(counters.to_bytes())
    assert again == (
        counters if component != ComponentCounters() else WorkerCounters({}, (report(),), number)
    )


@given(st.lists(components(), max_size=4), st.randoms())
def test_a_sum_does_not_depend_on_the_order_and_leaves_its_parts_unchanged(
    parts: list[ComponentCounters], random: Any
) -> None:
    before = [ComponentCounters.from_dict(json.loads(json.dumps(part.as_dict()))) for part in parts]
    assert before == parts
    total, other = ComponentCounters(), ComponentCounters()
    for part in parts:
        total.add(part)
    for part in random.sample(parts, len(parts)):
        other.add(part)
    assert (total.emitted, total.failures, total.latency.count) == (
        other.emitted,
        other.failures,
        other.latency.count,
    )
    assert total.first_failure == other.first_failure
    assert total.acked == sum(part.acked for part in parts)
    assert total.pending == 0
    assert parts == before


class OddNumber:
    def __float__(self) -> float:
        raise OverflowError("far too odd")


class Unspeakable(OddNumber):
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        (numpy.int64(7), 7),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), 1.0),
        (Decimal("2.5"), 2.5),
        (Fraction(1, 4), 0.25),
        (True, True),
        ([1, 2], "[1, 2]"),
        (None, "None"),
        (Unspeakable(), "a Unspeakable whose repr() raises ValueError"),
    ],
)
def test_a_users_number_becomes_a_plain_one_and_anything_else_text(given_value: object, kept: object) -> None:
    assert plain(given_value) == kept
    counters = WorkerCounters({"bolt": ComponentCounters(gauges={"size": given_value})})
    assert WorkerCounters.from_bytes(counters.to_bytes()).components["bolt"].gauges == {"size": kept}


def test_the_text_of_a_large_value_is_cut() -> None:
    assert len(str(plain(["x" * 10_000]))) == MOST_TEXT


def test_an_infinite_or_missing_number_survives() -> None:
    counters = WorkerCounters({"bolt": ComponentCounters(gauges={"a": float("inf"), "b": float("nan")})})
    gauges = WorkerCounters.from_bytes(counters.to_bytes()).components["bolt"].gauges
    assert gauges["a"] == float("inf")
    assert gauges["b"] != gauges["b"]


def test_missing_counters_are_an_empty_object() -> None:
    assert WorkerCounters.from_bytes(b"{}") == WorkerCounters({})


GOOD = json.loads(WorkerCounters({"split": ComponentCounters(emitted=1)}, (report(),), 4).to_bytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**GOOD, "format": 99}).encode(),
        json.dumps({**GOOD, "number": "4"}).encode(),
        json.dumps({**GOOD, "components": {"split": {"emitted": -0.5}}}).encode(),
        json.dumps({**GOOD, "components": {"split": {"emitted": True}}}).encode(),
        json.dumps({**GOOD, "components": {"split": []}}).encode(),
        json.dumps({**GOOD, "components": {"split": {"latency": {"buckets": [[1, -1]]}}}}).encode(),
        json.dumps({**GOOD, "components": {"split": {"first_failure": "late"}}}).encode(),
        *(
            json.dumps({**GOOD, "components": {"split": {"down": {"3": [since, "why"]}}}}).encode()
            for since in ("nan", float("nan"), float("inf"), -1.0, 1e12, True, None)
        ),
        json.dumps({**GOOD, "reports": [{"topology": "words"}]}).encode(),
        json.dumps({**GOOD, "reports": [{**GOOD["reports"][0], "task": "3"}]}).encode(),
        json.dumps({**GOOD, "reports": [{**GOOD["reports"][0], "frames": [1]}]}).encode(),
        json.dumps({**GOOD, "reports": [{**GOOD["reports"][0], "more": 1}]}).encode(),
    ],
)
def test_other_bytes_are_refused_with_one_error(data: bytes) -> None:
    with pytest.raises(BadCounters, match="these bytes hold no counters"):
        WorkerCounters.from_bytes(data)


@given(st.binary(max_size=200))
def test_garbage_gives_no_other_error(data: bytes) -> None:
    try:
        WorkerCounters.from_bytes(data)
    except BadCounters as error:
        assert len(str(error)) < 500
